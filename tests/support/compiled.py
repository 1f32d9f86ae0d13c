"""Pieces of our C code built for a test: for this processor, for AVX2, and for any."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

from inference import cpu
from inference.cpu.build import FLAGS
from inference.host.machine import c_compiler, cpu_flags

FOLDER = Path(cpu.__file__).parent
BUILDS = {"native": ["-march=native"], "avx2": ["-march=x86-64-v3"], "any": []}
STRICT = ("-Wall", "-Wextra", "-Werror")


def compiled(source: Path, build: str, folder: Path) -> ctypes.CDLL:
    """`source` as a library; the test is skipped where it can't be built or run."""
    found = c_compiler()
    if found is None:
        pytest.skip("no C compiler is installed")
    if build == "avx2" and "avx2" not in cpu_flags():
        pytest.skip("this processor has no AVX2")
    path = folder / "piece.so"
    subprocess.run([found, *FLAGS, *BUILDS[build], *STRICT, f"-I{FOLDER}", source, "-o", path, "-lm"], check=True)
    return ctypes.CDLL(str(path))


def pointer(tensor: torch.Tensor | None, offset: int = 0) -> ctypes.c_void_p:
    """Where a tensor's floats lie, from the `offset`-th on; NULL for none."""
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr() + 4 * offset)


def long(number: int) -> ctypes.c_long:
    """A number as our C code takes it."""
    return ctypes.c_long(number)
