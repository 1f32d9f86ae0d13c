"""Builds our C sources with the system's C compiler into one library, once a machine, beside whatever else a lane's start does.

In: a folder for the result and what instructions it may use. Out: its file, or NoLibrary with the reason: no compiler, a build that fails
or takes too long. Imports no torch: it begins before that is imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

from inference.cache import manifest
from inference.cache.cache import Entry
from inference.cache.manifest import State
from inference.errors import InferenceError
from inference.host import machine

log = logging.getLogger(__name__)
FOLDER = Path(__file__).parent
SOURCES = tuple(FOLDER / name for name in ("alone.c", "products.c", "step.c", "team.c"))
FILE = "step.so"
BUILT_BYTES = 2**20  # at the most
MOST_S = 15.0
# no fast-math: gcc would switch denormals off in the whole process
FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O3", "-fno-math-errno", "-shared", "-fPIC", "-pthread")
# by CPU_ISA; some compilers know no -march=native: worth a try without
INSTRUCTIONS = {"": (("-march=native",), ()), "avx2": (("-march=x86-64-v3",),)}
_begun: dict[tuple[Path, str], Future[Path]] = {}
_lock = threading.Lock()


class NoLibrary(InferenceError):
    """Our C library can't be had here; the message says why."""


def begin(folder: Path, isa: str = "") -> None:
    """Build the library in a thread, for `built` to give when it is asked for."""
    with _lock:
        if (folder, isa) in _begun:
            return
        future = _begun[folder, isa] = Future[Path]()
    threading.Thread(target=_fulfil, args=(future, folder, isa), name="building", daemon=True).start()


def built(folder: Path, isa: str = "") -> Path:
    """The library's file, built if need be, also where it is damaged; raises NoLibrary."""
    with _lock:
        future = _begun.pop((folder, isa), None)
    return future.result() if future else _built(folder, isa)


def _fulfil(future: Future[Path], folder: Path, isa: str) -> None:
    try:
        future.set_result(_built(folder, isa))
    except BaseException as error:  # noqa: BLE001 - raised where the library is asked for
        future.set_exception(error)


def _built(folder: Path, isa: str) -> Path:
    found = machine.c_compiler()
    key = _key(found, isa)
    entry = Entry(folder / f"cpu-step-{key}")
    entry.use()
    try:
        if manifest.state(entry.path, key) is not State.WHOLE:  # every byte is looked at: one that is cut would end the process
            if found is None:
                raise NoLibrary("no C compiler is installed")
            _build(found, entry, key, INSTRUCTIONS[isa])
        return entry.path / FILE
    except NoLibrary:
        raise
    except subprocess.TimeoutExpired:
        raise NoLibrary(f"the C library could not be built in {MOST_S:.0f} s; it is tried again at the next start") from None
    except (InferenceError, OSError, subprocess.SubprocessError) as error:
        raise NoLibrary(f"the C library can't be used ({error})") from error


def _build(found: str, entry: Entry, key: str, instructions: tuple[tuple[str, ...], ...]) -> None:
    with entry.locked(), entry.building(BUILT_BYTES) as work:
        state = manifest.state(entry.path, key)
        if state is State.WHOLE:  # another lane has built it meanwhile
            return
        if state is State.DAMAGED:
            log.warning("the C library %s is damaged and is built anew", entry.path)
        out = work / "library"
        out.mkdir()
        until = time.monotonic() + MOST_S
        for extra in instructions:
            done = _run([found, *FLAGS, *extra, *map(str, SOURCES), "-o", str(out / FILE), "-lm"], until, work)
            if done.returncode == 0 and (out / FILE).exists():
                manifest.seal(out, key)
                entry.put(out)
                return
        raise OSError(f"{found} could not compile {FOLDER.name}/*.c: {done.stderr.strip()[:300]}")


def _run(command: list[str], until: float, work: Path) -> subprocess.CompletedProcess[str]:
    """The compiler's end; with all that it started it is ended where that takes too long, or this process is gone. `work`: for its own files."""
    closes_with_us, held = os.pipe()
    environment = {**os.environ, "TMPDIR": str(work)}
    tied = [sys.executable, "-I", "-S", str(FOLDER / "tied.py"), *command]
    try:
        with subprocess.Popen(
            tied, stdin=closes_with_us, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", process_group=0, env=environment
        ) as process:
            try:
                _, said = process.communicate(timeout=max(0.0, until - time.monotonic()))
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, 9)
                raise
            return subprocess.CompletedProcess(command, process.returncode, "", said)
    finally:
        os.close(closes_with_us)
        os.close(held)


def _key(found: str | None, isa: str) -> str:
    sources = [path.read_text() for path in sorted(FOLDER.glob("*.[ch]"))]
    parts = [*sources, machine.cpu_flags(), platform.machine(), str(found), str(FLAGS), str(INSTRUCTIONS[isa])]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
