"""A GGUF file as the library `gguf` reads it, once and only where it is sound. All that we take the place of in that library stands here."""

from __future__ import annotations

import contextlib
import functools
import mmap
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

STRING, LIST = 8, 9  # kinds of values in the metadata; the others by their bytes
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
TOLD = 0.005  # of all weights; what fewer are stored as is not worth a word


@contextlib.contextmanager
def parsed_once() -> Iterator[None]:
    """Lets transformers, which reads a file's 49,152 words three times and builds the table of tensor names 397 times, do each once, of a sound file."""
    import gguf

    functions = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map") if hasattr(gguf, name)}
    for name, function in functions.items():
        setattr(gguf, name, functools.cache(functools.partial(_sound, function) if name == "GGUFReader" else function))
    try:
        yield
    finally:
        for name, function in functions.items():
            setattr(gguf, name, function)


def _sound(read: Callable[[str | Path], Any], file: str | Path) -> Any:
    """The file as `read` has it; raises ValueError for one that claims more than it holds, at which that would count for ever, or whose tensors overlap."""
    with open(file, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as held:
        try:
            at, _ = 24, struct.unpack_from("<4sI", held)
            for _ in range(struct.unpack_from("<Q", held, 16)[0]):
                at = _after(held, STRING, at)
                at = _after(held, struct.unpack_from("<I", held, at)[0], at + 4)
        except struct.error:
            raise ValueError("it claims more than it holds") from None
    found = read(file)
    places = sorted((int(tensor.data_offset), int(tensor.data_offset + tensor.n_bytes)) for tensor in found.tensors)
    if any(end > begin for (_, end), (begin, _) in pairwise(places)):
        raise ValueError("its tensors overlap")
    return found


def _after(held: mmap.mmap, kind: int, at: int) -> int:
    """Where a value of the metadata at `at` ends; raises struct.error past the file's end, ValueError for a kind that there is none of."""
    if kind in WIDTHS:
        at += WIDTHS[kind]
    elif kind == STRING:
        at += 8 + int(struct.unpack_from("<Q", held, at)[0])
    elif kind == LIST:
        inner, count = struct.unpack_from("<IQ", held, at)
        at += 12
        if inner in WIDTHS:
            at += WIDTHS[inner] * count
        else:
            for _ in range(count):
                at = _after(held, inner, at)
    else:
        raise ValueError(f"a value of the kind {kind}")
    struct.unpack_from("<0s", held, min(at, len(held) + 1))  # no further than the file
    return at


def said(reader: Any, key: str) -> Any:
    """What the file says under `key`; None where it doesn't."""
    return reader.fields[key].contents() if key in reader.fields else None


def kinds(reader: Any) -> str:
    """The types of a file's weights with their shares, the most frequent first."""
    counts = Counter[str]()
    for tensor in reader.tensors:
        counts[tensor.tensor_type.name] += int(tensor.n_elements)
    shares = [(kind, count / counts.total()) for kind, count in counts.most_common()]
    return ", ".join(kind if share > 1 - TOLD else f"{kind} ({100 * share:.0f} %)" for kind, share in shares if share >= TOLD)
