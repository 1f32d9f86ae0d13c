"""A file that is whole or not there: written beside its name and moved into place, so that a full disk or Ctrl+C leaves what was there.

In: a name and bytes. Out: the file, with the owner and permissions it had, behind a link its target; a pipe, a device and our own
stdout are written as they are. Every fault is an OSError. Knows nothing of what it writes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

UNFINISHED = ".unfinished-"
KEPT = "gpu-vs-cpu-"
# a folder that takes no other file, a file that is mounted by itself, an owner that only root can give
ONLY_IN_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)


def write(name: str, data: bytes) -> None:
    """Put `data` under `name`."""
    if _is_stream(name):
        with open(name, "ab") as stream:  # a stdout that goes to a file holds the tables already
            stream.write(data)
        return
    path = Path(os.path.realpath(name))
    try:
        _beside(path, data)
    except OSError as error:
        if error.errno not in ONLY_IN_PLACE or not path.exists():
            raise
        _in_place(path, data)


def keep(name: str, data: bytes) -> Path:
    """A new file in the temporary folder with what could not be put under `name`, whose ending it has."""
    descriptor, made = tempfile.mkstemp(prefix=KEPT, suffix=Path(name).suffix[:10])
    with _removed_unless_done(made), os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return Path(made)


def _is_stream(name: str) -> bool:
    try:
        found = os.stat(name)
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(found.st_mode) or any(_is_open_at(descriptor, found) for descriptor in (1, 2))


def _is_open_at(descriptor: int, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), found)
    except OSError:  # closed
        return False


def _beside(path: Path, data: bytes) -> None:
    if path.exists() and not os.access(path, os.W_OK):  # a move would not ask
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    made = path.with_name(f"{UNFINISHED}{secrets.token_hex(8)}")  # as long as any name may be
    with _removed_unless_done(made):
        with open(made, "xb") as file:
            file.write(data)
        if path.exists():
            _make_like(made, path)
        os.replace(made, path)


def _make_like(made: Path, path: Path) -> None:
    """Give a file the owner, permissions and attributes of another."""
    found = path.stat()
    if (found.st_uid, found.st_gid) != (os.stat(made).st_uid, os.stat(made).st_gid):
        os.chown(made, found.st_uid, found.st_gid)
    shutil.copystat(path, made)
    os.utime(made)


def _in_place(path: Path, data: bytes) -> None:
    """Overwrite a file; what it held is put back where that fails."""
    held = path.read_bytes()
    try:
        _overwrite(path, data)
    except BaseException:
        _overwrite(path, held)  # its room on the disk is still its own
        raise


def _overwrite(path: Path, data: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
        file.truncate()


@contextlib.contextmanager
def _removed_unless_done(made: str | Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise
