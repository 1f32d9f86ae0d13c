"""The lists of faults stay true: each can be put in once, and what must see it is there (`make mutants` runs them)."""

from __future__ import annotations

import pytest

from tests.mutants.faults import Fault, listed, wrong_with


def test_each_fault_can_be_put_in_and_its_tests_are_there() -> None:
    assert {fault.what: why for fault in listed() if (why := wrong_with(fault))} == {}


def test_no_fault_is_listed_twice() -> None:
    places = [(fault.file, fault.old, fault.new) for fault in listed()]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"old": "two\n"}, "stands 2 times"), ({"old": "five"}, "stands 0 times"), ({"file": "b.py"}, "stands 0 times"), ({"new": "one"}, "changes nothing"),
        ({"tests": ("test_b.py",)}, "no test"), ({"tests": ("test_a.py::test_it_is_gone",)}, "no test"), ({"tests": ()}, "names no test"),
    ],
)  # fmt: skip
def test_a_fault_that_can_t_be_put_in_or_seen_is_told(changed, why, tmp_path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\ntwo\n")
    (tmp_path / "test_a.py").write_text("def test_it_is(given):\n    ...\n")
    good = {"what": "", "file": "a.py", "old": "one", "new": "1", "tests": ("test_a.py::test_it_is[3]", "test_a.py")}
    assert wrong_with(Fault(**good), tmp_path) == ""
    assert why in wrong_with(Fault(**good | changed), tmp_path)


def test_a_fault_is_put_in_with_its_new_text_and_the_old_one_comes_back(tmp_path) -> None:
    (tmp_path / "a.py").write_text("one two\n")
    assert Fault("", "a.py", "two", "three", ()).put_in(tmp_path) == "one two\n"
    assert (tmp_path / "a.py").read_text() == "one three\n"
