"""Puts each listed fault into a copy of the tree, by itself, and runs its tests there: one must fail (`make mutants`).

    python tests/mutants/run.py [WORD ...]      only faults whose file or description holds one of the words

A line a fault, at last how many were seen; exit 1 where one was not. The checkout is never touched.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from inference.host.machine import cpu_flags
from tests.mutants.faults import ROOT, Fault, listed, wrong_with

LIBRARIES = ("torch", "transformers.modeling_utils", "transformers.models.auto.modeling_auto", "bitsandbytes", "gradio", "pandas")  # most of a start
MOST_S = 600  # of one fault's tests: one that makes them hang is seen
# what says that the fault is no fault but a slip in its text
NO_CODE = re.compile(r"CalledProcessError|could not compile|SyntaxError|IndentationError|NameError|ImportError")
RAN = re.compile(r"\d passed")
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", re.MULTILINE)


def copy_to(place: Path) -> None:
    """The tree as git sees it, what is not committed yet included."""
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listing.decode().split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, place / name)


def outcome(place: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    """pytest's exit code in the copy, and all that it said; negative where a signal ended it, as one does after MOST_S."""
    said = place.parent / "said"
    if not (child := os.fork()):
        _run_here(place, tests, said)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said.read_text("utf-8", "replace")


def _run_here(place: Path, tests: tuple[str, ...], said: Path) -> NoReturn:
    """In a process that has all libraries, which is most of a test's start, and none of our modules yet."""
    code = 3
    try:
        os.setpgid(0, 0)
        signal.alarm(MOST_S)
        sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = True, "1"  # of two faults within a second the first one's would serve both
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1), os.dup2(out, 2)
        os.chdir(place)
        for name in [name for name in sys.modules if name.partition(".")[0] in ("inference", "tests")]:
            del sys.modules[name]
        sys.path[:] = [str(place), *(path for path in sys.path if Path(path) != ROOT)]
        code = int(pytest.main(["-x", "-v", "--tb=short", "-rfEs", "-p", "no:cacheprovider", "-o", "timeout=0", f"--basetemp={place.parent / 'made'}", *tests]))
        sys.stdout.flush(), sys.stderr.flush()
    finally:
        os._exit(code)


def verdict(place: Path, fault: Fault) -> tuple[bool, str]:
    """Whether it was seen, and by which test, or why not."""
    whole = fault.put_in(place)
    try:
        code, said = outcome(place, fault.tests)
    finally:
        (place / fault.file).write_text(whole, "utf-8")
    if NO_CODE.search(said):
        return False, f"it is no code any more:\n{said[-3000:]}"
    if code == 0:
        return False, "all of its tests pass" if RAN.search(said) else f"none of its tests ran:\n{said[-1000:]}"
    found = FAILED.search(said)
    return True, found[1] if found else f"pytest ended with {code}"


def main(words: list[str]) -> int:
    """Run the faults that hold one of `words`, or all."""
    chosen = [fault for fault in listed() if not words or any(word in f"{fault.file} {fault.what}" for word in words)]
    if wrong := [f"{fault.what}: {why}" for fault in chosen if (why := wrong_with(fault))]:
        print(*wrong, sep="\n")
        return 2
    run = [fault for fault in chosen if fault.needs in cpu_flags()]
    for name in LIBRARIES:
        importlib.import_module(name)
    began, unseen = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        place = Path(folder) / "tree"
        copy_to(place)
        code, said = outcome(place, tuple(dict.fromkeys(test for fault in run for test in fault.tests)))
        if code:
            print(f"Without any fault a test fails:\n{said[-3000:]}")
            return 2
        for fault in run:
            start = time.monotonic()
            seen, how = verdict(place, fault)
            unseen += not seen
            print(f"{'seen' if seen else 'NOT SEEN'}  {time.monotonic() - start:5.1f} s  {fault.file}: {fault.what} | {how}", flush=True)
    left = "" if len(run) == len(chosen) else f"; {len(chosen) - len(run)} are of paths that this processor can't run"
    print(f"{len(run) - unseen} of {len(run)} faults were seen in {time.monotonic() - began:.0f} s{left}.")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
