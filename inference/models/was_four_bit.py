"""Whether the values of a full checkpoint came out of a 4-bit file: then each aligned block of 32 or 64 holds at most 16 of them.

In: a folder. Out: what was found in its safetensors files, as shares of matrices and bytes, or None. A common mistake of exports
(NF4, Q4_0, Q4_1, ... dequantized and saved again); rounding to 16 bits doesn't hide it, an adapter merged later does. Knows no model.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from inference.sources import default_model
from inference.sources.files import weights_files
from inference.sources.headers import tensors_in

MOST_VALUES = 16
BLOCKS = (64, 32)  # in storage order, so along a row; what holds for 64 holds for 32
AT_A_LOAD = 2**25  # bytes looked at while a lane loads: a tenth of a second, whatever the model's size, and half a million blocks
IN_ALL = 2**30  # the same where nobody waits for a lane: a few seconds
PIECE = 2**16  # values read at once
SAMPLES, SAMPLE = 8, 128  # places in a matrix, and values at each
WORDS: dict[str, np.dtype[Any]] = {"BF16": np.dtype(np.uint16), "F16": np.dtype(np.uint16), "F32": np.dtype(np.uint32)}


@dataclass(frozen=True)
class Found:
    """Of `of` matrices that can tell, `matrices` hold at most `values` values in each block of `block`; one in `every` was looked at."""

    matrices: int
    of: int
    bytes_share: float
    values: int
    block: int
    every: int = 1

    @property
    def figures(self) -> str:
        """What was found, with its numbers."""
        share = f"{self.matrices} of {self.of} matrices ({math.floor(100 * self.bytes_share)} % of their bytes)"
        looked_at = "" if self.every == 1 else f" (1 block in {self.every} looked at)"
        return f"{share} hold at most {self.values} values in each block of {self.block}{looked_at}"

    @property
    def words(self) -> str:
        """What it means, and the figures."""
        what = "these values" if self.bytes_share >= 0.5 else "a part of these values"
        return f"{what} came out of a {(self.values - 1).bit_length()}-bit file: {self.figures}"


class _Matrix(NamedTuple):
    """A matrix's place in an open file: its first byte, how many values, and how wide one is."""

    file: int
    start: int
    values: int
    word: np.dtype[Any]

    @property
    def bytes(self) -> int:
        return self.values * self.word.itemsize

    def read(self, first: int, count: int) -> np.ndarray:
        """Whole blocks from `first` on as uint32, -0 as 0; read, not mapped, so that they are in no figure of this process's memory."""
        width, whole = self.word.itemsize, min(count, self.values - first) // BLOCKS[0] * BLOCKS[0]
        words = np.frombuffer(os.pread(self.file, whole * width, self.start + first * width), self.word)
        found = words.astype(np.uint32)  # which numpy sorts fast on every processor
        found[found == 1 << (8 * width - 1)] = 0
        return found

    def sample(self) -> np.ndarray:
        """Some blocks, spread over the matrix."""
        if self.values <= SAMPLES * SAMPLE:
            return self.read(0, self.values)
        places = np.linspace(0, self.values - SAMPLE, SAMPLES).astype(int) // BLOCKS[0] * BLOCKS[0]
        return np.concatenate([self.read(int(place), SAMPLE) for place in places])


def found(folder: Path, most_bytes: int = IN_ALL) -> Found | None:
    """What the checkpoint's values tell, None where they are ordinary; where they are more than `most_bytes`, an even share of them is read.

    Raises InferenceError for files that can't be read.
    """
    with ExitStack() as opened:
        files = [opened.enter_context(file.open("rb")) for file in weights_files(folder) if file.suffix == ".safetensors"]
        can_tell, blocks = _screened(files)
        most = {matrix: _most_values(matrix.sample(), block) for matrix, block in blocks.items()}
        every = max(1, math.ceil(_bytes(blocks) / most_bytes))
        pieces = [(matrix, first) for matrix in blocks for first in range(0, matrix.values, PIECE)]
        for matrix, first in pieces[::every]:
            if most[matrix] <= MOST_VALUES:
                most[matrix] = max(most[matrix], _most_values(matrix.read(first, PIECE), blocks[matrix]))
    proved = [matrix for matrix in blocks if most[matrix] <= MOST_VALUES]
    if not proved:
        return None
    share = _bytes(proved) / _bytes(can_tell)
    return Found(len(proved), len(can_tell), share, max(most[matrix] for matrix in proved), min(blocks[matrix] for matrix in proved), every)


def note(folder: Path, said: str | None) -> str | None:
    """What is `said` of a lane, and what the values tell, looked at within `AT_A_LOAD`; that they were Q4_1 is not said twice."""
    told = found(folder, AT_A_LOAD)
    if told is None or said is None:
        return told.words if told else said
    return f"{said}; {told.figures if default_model.WAS in said else told.words}"


def _screened(files: Iterable[BinaryIO]) -> tuple[list[_Matrix], dict[_Matrix, int]]:
    """(the matrices that can tell, the block size of those whose sample looks like 4 bits)."""
    can_tell, blocks = [], {}
    for matrix in (matrix for file in files for matrix in _matrices(file)):
        sample = matrix.sample()
        if _can_tell(sample):
            can_tell.append(matrix)
            if block := _block_of(sample):
                blocks[matrix] = block
    return can_tell, blocks


def _bytes(matrices: Iterable[_Matrix]) -> int:
    return sum(matrix.bytes for matrix in matrices)


def _matrices(file: BinaryIO) -> Iterator[_Matrix]:
    for tensor in tensors_in(Path(file.name)).values():
        if len(tensor.shape) > 1 and tensor.dtype in WORDS:
            yield _Matrix(file.fileno(), tensor.offset, tensor.count, WORDS[tensor.dtype])


def _can_tell(sample: np.ndarray) -> bool:
    """Whether it isn't one constant, and some block has more numbers than a 4-bit one has values; zeros (pruned, unused or new rows) say nothing."""
    numbers = (sample != 0).reshape(-1, BLOCKS[-1]).sum(1)
    return bool((numbers > MOST_VALUES).any()) and bool((sample != sample[0]).any())


def _block_of(sample: np.ndarray) -> int | None:
    """The largest block in which nowhere in the sample are more than 16 values."""
    return next((block for block in BLOCKS if _most_values(sample, block) <= MOST_VALUES), None)


def _most_values(values: np.ndarray, block: int) -> int:
    """The largest number of different values in a block; 0 where there is no block."""
    ordered = np.sort(values.reshape(-1, block), axis=1)
    return int((ordered[:, 1:] != ordered[:, :-1]).sum(1, dtype=np.uint8).max(initial=0)) + 1
