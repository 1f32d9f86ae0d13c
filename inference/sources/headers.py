"""What a checkpoint's files say of their tensors, read off the headers alone. In: a folder. Out: names, shapes and dtypes; no weights."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from safetensors import safe_open


class Stored(NamedTuple):
    """One tensor of a file; `dtype` is the format's own word (BF16, F16, F32, U8, ...)."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def tensors_of(folder: Path) -> list[Stored]:
    """Every tensor in a checkpoint's safetensors files; raises SafetensorError or OSError for a file that can't be read."""
    found: list[Stored] = []
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            parts = ((name, tensors.get_slice(name)) for name in tensors.keys())  # noqa: SIM118 - not a dict
            found += [Stored(name, tuple(part.get_shape()), part.get_dtype()) for name, part in parts]
    return found
