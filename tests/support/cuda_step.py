"""Our CUDA step on the CPU: kernels run by the emulator, over a small model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inference.cuda import kernels
from inference.cuda.packed import pack
from inference.cuda.prefill import Prefill
from inference.cuda.runner import Runner
from inference.parts.description import ModelParts
from inference.parts.reader import read_parts
from tests.support.cuda_emulator import Emulator

SCRATCH_BYTES = 100_000  # so little that a small model's matrices are decoded in pieces, too


def emulated(model: Any, rows: int, folder: Path) -> Runner:
    """A runner whose cache holds `rows` positions, all NaN: what isn't written must not be read."""
    return emulated_parts(read_parts(model), rows, folder)


def emulated_parts(parts: ModelParts, rows: int, folder: Path) -> Runner:
    """The same of a description."""
    packed = pack(parts)
    macros = kernels.macros(packed.parts, packed.bits, packed.wide, packed.head_bits)
    launcher = Emulator(kernels.source(macros), macros, folder, multiprocessors=3)
    runner = Runner(packed, launcher, rows)
    runner.wide = Prefill(runner.step, launcher, SCRATCH_BYTES)
    runner.memory.keys.fill_(float("nan"))
    runner.memory.values.fill_(float("nan"))
    return runner
