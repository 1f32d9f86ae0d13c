"""Faults by phase, put into a scripted lane's process: what is said, that the next prompt is answered, that the other lane goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inference.engine import process, silence, watch
from inference.engine.compare import compare, follow
from inference.engine.engine import Engine
from inference.engine.runs import Run
from inference.events import Failed, Request
from inference.record.verdict import verdict_text
from inference.score_events import ScoreRequest
from inference.settings import Settings
from tests.support.page_fixtures import start_fake_lane
from tests.support.until import until

FAULTY, OTHER = "cpu:nf4", "cpu:fp32"
BUDGET_S = 0.3


class Lanes:
    """An engine over two scripted lanes, of which the first has the faults."""

    def __init__(self, file: Path) -> None:
        self.file, self.readers = file, []  # a reader that is let go would stop its run
        self.script()
        self.engine = Engine(Settings(lanes=(FAULTY, OTHER)), lambda lane, settings: start_fake_lane(lane, settings, FAKE_LANE_FILE=str(file)))
        self.engine.start()

    def script(self, **script: object) -> None:
        self.file.with_suffix(".new").write_text(json.dumps({FAULTY: script, "*": {"token_s": 0.001, "load_s": 0}}))
        self.file.with_suffix(".new").replace(self.file)

    def status(self):
        return self.engine.status()[0]

    def pid(self) -> int:
        return self.engine.pids().get(FAULTY, 0)

    def ask(self, lane: str = FAULTY, request=None) -> Run:
        return self.engine.submit(request or Request("hi"), (lane,), "together").runs[lane]

    def end(self, run: Run) -> str:
        """How a run ends: "done", or the sentence of its fault."""
        last = [event for event in self.engine.events(run) if event is not None][-1]
        return last.message if isinstance(last, Failed) else "done"

    def anew(self, **script: object) -> Run:
        """A new process of the faulty lane with that script, and a run that waits for it."""
        self.script(**script)
        before = self.pid()
        os.kill(before, signal.SIGKILL)
        until(lambda: self.pid() not in (0, before))
        return self.ask()


def at(lanes: Lanes) -> str:
    progress = lanes.status().progress
    return progress.stage if progress else ""


def starting(lanes: Lanes) -> Run:
    run = lanes.anew(imports_s=60)
    until(lambda: at(lanes) == "importing libraries")
    return run


def loading(lanes: Lanes) -> Run:
    run = lanes.anew(stands="load")
    until(lambda: at(lanes) == "reading weights")
    return run


def in_prefill(lanes: Lanes) -> Run:
    lanes.script(stands=1)
    run = lanes.ask()
    until(lambda: run.began)
    return run


def in_decode(lanes: Lanes) -> Run:
    lanes.script(stands=3)
    run = lanes.ask()
    seen = follow(lanes.engine, run)
    next(progress for progress in seen if progress.n == 2)
    run.read_by_someone = False  # by this test; its events from here on are read for its end
    lanes.readers.append(seen)
    return run


def scoring(lanes: Lanes) -> Run:
    lanes.script(stands="score")
    run = lanes.ask(request=ScoreRequest((1, 2, 3), 1, 3))
    until(lambda: lanes.status().state == "busy")
    return run


PHASES: dict[str, Callable[[Lanes], Run]] = {"starting": starting, "loading": loading, "prefill": in_prefill, "decode": in_decode, "scoring": scoring}
FAULTS = {
    "killed": (signal.SIGKILL, "killed (signal 9)"),
    "crashed": (signal.SIGSEGV, "crashed (signal 11)"),
    "frozen": (signal.SIGSTOP, "no sign of life"),
    "stands": (None, "did not get on"),
}
BUDGETS = {"frozen": "_frozen_s", "stands": "_most_still_s"}
TRIED = [(phase, fault) for phase in PHASES for fault in FAULTS if fault != "crashed" or phase == "decode"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Lanes]:
    lanes = Lanes(tmp_path_factory.mktemp("faults") / "script.json")
    yield lanes
    lanes.engine.close()


@pytest.fixture
def lanes(shared, monkeypatch) -> Lanes:
    shared.script()
    monkeypatch.setattr(watch, "LOOK_S", 0.02)
    until(lambda: shared.status().state == "ready", what="a lane at rest")
    return shared


@pytest.fixture
def impatient(lanes, monkeypatch) -> Callable[[int, str], None]:
    """That process is told of at once, and has little time once it was told of; all others have what they usually have, on however slow a machine."""

    def begin(pid: int, fault: str) -> None:
        for name in ("ASK_S", "TELL_FROZEN_S", "TELL_STILL_S"):
            monkeypatch.setattr(silence, name, 0.05)
        until(lambda: (quiet := lanes.status().quiet) and quiet.frozen == (fault == "frozen"), what="what its card is to say")
        name = BUDGETS[fault]
        own = getattr(silence.Silence, name)
        monkeypatch.setattr(silence.Silence, name, lambda self, lane: BUDGET_S if lane.key == FAULTY and lanes.pid() == pid else own(self, lane))

    return begin


@pytest.mark.parametrize(("phase", "fault"), TRIED)
def test_a_fault_is_told_the_other_lane_goes_on_and_the_next_prompt_is_answered(lanes, impatient, phase, fault):
    run = PHASES[phase](lanes)
    number, words = FAULTS[fault]
    struck, told = lanes.pid(), []
    if phase in ("starting", "loading"):
        lanes.script()  # for the next process, which may start at any time from here on and would take 60 s to import, too
    if number:
        os.kill(struck, number)
    aside = threading.Thread(target=lambda: told.append(lanes.end(lanes.ask(OTHER))))
    aside.start()
    if fault in BUDGETS:
        impatient(struck, fault)
    lanes.script()
    until(lambda: lanes.pid() not in (0, struck), what="a new process")
    end = lanes.end(run)
    assert end == "done" if phase in ("starting", "loading") else words in end, "who waits for a load is answered by the next process"
    assert lanes.end(lanes.ask()) == "done"
    aside.join(10)
    assert told == ["done"] and not os.path.exists(f"/proc/{struck}")


@pytest.mark.parametrize(("script", "words"), [({"noise_at": 3}, "done"), ({"close_at": 3}, "signal 9"), ({"fail_at": 3}, "failed here")])
def test_what_a_lane_writes_that_is_no_event_is_passed_over_and_one_that_can_say_no_more_is_ended(lanes, monkeypatch, script, words):
    monkeypatch.setattr(process, "ENDING_S", 0.05)
    lanes.script(**script)
    run = lanes.ask()
    assert words in lanes.end(run)
    lanes.script()
    assert lanes.end(lanes.ask()) == "done"


@pytest.mark.parametrize("phase", ["prefill", "decode", "scoring"])
def test_a_stop_ends_a_frozen_run_within_its_patience(lanes, monkeypatch, phase):
    run = PHASES[phase](lanes)
    struck = lanes.pid()
    os.kill(struck, signal.SIGSTOP)
    monkeypatch.setattr(silence, "STOP_PATIENCE_S", 0.1)
    lanes.engine.stop(run.id)
    assert lanes.end(run) == "done"
    lanes.script()
    until(lambda: lanes.pid() not in (0, struck), what="a new process")
    assert lanes.end(lanes.ask()) == "done"


def test_a_lane_that_died_in_its_last_repeat_is_what_it_was_in_those_that_count(lanes):
    record = compare(lanes.engine, Request("hi"), repeats=2, keep=lambda _: lanes.file.write_text(json.dumps({OTHER: {"die_at": 2}})))
    lane = record.lanes[OTHER]  # which is not started anew before it is asked again
    assert lane.n == 1 and len(lane.runs) == 2 and (lane.precision, lane.device, lane.weights_bytes) == ("FP32", "cpu", 4000) and lane.load
    assert "unknown" not in verdict_text(record) and "differ at once" not in verdict_text(record)
