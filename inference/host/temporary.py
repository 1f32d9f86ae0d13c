"""A temporary folder that goes with the process that made it: what one that was killed left behind is removed by the next.

In: a name's beginning and a place. Out: a folder that nobody else can read.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder in `parent` (None: the system's), removed at the end; raises OSError where none can be made."""
    parent = parent or Path(tempfile.gettempdir())
    for old in parent.glob(f"{prefix}*"):
        _remove_unless_used(old)
    made, held = _locked(prefix, parent)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(held)


def _locked(prefix: str, parent: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor that keeps it locked as long as this process lives."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        held = -1
        with contextlib.suppress(FileNotFoundError):
            held = os.open(made, os.O_RDONLY)
            fcntl.flock(held, fcntl.LOCK_EX)
        if made.exists():
            return made, held
        if held >= 0:  # a process that began just then took it for one that was left behind
            os.close(held)


def _remove_unless_used(old: Path) -> None:
    """Remove a folder that no living process holds locked; another user's stays."""
    with contextlib.suppress(OSError):
        looked_at = os.open(old, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(looked_at, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old)
        finally:
            os.close(looked_at)
