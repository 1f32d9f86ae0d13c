"""A full or unwritable disk in words: how much is needed, how much is free, and where. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from inference.errors import InferenceError
from inference.units import size

FULL = (errno.ENOSPC, errno.EDQUOT)
UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
WORDS = ("no space left on device", "disk quota exceeded")  # libraries in Rust and child processes give the text alone


def free_bytes(folder: Path) -> int:
    """What can still be written below `folder`, which need not be there yet."""
    there = next(path for path in [folder, *folder.absolute().parents] if path.exists())
    return shutil.disk_usage(there).free


def check_room(folder: Path, needed_bytes: int, what: str) -> None:
    """Raise InferenceError where `what` can't be written below `folder`."""
    if free_bytes(folder) < needed_bytes:
        raise full(folder, needed_bytes, what)


def full(folder: Path, needed_bytes: int, what: str) -> InferenceError:
    """The sentence for a full disk."""
    needs = f"needs about {size(needed_bytes)}" if needed_bytes else "needs more"
    return InferenceError(
        f"The disk is full: {folder} has {size(free_bytes(folder))} free, and {what} {needs}. "
        "Free some space there, or set CACHE_DIR (for downloads from the Hub: HF_HOME) to a folder on another disk."
    )


def is_full(error: BaseException | None) -> bool:
    """Whether a fault, or one that caused it, is a full disk."""
    while error is not None:
        if getattr(error, "errno", None) in FULL or says_full(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def says_full(text: str) -> bool:
    """Whether a library's or program's message tells of a full disk."""
    return any(words in text.lower() for words in WORDS)


@contextlib.contextmanager
def faults_told(folder: Path, needed_bytes: int, what: str) -> Iterator[None]:
    """Turn a full or unwritable disk inside into its sentence (InferenceError); everything else goes through as it is."""
    try:
        yield
    except InferenceError:
        raise
    except Exception as error:
        if is_full(error):
            raise full(folder, needed_bytes, what) from error
        if getattr(error, "errno", None) in UNWRITABLE:
            raise InferenceError(f"{folder} can't be written ({error}). Set CACHE_DIR to a folder that can.") from error
        raise
