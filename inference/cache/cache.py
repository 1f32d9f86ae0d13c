"""The cache folder: what lies where, one lock an entry, entries built beside and moved into place, and how much it may hold.

In: settings, or an entry's path CACHE/KIND/NAME. Out: entries that are whole or not there. A lock is the kernel's (flock): it ends
with its process, however that ends, so a temporary folder whose entry nobody has locked is a dead process's. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from inference.cache import disk
from inference.errors import InferenceError
from inference.settings import Settings

log = logging.getLogger(__name__)
KINDS = {
    "models": "restored checkpoint",
    "merged": "adapter merged into its base",
    "converted": "checkpoint converted to safetensors",
    "shapes": "random weights of a shape",
    "quantized": "4-bit copy",
    "kernels": "compiled C code",
    "inductor": "code that torch compiled",
    "peers": "file for a peer of the bench",
}
DEFAULT_LIMIT_GIB = 32
TEMPORARY = ".new-"
UNLOCKED_TEMPORARIES = (".copy-", ".restore-", ".shape-", ".f32-")  # of versions that locked nothing while they wrote
UNLOCKED_DEAD_S = 3600.0
_in_use: dict[Path, Lock] = {}


class Lock:
    """A lock on a file, held until `free` or the end of this process; none but in name where the file can't be locked."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @property
    def real(self) -> bool:
        """Whether it keeps others out: only then does having it mean that nobody else is at work."""
        return self._descriptor is not None

    def free(self) -> None:
        """Let others have it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None  # a second `free` must not close another's file of the same number

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


def _lock(path: Path, shared: bool = False, wait: bool = False) -> Lock | None:
    """The lock on `path`, or None where another holds it and `wait` is off."""
    with contextlib.ExitStack() as unless_taken:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            except PermissionError:  # another user's of the same cache: to read it is enough to lock it
                descriptor = os.open(path, os.O_RDONLY)
            unless_taken.callback(os.close, descriptor)
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return None
        except OSError as error:  # some network disks know no locks, a full one has no room for one: one lane alone is still right
            log.warning("%s can't be locked (%s): two lanes could write its entry at once, and it is not removed", path, error)
            return Lock(None)
        unless_taken.pop_all()
        return Lock(descriptor)


@dataclass(frozen=True)
class Entry:
    """One file or folder of the cache, there or not."""

    path: Path

    @property
    def kind(self) -> str:
        """Which of `KINDS` it is."""
        return self.path.parent.name

    @property
    def words(self) -> str:
        """What it is, for a person."""
        return KINDS[self.kind]

    def _file(self, end: str) -> Path:
        return self.path.parent.parent / "locks" / f"{self.kind}--{self.path.name}.{end}"

    def locked(self, on_wait: Callable[[], object] = lambda: None) -> Lock:
        """The lock to hold while the entry is made; `on_wait` is called if another process has it, before waiting."""
        lock = self.try_lock()
        if lock is None:
            on_wait()
            lock = _lock(self._file("lock"), wait=True)
            assert lock is not None
        return lock

    def try_lock(self) -> Lock | None:
        """The same lock if nobody holds it."""
        return _lock(self._file("lock"))

    @contextlib.contextmanager
    def building(self, needed_bytes: int = 0) -> Iterator[Path]:
        """A temporary folder beside the entry, removed at the end; hold the entry's lock. Raises InferenceError where the disk is full."""
        disk.check_room(self.path.parent, needed_bytes, self.path.name)
        with disk.faults_told(self.path.parent, needed_bytes, self.path.name):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{self.path.name}-", dir=self.path.parent))
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def put(self, made: Path) -> None:
        """Move what was made into place, instead of what is there; hold the entry's lock."""
        if self.path.is_dir() or made.is_dir():  # a folder takes no place of a file, nor of a link that leads nowhere
            self.discard()
        os.replace(made, self.path)
        self.note_use()

    def discard(self) -> None:
        """Remove the entry; one half removed is never seen. Hold the entry's lock."""
        if self.path.is_symlink() or not self.path.is_dir():
            self.path.unlink(missing_ok=True)
            return
        away = self.path.with_name(f"{TEMPORARY}{self.path.name}-gone")  # a new name takes no room, so this works on a full disk
        shutil.rmtree(away, ignore_errors=True)
        os.replace(self.path, away)
        shutil.rmtree(away, ignore_errors=True)

    def use(self) -> None:
        """Keep the entry from being removed while this process lives, and note that it was used."""
        file = self._file("use")
        if file not in _in_use:
            lock = _lock(file, shared=True, wait=True)
            assert lock is not None
            _in_use[file] = lock
        self.note_use()

    def note_use(self) -> None:
        """Make it the most recently used."""
        with contextlib.suppress(OSError):  # on a full disk the order of use is the least of all cares
            self._file("use").parent.mkdir(parents=True, exist_ok=True)
            self._file("use").touch()

    def used_at(self) -> float:
        """When it was last used, or made (seconds since 1970)."""
        found = _found(self._file("use")) or _found(self.path)
        return found.st_mtime if found else 0.0

    def bytes(self) -> int:
        """What it takes on disk."""
        return sum(found.st_size for found in _all_found(self.path) if stat.S_ISREG(found.st_mode))

    def remove_unless_used(self) -> bool:
        """Remove it if it is certain that no process uses or makes it; whether that was so. Raises OSError where it can't be removed."""
        with contextlib.ExitStack() as held:
            for file in (self._file("lock"), self._file("use")):  # the second only once the first is had: what is taken is freed
                lock = _lock(file)
                if lock is None or not held.enter_context(lock).real:
                    return False
            self.discard()
            return True


@dataclass(frozen=True)
class Cache:
    """The folder and the bytes it may hold."""

    root: Path
    limit_bytes: int

    def entry(self, kind: str, name: str) -> Entry:
        """The place of an entry, there or not."""
        return Entry(self.root / kind / name.replace("/", "--"))

    def entries(self) -> list[Entry]:
        """All that is there, the least recently used first."""
        found = [Entry(path) for kind in KINDS for path in _inside(self.root / kind) if not path.name.startswith(".")]
        return sorted(found, key=Entry.used_at)

    def holding(self, folder: Path) -> Entry | None:
        """The entry that `folder` is; None for any other folder, which isn't ours to remove."""
        found = folder.resolve()
        ours = found.parent.name in KINDS and found.parent.parent == self.root.resolve()
        return self.entry(found.parent.name, found.name) if ours else None

    def tidy(self) -> None:
        """Remove dead processes' temporary folders, then the least recently used entries beyond the limit; what can't be is logged."""
        self.sweep()
        self.shrink()

    def sweep(self) -> None:
        """Remove the temporary folders of processes that have ended."""
        for kind in KINDS:
            for path in _inside(self.root / kind):
                if path.name.startswith(TEMPORARY):
                    self._sweep(path)
                elif path.name.startswith(UNLOCKED_TEMPORARIES) and _untouched_s(path) > UNLOCKED_DEAD_S:
                    shutil.rmtree(path, ignore_errors=True)

    def _sweep(self, temporary: Path) -> None:
        entry = Entry(temporary.with_name(temporary.name.removeprefix(TEMPORARY).rpartition("-")[0]))
        if lock := entry.try_lock():
            with lock:
                if lock.real:
                    log.info("removing what a process left behind: %s", temporary)
                    shutil.rmtree(temporary, ignore_errors=True)

    def shrink(self) -> None:
        """Remove the least recently used entries until the limit is kept; what a process uses stays."""
        entries = self.entries()
        sizes = {entry: entry.bytes() for entry in entries}
        over = sum(sizes.values()) - self.limit_bytes
        for entry in entries:
            if over <= 0:
                return
            if _removed(entry):
                log.info("removed %s from the cache, which held more than CACHE_LIMIT", entry.path)
                over -= sizes[entry]

    def empty(self) -> tuple[list[Entry], list[Entry]]:
        """Remove every entry that no process uses and that can be removed; (removed, kept)."""
        self.sweep()
        entries = self.entries()
        removed = [entry for entry in entries if _removed(entry)]
        return removed, [entry for entry in entries if entry not in removed]


def of(settings: Settings) -> Cache:
    """The cache of these settings; raises InferenceError if no place is writable."""
    return Cache(settings.cache_path(), (settings.cache_limit_gib or DEFAULT_LIMIT_GIB) * 2**30)


def take_torch_files(settings: Settings) -> None:
    """Let torch keep compiled code here instead of in the system's temporary folder; call it before torch is imported, which makes the folder."""
    with contextlib.suppress(InferenceError, OSError):  # no writable place: the load says so; no room: torch has its own
        entry = of(settings).entry("inductor", "torch")
        entry.use()  # torch writes there as long as this process lives
        entry.path.mkdir(parents=True, exist_ok=True)  # a disk may have room for a lock, and for no folder
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(entry.path))


def _removed(entry: Entry) -> bool:
    """Whether `entry` could be removed; a fault of that (it is another user's, or just being remade) is nobody's load's."""
    try:
        return entry.remove_unless_used()
    except OSError as error:
        log.warning("%s can't be removed (%s)", entry.path, error)
        return False


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("%s can't be looked at (%s)", folder, error)
        return []


def _found(path: str | Path) -> os.stat_result | None:
    """What the system says of `path`; None where it is gone or can't be asked: other processes make and remove here too."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def _all_found(path: Path) -> list[os.stat_result]:
    """The same of `path` and of everything below it."""
    below = [os.path.join(folder, name) for folder, folders, files in os.walk(path) for name in (*folders, *files)]
    return [found for one in [str(path), *below] if (found := _found(one))]


def _untouched_s(folder: Path) -> float:
    return time.time() - max((found.st_mtime for found in _all_found(folder)), default=0.0)
