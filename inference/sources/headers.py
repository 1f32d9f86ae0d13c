"""What a checkpoint's files say of their tensors, read off the headers alone. Standard library only.

In: a folder. Out: each tensor's shape, dtype and place; no weights. A file that is no whole safetensors file is told as what it is.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.errors import InferenceError
from inference.sources.files import LFS_POINTER, NOWHERE, leads_nowhere, quoted, weights_files
from inference.units import two_sizes

LARGEST_HEADER = 100 * 10**6  # the format's own limit
ZIP = b"PK\x03\x04"
KINDS = {ZIP: "a zip archive, as PyTorch's pickles are", b"GGUF": "a GGUF file", b"\x80": "a pickle", b"<": "a web page"}
BITS = {"F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16, "F4": 4}
BITS |= dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"), 8)
MOST_NUMBERS, LARGEST_NUMBER = 64, 2**63  # of a shape and its place: with more, working out its size would take for ever


@dataclass(frozen=True)
class Stored:
    """One tensor; `dtype` is the format's own word (BF16, F16, F32, U8, ...), `file` and `offset` say where its bytes are, if anywhere yet."""

    shape: tuple[int, ...]
    dtype: str
    file: Path | None = None
    offset: int = 0

    @property
    def count(self) -> int:
        """How many values."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """What they take in the file."""
        return self.count * BITS.get(self.dtype, 8) // 8


def tensors_of(folder: Path) -> dict[str, Stored]:
    """Every tensor in the files that the model's weights are read from, by name; raises InferenceError for a file that is missing or damaged."""
    found: dict[str, Stored] = {}
    for file in weights_files(folder):
        tensors = tensors_in(file)
        if twice := found.keys() & tensors.keys():
            name = min(twice)
            raise InferenceError(f"{file} holds {quoted(name)}, and so does {found[name].file}: it can't be told which is meant. Copy or download both again.")
        found |= tensors
    return found


def tensors_in(file: Path) -> dict[str, Stored]:
    """The tensors of one safetensors file; raises InferenceError with what is wrong with the file and what to do."""
    try:
        length = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(8)
            header = stream.read(_header_bytes(file, start, length))
    except FileNotFoundError:
        if leads_nowhere(file):
            raise InferenceError(f"{file.name} in {file.parent} is {NOWHERE}") from None
        raise InferenceError(f"{file.name} is named by the index of the weights and is not in {file.parent}. Copy it there.") from None
    except OSError as error:
        raise InferenceError(f"{file} can't be read ({error.strerror}). Check its permissions and its disk, or copy it again.") from error
    begin = 8 + len(header)
    try:
        entries: dict[str, Any] = json.loads(header)
        if not all(isinstance(words, str) for words in dict(entries.pop("__metadata__", {})).values()):
            raise ValueError("its notes are no texts")
        found = {name: _stored(entry, file, begin) for name, entry in entries.items()}
        places = sorted((int(first), int(last)) for first, last in (entry["data_offsets"] for entry in entries.values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _no_safetensors(file, start) from None
    end = begin + max((last for _, last in places), default=0)
    if end > length:
        whole, has = two_sizes(end, length)
        raise InferenceError(f"{file} is cut short: its header tells of {whole}, and it has {has}. Copy or download it again.")
    if [first for first, _ in places] + [length - begin] != [0] + [last for _, last in places]:
        raise InferenceError(f"{file} is damaged: its tensors overlap, or bytes of it belong to none. Copy or download it again.")
    return found


def _stored(entry: Any, file: Path, begin: int) -> Stored:
    """One entry of a header whose tensors begin at `begin`; raises ValueError, KeyError or TypeError for one that is none."""
    shape, dtype, (first, last) = entry["shape"], entry["dtype"], entry["data_offsets"]
    numbers = [*shape, first, last]
    if not isinstance(dtype, str) or len(numbers) > MOST_NUMBERS or not all(type(number) is int and 0 <= number < LARGEST_NUMBER for number in numbers):
        raise ValueError("no tensor")
    found = Stored(tuple(shape), dtype, file, begin + first)
    if dtype in BITS and found.bytes != last - first:
        raise ValueError("its values are more or fewer than its shape says")
    return found


def _header_bytes(file: Path, start: bytes, length: int) -> int:
    if not length:
        raise InferenceError(f"{file} is empty. Copy or download it again.")
    if start == LFS_POINTER[:8]:
        raise InferenceError(
            f"{file} is a Git LFS pointer, some lines that stand for the weights and not the weights. Run `git lfs pull` in its folder, or download it again."
        )
    if len(start) < 8 or start.startswith(ZIP):
        raise _no_safetensors(file, start)
    wanted: int = struct.unpack("<Q", start)[0]
    if wanted > LARGEST_HEADER:
        raise _no_safetensors(file, start)
    if 8 + wanted > length:
        takes, has = two_sizes(8 + wanted, length)
        raise InferenceError(f"{file} is cut short: its header alone takes {takes}, and it has {has}. Copy or download it again.")
    return wanted


def _no_safetensors(file: Path, start: bytes) -> InferenceError:
    kind = next((words for mark, words in KINDS.items() if start.startswith(mark)), "")
    return InferenceError(
        f"{file} is no safetensors file{f' but {kind}' if kind else ''}. Save the model again with save_pretrained, or download the file again."
    )
