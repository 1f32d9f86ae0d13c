"""Deaths, refusals, slow readers and the end: what the engine promises when things go wrong."""

from dataclasses import replace

import pytest

from inference.engine.engine import Engine
from inference.engine.process import why_it_died
from inference.errors import DEVICE_LOST_CODE, KEPT, InferenceError
from inference.events import Done, Failed, Loaded, LoadFigures, Request, Text
from inference.settings import Settings
from tests.support.fake_lane import facts
from tests.support.fakes import FakeClock, FakeProcess, Stage, last, runs


def test_a_killed_lane_fails_its_run_keeps_the_text_and_the_other_lane_goes_on(loaded):
    four, full = runs(loaded.ask(mode="together"))
    old = loaded.lanes["auto:nf4"]
    old.begin()
    old.emit(Text(four.id, "half an ans", 3, 0.3))
    old.exit(-9)
    *_, text, event = loaded.drain(four)
    assert isinstance(event, Failed) and "signal 9" in event.message and text.delta == "half an ans"
    loaded.lanes["cpu:fp32"].ready()
    loaded.lanes["cpu:fp32"].begin()
    loaded.lanes["cpu:fp32"].finish()
    assert isinstance(last(loaded, full), Done)
    loaded.lanes["auto:nf4"].ready()
    four, _ = runs(loaded.ask(mode="together"))
    assert loaded.lanes["auto:nf4"].asked == [four.id]


def test_the_4bit_lane_is_restarted_at_once_and_the_fp32_lane_at_the_next_prompt(loaded):
    loaded.ask(mode="together")
    loaded.lanes["cpu:fp32"].exit(-9)
    assert loaded.starts == ["auto:nf4", "cpu:fp32"]
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].exit(1)
    assert loaded.starts == ["auto:nf4", "cpu:fp32", "auto:nf4"]
    loaded.lanes["auto:nf4"].ready()
    loaded.ask(mode="together")
    assert loaded.starts[-1] == "cpu:fp32"


def test_later_processes_of_all_lanes_get_the_commit_that_a_lane_has_had_of_the_model(loaded):
    """The branch may have moved when a lane starts anew: its answers would be another model's."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    four = loaded.lanes["auto:nf4"]
    asked = loaded.engine.settings.model_id
    assert loaded.started_with.pinned == ()
    four.emit(Loaded(replace(facts(four.lane), model_id="owner/name", revision=commit), LoadFigures(1.0)))
    four.exit(1)
    assert loaded.started_with.pin_of(asked) == f"owner/name@{commit}" and loaded.started_with.model_id == asked
    loaded.lanes["auto:nf4"].hello()
    loaded.lanes["auto:nf4"].emit(Loaded(replace(facts(four.lane), model_id="owner/name", revision=commit[::-1]), LoadFigures(1.0)))
    loaded.ask(mode="together")
    assert loaded.starts[-1] == "cpu:fp32" and loaded.started_with.pin_of(asked) == f"owner/name@{commit}", "the first holds"
    assert loaded.started_with.pin_of("another/model") == "another/model"


def test_a_lane_s_first_load_is_cold_and_the_one_after_its_death_is_not(loaded):
    def cold() -> bool:
        return next(lane.load.cold for lane in loaded.engine.status() if lane.key == "auto:nf4")

    assert cold()
    loaded.lanes["auto:nf4"].loaded()  # its cache has grown: still the same load
    assert cold()
    loaded.lanes["auto:nf4"].exit(-9)
    loaded.lanes["auto:nf4"].ready()
    assert not cold()


def test_after_three_deaths_a_lane_rests_for_a_minute_and_is_started_by_the_next_prompt_or_at_once_by_hand(stage):
    for _ in range(3):
        stage.lanes["auto:nf4"].exit(1)
    assert stage.state("auto:nf4") == "failed" and len(stage.starts) == 3
    four, _ = runs(stage.ask(mode="together"))
    assert "It ended 3 times in a row" in last(stage, four).message and stage.starts.count("auto:nf4") == 3
    stage.clock.now += 61
    four, _ = runs(stage.ask(mode="together"))
    assert stage.starts.count("auto:nf4") == 4
    stage.lanes["auto:nf4"].exit(1)
    assert isinstance(last(stage, four), Failed) and stage.state("auto:nf4") == "failed"
    four, _ = runs(stage.ask(mode="together"))
    assert "It ended 4 times in a row" in last(stage, four).message and stage.starts.count("auto:nf4") == 4
    stage.engine.retry("auto:nf4")
    assert stage.starts.count("auto:nf4") == 5 and stage.state("auto:nf4") == "starting"
    stage.lanes["auto:nf4"].ready()
    four, _ = runs(stage.ask(mode="together"))
    stage.lanes["auto:nf4"].begin()
    stage.lanes["auto:nf4"].finish()
    assert isinstance(last(stage, four), Done)


def test_a_refused_load_is_told_and_tried_again_at_the_next_prompt(loaded):
    _, full = runs(loaded.ask(mode="together"))
    lane = loaded.lanes["cpu:fp32"]
    lane.hello()
    lane.emit(Failed(None, "needs 15 GiB", True))
    assert last(loaded, full).message == "needs 15 GiB" and loaded.state("cpu:fp32") == "refused"
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].finish()
    _, full = runs(loaded.ask(mode="together"))
    assert lane.asked[-1] == full.id


def test_a_refused_lane_can_be_asked_to_load_again_in_its_own_process(loaded):
    loaded.lanes["auto:nf4"].emit(Failed(None, "needs 15 GiB", True))
    loaded.engine.retry("auto:nf4")
    assert loaded.lanes["auto:nf4"].sent[-1] == {"do": "load"} and loaded.starts == ["auto:nf4"] and loaded.state("auto:nf4") == "loading"


def test_a_lane_without_its_device_gives_its_reason():
    stage = Stage(("cuda:nf4", "cpu:fp32"))
    stage.lanes["cuda:nf4"].hello(available=False, reason="no CUDA device")
    run = stage.ask().runs["cuda:nf4"]
    assert last(stage, run).message == "no CUDA device"
    stage.engine.close()


def test_a_slow_reader_gets_joined_texts_and_nothing_is_lost(loaded):
    four, _ = runs(loaded.ask())
    loaded.drain(four)
    loaded.lanes["auto:nf4"].begin()
    for n in range(2000):
        loaded.lanes["auto:nf4"].emit(Text(four.id, f"{n} ", n + 1, n / 1000))
    events = loaded.drain(four)
    assert len(events) == 3 and "".join(event.delta for event in events[1:]).split() == [str(n) for n in range(2000)] and events[-1].n == 2000
    assert (events[1].n, events[1].t_s) == (1, 0.0), "the first token keeps its stamp"


def test_events_of_an_old_process_are_ignored(loaded):
    four, _ = runs(loaded.ask())
    old = loaded.lanes["auto:nf4"]
    old.exit(1)
    old.emit(Text(four.id, "ghost", 1, 0.1))
    events = loaded.drain(four)
    assert isinstance(events[-1], Failed) and not any(isinstance(event, Text) for event in events)


def test_bad_requests_and_unknown_lanes_are_refused_before_anything_runs(loaded):
    with pytest.raises(InferenceError, match="empty"):
        loaded.ask(prompt="  ")
    with pytest.raises(InferenceError, match="cuda:bf16"):
        loaded.engine.submit(Request("hi"), lanes=("cuda:bf16",))
    assert loaded.lanes["auto:nf4"].asked == []


def test_a_run_is_read_once_and_forgotten(loaded):
    four, _ = runs(loaded.ask())
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].finish()
    list(loaded.engine.events(four))
    with pytest.raises(InferenceError):
        next(loaded.engine.events(four))


def test_close_ends_runs_and_processes(loaded):
    four, full = runs(loaded.ask(mode="together"))
    loaded.engine.close()
    assert isinstance(last(loaded, four), Failed) and isinstance(last(loaded, full), Failed)
    assert all(process.closed for process in loaded.lanes.values())


def test_an_error_in_the_body_of_with_ends_the_lanes_and_the_runs_and_is_passed_on():
    started, asked = [], []

    def start(lane: str, settings: Settings) -> FakeProcess:
        started.append(FakeProcess(lane, FakeClock()))
        return started[-1]

    with pytest.raises(KeyError), Engine(Settings(), start) as engine:
        asked += engine.submit(Request("hi")).runs.values()
        raise KeyError("bug")
    assert started and all(process.closed for process in started) and all(run.ended for run in asked)
    with pytest.raises(InferenceError, match="shutting down"):
        engine.submit(Request("hi"))


@pytest.mark.parametrize("code", [-9, -11, DEVICE_LOST_CODE])
def test_no_text_is_said_to_be_kept_where_there_was_none(code, loaded):
    four, _ = runs(loaded.ask(mode="together"))
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].exit(code)
    message = last(loaded, four).message
    assert "text so far" not in message and message.endswith((" start it anew.", " for the trace.", " next prompt.")) and KEPT in why_it_died(code)
    assert "text so far" not in (loaded.engine.status()[0].reason or ""), "nor of the lane, which is no run"
