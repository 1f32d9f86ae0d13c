"""How fast this machine's memory can be read, which bounds a decode step on the CPU: each weight is read once a token."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

BLOCK_BYTES = 1 << 29
ROUNDS = 7


def read_bandwidth(threads: int) -> float:
    """Bytes per second that `threads` threads read together out of a block far larger than the caches; the best of ROUNDS."""
    parts = np.array_split(np.ones(BLOCK_BYTES // 4, dtype=np.float32), max(1, threads))
    best = 0.0
    with ThreadPoolExecutor(len(parts)) as pool:
        for _ in range(ROUNDS):
            began = time.perf_counter()
            list(pool.map(np.max, parts))
            best = max(best, BLOCK_BYTES / (time.perf_counter() - began))
    return best
