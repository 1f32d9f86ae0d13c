"""Lanes that give no sign of life or do not get on: when that is told, when they are ended, and that slow work never is."""

from __future__ import annotations

import pytest

from inference.engine import silence
from inference.events import Failed, Loading, Text
from inference.life_events import Alive
from inference.settings import Settings
from tests.support.fakes import Stage, last, runs

HOUR = 3600


def passes(stage: Stage, seconds: float) -> None:
    """So much time, with a look each second."""
    for _ in range(round(seconds)):
        stage.clock.now += 1
        stage.engine.end_silent_lanes()


def quiet(stage: Stage, key: str = "auto:nf4"):
    return next(status.quiet for status in stage.engine.status() if status.key == key)


def loads(stage: Stage):
    stage.lanes["auto:nf4"].emit(Loading("reading weights", 1, 5, "weights"))
    return None, stage.lanes["auto:nf4"]


def starts(stage: Stage):
    return None, stage.lanes["auto:nf4"]


def reads_the_prompt(stage: Stage):
    stage.lanes["auto:nf4"].ready()
    run, _ = runs(stage.ask())
    stage.lanes["auto:nf4"].begin()
    return run, stage.lanes["auto:nf4"]


def writes(stage: Stage):
    run, lane = reads_the_prompt(stage)
    lane.emit(Text(run.id, "half an ans", 3, 0.3))
    return run, lane


PHASES = {"starting": starts, "loading": loads, "prefill": reads_the_prompt, "decode": writes}


@pytest.fixture(params=PHASES)
def at_work(request, stage):
    return stage, *PHASES[request.param](stage)


def test_a_frozen_lane_is_told_within_seconds_and_ended_and_started_anew(at_work):
    stage, run, lane = at_work
    lane.lives = False
    passes(stage, 7)
    assert quiet(stage).frozen and 5 <= quiet(stage).for_s <= 8 and not lane.killed
    passes(stage, silence.FROZEN_LOADING_S)
    assert lane.killed
    lane.exit(-9)
    assert stage.lanes["auto:nf4"] is not lane and stage.state("auto:nf4") == "starting" and quiet(stage) is None
    if run:
        end = last(stage, run)
        assert isinstance(end, Failed) and "no sign of life" in end.message and "memory" not in end.message


def test_a_lane_that_lives_and_does_not_get_on_is_told_and_ended_after_its_budget(at_work):
    stage, run, lane = at_work
    lane.steps = 7
    passes(stage, 20)
    assert not quiet(stage).frozen and quiet(stage).for_s >= silence.TELL_STILL_S and not lane.killed
    passes(stage, silence.STILL_LOADING_S + 5)
    assert lane.killed
    lane.exit(-9)
    assert stage.lanes["auto:nf4"] is not lane
    if run:
        assert "did not get on" in last(stage, run).message


def test_work_that_goes_on_is_never_ended_however_slow(at_work):
    stage, _, lane = at_work
    passes(stage, HOUR)
    assert not lane.killed and quiet(stage) is None and lane.pings > 100


def test_a_step_may_take_the_longer_the_larger_model_and_prompt(stage, monkeypatch):
    monkeypatch.setattr(silence, "SLOWEST_BYTES_S", 10)  # a fake lane has 600 bytes of weights
    monkeypatch.setattr(silence, "PROMPT_TOKENS", 3)
    _, lane = reads_the_prompt(stage)  # of three tokens
    lane.steps = 7
    passes(stage, 60 + 2 * 60 - 5)
    assert not lane.killed
    passes(stage, 10)
    assert lane.killed


def test_a_lane_that_says_something_is_not_asked_and_one_at_rest_seldom(loaded):
    lane = loaded.lanes["auto:nf4"]
    passes(loaded, 60)
    assert 2 <= lane.pings <= 5
    run, _ = runs(loaded.ask())
    lane.begin()
    before = lane.pings
    for n in range(60):
        passes(loaded, 1)
        lane.emit(Text(run.id, "word ", n + 1, 0.1))
    assert lane.pings == before


def test_a_lane_frozen_at_rest_is_started_anew_before_anybody_asks(loaded):
    lane = loaded.lanes["auto:nf4"]
    lane.lives = False
    passes(loaded, silence.ASK_AT_REST_S + silence.FROZEN_S + 3)
    assert lane.killed


def test_a_stop_ends_a_lane_that_is_frozen_in_its_load_and_the_next_process_answers_who_waits(loaded):
    lane = loaded.lanes["auto:nf4"]
    first, second = (runs(loaded.ask(mode="together"))[1] for _ in range(2))
    full = loaded.lanes["cpu:fp32"]
    full.lives = False
    passes(loaded, 4)
    loaded.engine.stop(first.id)
    assert first.ended, "whoever stops it does not wait"
    passes(loaded, 6)
    assert full.killed and not lane.killed
    full.exit(-9)
    fresh = loaded.lanes["cpu:fp32"]
    assert fresh is not full and not second.ended
    fresh.ready()
    fresh.begin()
    fresh.finish()
    assert last(loaded, second).finish_reason == "stop"


def test_a_lane_ended_because_it_did_not_stop_is_started_by_the_next_prompt_however_often(loaded):
    for count in (1, 2, 3, 4):
        _, run = runs(loaded.ask(mode="together"))
        full = loaded.lanes["cpu:fp32"]
        assert loaded.starts.count("cpu:fp32") == count
        full.lives = False
        passes(loaded, 4)
        loaded.engine.stop(run.id)
        passes(loaded, 17)  # it takes long to go, and is looked at again meanwhile
        assert full.killed
        full.exit(-9)
    for _ in range(3):
        loaded.ask(mode="together")
        loaded.lanes["cpu:fp32"].exit(1)
    assert loaded.state("cpu:fp32") == "failed", "its own deaths count as ever"


def test_a_load_that_lives_is_kept_after_a_stop(loaded):
    _, run = runs(loaded.ask(mode="together"))
    loaded.engine.stop(run.id)
    passes(loaded, 60)
    assert not loaded.lanes["cpu:fp32"].killed


def test_a_lane_that_freezes_in_each_load_stays_failed_with_the_reason(stage):
    for _ in range(3):
        lane = stage.lanes["auto:nf4"]
        lane.lives = False
        passes(stage, silence.FROZEN_LOADING_S + 4)
        lane.exit(-9)
    status = stage.engine.status()[0]
    assert status.state == "failed" and "no sign of life" in status.reason
    stage.engine.retry("auto:nf4")
    assert stage.lanes["auto:nf4"] is not lane


def test_a_lane_is_not_blamed_for_the_time_in_which_the_page_itself_stood_still(at_work):
    stage, _, lane = at_work
    lane.lives = False
    passes(stage, 3)
    stage.clock.now += HOUR
    passes(stage, 4)
    assert not lane.killed


def test_a_lane_that_was_to_stop_is_not_blamed_for_that_time_either(loaded):
    """A page that was suspended just after a Stop, and did not hear that the lane had stopped: the lane was ended, and loaded anew for minutes."""
    run, _ = runs(loaded.ask())
    lane = loaded.lanes["auto:nf4"]
    lane.begin()
    passes(loaded, 1)
    loaded.engine.stop(run.id)
    loaded.clock.now += HOUR
    passes(loaded, 2)
    assert not lane.killed
    passes(loaded, 5)
    assert lane.killed, "it has all its time again, and no more"


def test_the_patience_can_be_set():
    stage = Stage(Settings(lanes=("auto:nf4",), lane_patience_s=20))
    lane = stage.lanes["auto:nf4"]
    lane.lives = False
    passes(stage, 19)
    assert not lane.killed and quiet(stage).ended_after_s == 20
    passes(stage, 5)
    assert lane.killed
    stage.engine.close()


def test_whatever_comes_from_a_lane_is_a_sign_of_life(loaded):
    lane = loaded.lanes["auto:nf4"]
    lane.lives = False
    passes(loaded, 22)
    assert quiet(loaded).frozen
    lane.emit(Alive(1))
    passes(loaded, 1)
    assert quiet(loaded) is None
