"""The lists of faults beside this file -> `Fault`s, and what is wrong with one: a text that no longer stands once in its file, a test that is gone.

In: `*.toml`. Out: frozen dataclasses, sentences. Runs nothing.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Fault:
    """`old` becomes `new` in `file`, and one of `tests` (pytest's arguments) must fail; `needs`: what the processor must have for its path to run."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    needs: str = ""

    def put_in(self, root: Path) -> str:
        """Put it into the tree at `root`; gives the file's text before."""
        path = root / self.file
        whole = path.read_text("utf-8")
        path.write_text(whole.replace(self.old, self.new), "utf-8")
        return whole


def listed() -> list[Fault]:
    """Every fault of every list, in order."""
    tables = [table for path in sorted(HERE.glob("*.toml")) for table in tomllib.loads(path.read_text("utf-8"))["fault"]]
    return [Fault(**table | {"tests": tuple(table["tests"])}) for table in tables]


def wrong_with(fault: Fault, root: Path = ROOT) -> str:
    """Why a fault can't be put in, or can't be seen; empty where it can."""
    path = root / fault.file
    times = path.read_text("utf-8").count(fault.old) if path.is_file() else 0
    if times != 1:
        return f"its text stands {times} times in {fault.file}, not once"
    if fault.old == fault.new:
        return "it changes nothing"
    return next((f"there is no test {test}" for test in fault.tests if not _is_there(root, test)), "" if fault.tests else "it names no test")


def _is_there(root: Path, test: str) -> bool:
    file, _, name = test.partition("::")
    path = root / file
    return path.exists() and (not name or f"def {name.partition('[')[0]}(" in path.read_text("utf-8"))
