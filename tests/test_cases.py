"""The table of field cases in `tests/README.md`: every case stands there once, and every test that is named exists."""

from __future__ import annotations

import ast
import re
from functools import cache

from inference.host.child import ROOT

TESTS = ROOT / "tests"
ROWS = [line.strip("| ").split(" | ") for line in (TESTS / "README.md").read_text("utf-8").splitlines() if re.match(r"\| [BCDF]\d\d ", line)]
NAMED = [(row[0], name) for row in ROWS for name in re.findall(r"`([^`]+::[^`]+)`", " ".join(row))]
NOT_LISTED = {"B": {7, 15, 16, 18, 19, 20, 25, 26, 28, 31, 35, 36}, "C": {17, 18, 19, *range(30, 40)}}  # numbers that no case has


@cache
def names_in(file: str) -> set[str]:
    path = TESTS / file
    if not path.is_file():
        return set()
    return {node.name for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_test_that_is_named_exists():
    gone = [f"{case}: {name}" for case, name in NAMED if name.partition("::")[2] not in names_in(name.partition("::")[0])]
    assert len(NAMED) > 100 and not gone


def test_every_case_is_there_once_with_a_test_or_a_reason():
    cases = [row[0] for row in ROWS]
    wanted = [f"{letter}{n:02d}" for letter, last in (("B", 45), ("C", 55)) for n in range(1, last + 1) if n not in NOT_LISTED[letter]]
    assert [case for case in cases if case[0] in "BC"] == wanted
    assert all("::" in row[2] or len(row) > 3 for row in ROWS)
