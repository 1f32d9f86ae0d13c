"""Builds `kernels.c` with the system's C compiler, once for each processor and source, and calls it.

In: a folder for the result. Out: products of FP32 rows with a matrix kept in FP32, bf16, fp16 or NF4, all arithmetic in
FP32. None where there is no compiler or the build fails; the callers have ways that need none.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
from pathlib import Path

import torch

from inference import machine
from inference.cache import manifest
from inference.cache.cache import Entry
from inference.cache.manifest import State
from inference.errors import InferenceError

log = logging.getLogger(__name__)
SOURCE = Path(__file__).with_name("kernels.c")
VECTOR = 8
SUFFIXES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
# no fast-math: gcc would switch denormals off in the whole process
FLAGS = ("-O3", "-fno-math-errno", "-shared", "-fPIC")
# Apple's clang has no -fopenmp, and some compilers no -march=native: each is worth a try without
EXTRA_FLAGS = (("-march=native", "-fopenmp"), ("-fopenmp",), ("-march=native",), ())
FILE = "products.so"
BUILT_BYTES = 2**20  # at the most


class NotOurs(InferenceError):
    """Ours can't be used for this model here; the message says why."""


class NoLibrary(InferenceError):
    """Our C library can't be had here; the message says why."""


class Library:
    """The compiled products; every call runs on torch's number of threads."""

    def __init__(self, path: Path) -> None:
        self._lib = ctypes.CDLL(str(path))
        self._one = {dtype: getattr(self._lib, f"one_row_{name}") for dtype, name in SUFFIXES.items()}
        self._many = {dtype: getattr(self._lib, f"many_rows_{name}") for dtype, name in SUFFIXES.items()}

    def product(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """x (..., k) FP32 times weight (n, k), whose k is a multiple of 8 -> (..., n) FP32."""
        n, k = weight.shape
        x = x.contiguous()
        y = x.new_empty(*x.shape[:-1], n)
        m = x.numel() // k
        pointers = [_pointer(t) for t in (x, weight, bias, y)]
        sizes = [ctypes.c_long(size) for size in ((n, k) if m == 1 else (m, n, k))]
        (self._one if m == 1 else self._many)[weight.dtype](*pointers, *sizes, ctypes.c_int(torch.get_num_threads()))
        return y

    def levels(self, code: torch.Tensor) -> torch.Tensor:
        """The lookup table for `nf4_product` from the 16 levels of a 4-bit code (FP32)."""
        table = torch.empty(16 + 256 * 2)
        self._lib.fill_levels(_pointer(table), _pointer(code.float().contiguous()))
        return table

    def nf4_product(
        self, x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, levels: torch.Tensor, n: int, block: int, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """x (..., k) FP32 times the matrix (n, k) that `packed` and `scales` hold -> (..., n) FP32; k is a multiple of `block`."""
        x = x.contiguous()
        k = x.shape[-1]
        y = x.new_empty(*x.shape[:-1], n)
        m = x.numel() // k
        pointers = [_pointer(t) for t in (x, packed, scales, levels, bias, y)]
        sizes = [ctypes.c_long(size) for size in ((n, k, block) if m == 1 else (m, n, k, block))]
        (self._lib.one_row_nf4 if m == 1 else self._lib.many_rows_nf4)(*pointers, *sizes, ctypes.c_int(torch.get_num_threads()))
        return y

    def norm(self, x: torch.Tensor, weight: torch.Tensor, plus: float, eps: float) -> torch.Tensor:
        """x / rms(x) * (weight + plus) over the last dimension, FP32, whose size is a multiple of 8."""
        x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
        n = x.shape[-1]
        self._lib.rms_norm(_pointer(x), _pointer(weight), ctypes.c_float(plus), ctypes.c_float(eps), _pointer(y), *map(ctypes.c_long, (x.numel() // n, n)))
        return y

    def rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """x (1, heads, rows, width) FP32 turned by cos and sin (1, rows, width), both contiguous; width is a multiple of 16."""
        _, heads, rows, width = x.shape
        y = x.new_empty(rows, heads, width)
        sizes = (rows, heads, width, x.stride(2), x.stride(1))
        self._lib.rotate(*map(_pointer, (x, cos, sin, y)), *map(ctypes.c_long, sizes))
        return y.transpose(0, 1)[None]

    def silu_times(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up, both FP32 and contiguous, of a multiple of 8 numbers."""
        y = torch.empty_like(gate)
        self._lib.silu_times(_pointer(gate), _pointer(up), _pointer(y), ctypes.c_long(y.numel()), ctypes.c_int(torch.get_num_threads()))
        return y

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float) -> torch.Tensor:
        """Causal attention of q (1, heads, rows, width) over k and v (1, groups, keys, width), FP32 -> (1, rows, heads, width)."""
        _, heads, rows, width = q.shape
        y = q.new_empty(1, rows, heads, width)
        strides = (ctypes.c_long * 6)(*(t.stride(dim) for t in (q, k, v) for dim in (2, 1)))
        sizes = map(ctypes.c_long, (rows, heads, k.shape[2], k.shape[1], width))
        self._lib.attend(*map(_pointer, (q, k, v, y)), *sizes, ctypes.c_float(scaling), strides, ctypes.c_int(torch.get_num_threads()))
        return y


def _pointer(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def compiler() -> str | None:
    """The system's C compiler: CC if set, else the first of cc, gcc and clang."""
    return shutil.which(os.environ.get("CC") or "cc") or shutil.which("gcc") or shutil.which("clang")


def load(folder: Path) -> Library:
    """The library from `folder`, built there if need be, also where it is damaged; raises NoLibrary where that can't be."""
    found = compiler()
    key = _key(found)
    entry = Entry(folder / f"cpu-kernels-{key}")
    entry.use()
    try:
        if manifest.state(entry.path, key) is not State.WHOLE:  # every byte is looked at: one that is cut would end the process
            if found is None:
                raise NoLibrary("no C compiler is installed")
            _build(found, entry, key)
        return Library(entry.path / FILE)
    except NoLibrary:
        raise
    except (InferenceError, OSError, AttributeError, subprocess.SubprocessError) as error:
        raise NoLibrary(f"the C library can't be used ({error})") from error


def _build(found: str, entry: Entry, key: str) -> None:
    with entry.locked(), entry.building(BUILT_BYTES) as work:
        state = manifest.state(entry.path, key)
        if state is State.WHOLE:  # another lane has built it meanwhile
            return
        if state is State.DAMAGED:
            log.warning("the C library %s is damaged and is built anew", entry.path)
        out = work / "library"
        out.mkdir()
        for extra in EXTRA_FLAGS:
            done = subprocess.run([found, *FLAGS, *extra, str(SOURCE), "-o", str(out / FILE)], capture_output=True, text=True, timeout=60)
            if done.returncode == 0:
                manifest.seal(out, key)
                entry.put(out)
                return
        raise OSError(f"{found} could not compile {SOURCE.name}: {done.stderr.strip()[:300]}")


def _key(found: str | None) -> str:
    parts = [SOURCE.read_text(), machine.cpu_flags(), platform.machine(), str(found), str(FLAGS), str(EXTRA_FLAGS)]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
