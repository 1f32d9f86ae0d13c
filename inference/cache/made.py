"""A checkpoint that is made once of other files (an adapter and its base, another format) and kept in our cache.

In: what it is made of. Out: its entry, how that is found, and a folder to write it into that is sealed and moved into place.
Knows no format. Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.cache import manifest
from inference.cache.cache import Cache, Entry
from inference.cache.manifest import State

NOTE = "note.json"


@dataclass(frozen=True)
class Made:
    """The place of one such checkpoint, and the key that says of what it must be made."""

    entry: Entry
    key: Any

    @property
    def state(self) -> State:
        """How it is found."""
        return manifest.state(self.entry.path, self.key)

    @property
    def note(self) -> str:
        """What was written with it about how it came to be."""
        return str(json.loads((self.entry.path / NOTE).read_text())["note"])

    @staticmethod
    def write_note(out: Path, note: str) -> None:
        """Keep `note` with the checkpoint that is written to `out`."""
        (out / NOTE).write_text(json.dumps({"note": note}))

    @contextlib.contextmanager
    def writing(self, needed_bytes: int) -> Iterator[Path]:
        """The folder to write it into, put in place at the end; hold the entry's lock. Raises InferenceError where the disk is full."""
        with self.entry.building(needed_bytes) as temporary:
            out = temporary / "checkpoint"
            out.mkdir()
            yield out
            manifest.seal(out, self.key)
            self.entry.put(out)


def place(cache: Cache, kind: str, name: str, of: list[str], key: Any) -> Made:
    """Where the checkpoint made of the things named `of` is, or will be: one place for them, whatever they held before."""
    words = re.sub(r"[^\w.-]+", "-", name.rstrip("/").rpartition("/")[2])[:48]
    return Made(cache.entry(kind, f"{words}-{hashlib.sha256(json.dumps(of).encode()).hexdigest()[:12]}"), key)
