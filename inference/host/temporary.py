"""A temporary folder that goes with the process that made it: what one that was killed left behind is removed by the next.

In: a name's beginning and a place. Out: a folder that nobody else can read, or the sentence why there is none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from inference.errors import InferenceError, WrongArguments


def check() -> None:
    """Raise InferenceError where there is no place for temporary files, without which Gradio can't even be imported."""
    with _told("TMPDIR"):
        tempfile.gettempdir()


@contextlib.contextmanager
def folder(prefix: str, parent: str = "", variable: str = "TMPDIR") -> Iterator[Path]:
    """A new folder in `parent` (empty: the system's), removed at the end; raises InferenceError where none can be made, `variable` being what sets the place."""
    with _told(variable):
        place = Path(parent or tempfile.gettempdir())
        place.mkdir(parents=True, exist_ok=True)
        for old in place.glob(f"{prefix}*"):
            _remove_unless_used(old)
        made, held = _locked(prefix, place)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(held)


@contextlib.contextmanager
def _told(variable: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = WrongArguments if os.environ.get(variable) else InferenceError
        raise kind(f"There is no place for temporary files ({error}). Set {variable} to a folder that can be written, on a disk with room.") from error


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
