"""When a Space runs what was uploaded: a stage of before the upload is no answer, whatever the Hub says of its commit; on a clock of the test's own."""

from __future__ import annotations

import pytest

from inference.errors import InferenceError
from inference.host.hardware import from_file
from inference.space import watch
from inference.space.asked import Asked
from inference.space.hub import State

NEW, OLD = "new", "old"
ASKED = Asked("you/demo", from_file().named("t4-small"), "menu", {"MODEL_ID": "menu"}, budget_s=600)


class Told:
    """A Hub that tells stages, each with the commit that it is of, one at every question; the last for ever."""

    def __init__(self, *stages: tuple[str, str | None], hardware: str = "t4-small") -> None:
        self.left, self.hardware, self.asked = list(stages), hardware, 0

    def state(self) -> State:
        self.asked += 1
        stage, commit = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return State(stage, self.hardware, "t4-small", commit, "")

    def last_lines(self, build: bool) -> list[str]:
        return []


def waited(told: Told, before: str) -> float:
    """Seconds until it ran."""
    now = [0.0]
    watch.until_it_runs(told, ASKED, NEW, before, lambda words: None, watch.Clock(lambda: now[0], lambda seconds: now.__setitem__(0, now[0] + seconds)))
    return now[0]


@pytest.mark.parametrize(
    ("before", "stages", "questions"),
    [
        ("RUNNING", [("RUNNING", OLD)] * 20 + [("RUNNING_BUILDING", OLD), ("RUNNING", NEW)], 22),
        ("RUNNING", [("RUNNING", None), ("RUNNING_BUILDING", None), ("RUNNING", None)], 3),
        ("RUNNING", [("RUNNING", OLD), ("BUILDING", OLD), ("RUNNING", "not a commit")], 3),
        ("BUILD_ERROR", [("BUILD_ERROR", OLD), ("BUILDING", NEW), ("RUNNING", NEW)], 3),
        ("BUILDING", [("BUILDING", OLD), ("RUNNING", OLD), ("RUNNING_BUILDING", OLD), ("RUNNING", NEW)], 4),
        ("NO_APP_FILE", [("NO_APP_FILE", None), ("BUILDING", None), ("RUNNING", None)], 3),
        ("RUNNING", [("RUNNING", NEW)], 1),
        ("", [("RUNNING", OLD)], 1),
        ("RUNNING", [("RUNNING", None)], 7),
    ],
)  # fmt: skip
def test_it_runs_once_the_new_one_runs(before, stages, questions):
    told = Told(*stages)
    assert waited(told, before) == (questions - 1) * watch.POLL_S and told.asked == questions


@pytest.mark.parametrize(
    ("before", "stages"),
    [
        ("RUNNING", [("RUNNING", OLD), ("CONFIG_ERROR", OLD)]),
        ("NO_APP_FILE", [("BUILDING", NEW), ("BUILD_ERROR", NEW)]),
        ("BUILD_ERROR", [("BUILD_ERROR", NEW)]),
        ("PAUSED", [("APP_STARTING", None), ("PAUSED", None)]),
    ],
)
def test_a_failure_of_the_new_one_is_told_at_once(before, stages):
    told = Told(*stages)
    with pytest.raises(InferenceError, match=rf"The Space .* \({stages[-1][0]}\)"):
        waited(told, before)
    assert told.asked == len(stages)


def test_on_other_hardware_than_was_asked_for_it_does_not_run_yet():
    with pytest.raises(InferenceError, match=r"does not run after 10 min 00 s \(its stage: RUNNING\)"):
        waited(Told(("RUNNING", NEW), hardware="cpu-basic"), "BUILDING")
