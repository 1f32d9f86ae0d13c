"""What bounds a lane on the CPU, by loops in C: how fast its memory is read, and how fast it multiplies and adds in FP32.

In: the lane's number of threads. Out: bytes and operations per second at that moment; None where there is no C compiler. Each weight is read
once a token, so the first bounds a decode step; each is multiplied with each token of a prompt, so the second bounds the first token. Brings no torch.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inference.host import machine
from inference.host.child import ROOT

SOURCE = ROOT / "inference" / "cpu" / "machine.c"
BLOCK_BYTES = 2**30  # far larger than the caches
PIECE = 2**13  # floats: each thread's part is a whole number of these
PASSES = 5
FMA_S = 0.05
FLAGS = ("-O3", "-shared", "-fPIC")


@dataclass(frozen=True)
class Limits:
    """`read_bandwidth` in bytes per second, `fma_peak` in FP32 operations per second (a multiplication and an addition are two)."""

    read_bandwidth: float
    fma_peak: float


class Meter:
    """Measures both with `threads` threads that run at once, bound to no core, as the lane's are."""

    def __init__(self, threads: int) -> None:
        """Raises OSError, or a subprocess's error, where the loops can't be built."""
        self._threads = max(1, threads)
        self._loops = _built()

    def measure(self) -> Limits:
        """Both as they are now, each the best of PASSES."""
        with ThreadPoolExecutor(self._threads) as pool:
            return Limits(self._bandwidth(pool), self._peak(pool))

    def _bandwidth(self, pool: ThreadPoolExecutor) -> float:
        part = BLOCK_BYTES // 4 // self._threads // PIECE * PIECE
        whole = np.ones(part * self._threads + PIECE, dtype=np.float32)
        start = whole[-whole.ctypes.data % 64 // 4 :]  # on a border of a cache line
        pointers = [ctypes.c_void_p(start.ctypes.data + 4 * part * n) for n in range(self._threads)]
        return 4 * part * self._threads / self._best(pool, lambda n: self._loops.read_all(pointers[n], ctypes.c_long(part)))

    def _peak(self, pool: ThreadPoolExecutor) -> float:
        rounds = 10**6
        alone = self._best(pool, lambda _: self._loops.multiply_add(ctypes.c_long(rounds)))
        rounds = max(1, int(rounds * FMA_S / alone))
        seconds = self._best(pool, lambda _: self._loops.multiply_add(ctypes.c_long(rounds)))
        return float(rounds * self._loops.round_flops() * self._threads / seconds)

    def _best(self, pool: ThreadPoolExecutor, work: Callable[[int], object]) -> float:
        """The least seconds in which all threads do `work` (told which of them), which leaves the GIL to the others."""
        found = []
        for _ in range(PASSES):
            began = time.perf_counter()
            list(pool.map(work, range(self._threads)))
            found.append(time.perf_counter() - began)
        return min(found)


def meter(threads: int) -> Meter | None:
    """A meter, or None where its loops can't be built here."""
    try:
        return Meter(threads)
    except (OSError, subprocess.SubprocessError):
        return None


def _built() -> ctypes.CDLL:
    found = machine.c_compiler()
    if found is None:
        raise OSError("no C compiler is installed")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "machine.so"
        for extra in (("-march=native",), ()):  # which some compilers don't know
            done = subprocess.run([found, *FLAGS, *extra, str(SOURCE), "-o", str(file)], capture_output=True, timeout=60)
            if done.returncode == 0:
                break
        loops = ctypes.CDLL(str(file))  # stays mapped when the file is gone
    loops.read_all.restype = loops.multiply_add.restype = ctypes.c_float
    loops.round_flops.restype = ctypes.c_long
    return loops
