"""What a folder of our cache was made of and how its files must look, written into it last: so damage is found and age is seen.

In: a finished folder and its key (anything JSON can hold). Out: whole, absent, stale or damaged. Standard library only.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.errors import DeviceLost, Refused, short_of_memory

FILE = "made-of.json"
FORMAT = 1
SMALL_BYTES = 4 * 2**20  # hashed at every load: some 10 ms at most


class State(enum.Enum):
    """How a folder of the cache was found."""

    WHOLE = "whole"
    ABSENT = "absent"
    STALE = "stale"  # made of something else, or by another version
    DAMAGED = "damaged"


@dataclass(frozen=True)
class _File:
    bytes: int
    sha256: str


def digest(path: Path) -> str:
    """A file's SHA-256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(folder: Path, key: Any, digests: Mapping[str, str] | None = None) -> None:
    """Write the manifest of a finished folder; `digests` (name -> SHA-256) spares reading those files again."""
    known = digests or {}
    files = {
        path.name: [path.stat().st_size, known.get(path.name) or digest(path)] for path in sorted(folder.iterdir()) if path.is_file() and path.name != FILE
    }
    (folder / FILE).write_text(json.dumps({"format": FORMAT, "key": key, "files": files}))


def state(folder: Path, key: Any, thorough: bool = False) -> State:
    """How `folder` is found: sizes and the small files are looked at, with `thorough` every byte."""
    if not folder.exists():
        return State.ABSENT
    try:
        text = json.loads((folder / FILE).read_text())
        found = text["key"] if text["format"] == FORMAT else None
        files = {name: _File(*values) for name, values in text["files"].items()}
    except FileNotFoundError:
        return State.STALE
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return State.DAMAGED
    if found != json.loads(json.dumps(key)):
        return State.STALE
    return State.WHOLE if all(_as_written(folder / name, file, thorough) for name, file in files.items()) else State.DAMAGED


def damaged(folder: Path) -> bool:
    """Whether any byte of a folder of ours differs from what was written; False for a folder without a manifest."""
    try:
        key = json.loads((folder / FILE).read_text())["key"]
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError):
        return True
    return state(folder, key, thorough=True) is State.DAMAGED


def not_the_files(error: BaseException) -> bool:
    """Whether a load failed for want of memory or because the device broke: that says nothing about the files it read."""
    return isinstance(error, (Refused, DeviceLost)) or short_of_memory(error)


def _as_written(path: Path, file: _File, thorough: bool) -> bool:
    try:
        if path.stat().st_size != file.bytes:
            return False
        return digest(path) == file.sha256 if thorough or file.bytes <= SMALL_BYTES else True
    except OSError:
        return False
