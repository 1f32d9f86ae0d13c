"""Whether the values that a model holds are those of its files: what alone may be called exact.

A matrix that lies in the file's own pages, unwritten, is the file. Of any other the sum over its bits, taken as FP32 has them, is compared
with those of the files' tensors: a value that was rounded changes it. In: a model's matrix, what the headers say. Knows no label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from inference.models.exact import IN_A_FILE
from inference.sources.headers import Stored

BLOCK = 2**22  # values at a time
MAPPING = re.compile(r"^([0-9a-f]+)-[0-9a-f]+ \S+ ([0-9a-f]+) \S+ \d+\s*(.*)$")  # of a file, of something else, or of nothing
SMAPS = Path("/proc/self/smaps")
DTYPES = IN_A_FILE | {"F32": torch.float32}
Mapped = tuple[Path, int, int]  # a file, its address, and from which offset on it is mapped
Place = tuple[Path, int, int]  # a file, an offset and a length in bytes


class Values:
    """The values of a checkpoint's tensors."""

    def __init__(self, tensors: Mapping[str, Stored]) -> None:
        self._tensors = tensors
        self._sums: set[tuple[int, int]] = set()
        self._all_read = False

    def note(self, tensor: torch.Tensor) -> None:
        """Keep the sum of a file's tensor that is at hand, so that the file needn't be read again."""
        self._sums.add((tensor.numel(), bits(tensor)))

    def hold(self, matrices: list[torch.Tensor]) -> bool:
        """Whether each of `matrices` has the values of some tensor of the files."""
        files = {stored.file for stored in self._tensors.values() if stored.file}
        unwritten, places = _unwritten(files), {(stored.file, stored.offset, stored.bytes) for stored in self._tensors.values() if stored.file}
        return all(_lies_in(matrix, unwritten, places) or self._known(matrix) for matrix in matrices)

    def _known(self, matrix: torch.Tensor) -> bool:
        found = (matrix.numel(), bits(matrix))
        if found not in self._sums and not self._all_read:
            self._all_read = True
            for stored in self._tensors.values():
                if len(stored.shape) > 1 and stored.dtype in DTYPES and stored.file:
                    self._sums.add((stored.count, sum(bits(block) for block in _blocks_of(stored))))
        return found in self._sums


def _lies_in(tensor: torch.Tensor, unwritten: list[Mapped], places: set[Place]) -> bool:
    return any((file, tensor.data_ptr() - start + offset, tensor.nbytes) in places for file, start, offset in unwritten)


def bits(tensor: torch.Tensor) -> int:
    """The sum of the 32 bits of each value of `tensor` as FP32, taken as whole numbers; the same in any dtype that holds the values exactly."""
    flat = tensor.detach().reshape(-1)
    if flat.dtype == torch.bfloat16:  # the upper half of an FP32 value
        return int(flat.view(torch.int16).sum(dtype=torch.int64)) << 16
    return sum(int(block.float().view(torch.int32).sum(dtype=torch.int64)) for block in flat.split(BLOCK))


def _blocks_of(stored: Stored) -> Iterator[torch.Tensor]:
    assert stored.file is not None
    dtype = DTYPES[stored.dtype]
    with stored.file.open("rb") as file:
        file.seek(stored.offset)
        for start in range(0, stored.count, BLOCK):
            raw = bytearray(min(BLOCK, stored.count - start) * dtype.itemsize)
            file.readinto(raw)
            yield torch.frombuffer(raw, dtype=dtype)


def _unwritten(files: set[Path]) -> list[Mapped]:
    """(file, address, offset in the file) of each mapping of `files` of which this process has written no page; none where the system doesn't tell."""
    named = {str(file.resolve()): file for file in files}
    found: list[Mapped] = []
    here: Mapped | None = None
    for line in SMAPS.read_text().splitlines() if SMAPS.exists() else []:
        if mapping := MAPPING.match(line):
            here = (named[mapping[3]], int(mapping[1], 16), int(mapping[2], 16)) if mapping[3] in named else None
        elif here and line.split() == ["Anonymous:", "0", "kB"]:
            found.append(here)
    return found
