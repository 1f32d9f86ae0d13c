"""Another model for all lanes: never while one is in use, the processes before gone first, clean lanes after, and back by a cancel."""

import threading

import pytest

from inference.engine import change
from inference.engine.compare import compare
from inference.errors import InferenceError
from inference.events import Failed, Loading, Request
from inference.series.prompts import Prompt
from inference.series.series import Series
from inference.settings import Settings
from tests.support import fakes
from tests.support.changes import FIRST, OTHER, change_to, refused
from tests.support.fakes import FakeProcess, Stage, last, runs
from tests.support.until import until

# ---- the change


def test_the_old_processes_are_ended_and_the_kept_lane_alone_is_started_for_the_new_model(loaded):
    loaded.ask(mode="together")
    for lane in loaded.lanes.values():
        lane.ready()
        lane.begin()
        lane.finish()
    before = dict(loaded.lanes)
    loaded.engine.change_model(OTHER)
    assert all(process.closed for process in before.values())
    assert loaded.starts == ["auto:nf4", "cpu:fp32", "auto:nf4"] and loaded.started_with.model_id == OTHER
    assert [message["do"] for message in loaded.lanes["auto:nf4"].sent] == ["load"]
    assert (loaded.state("auto:nf4"), loaded.state("cpu:fp32")) == ("starting", "off")


def test_no_new_process_is_started_and_nothing_is_accepted_until_the_old_ones_are_gone(slow_end):
    assert slow_end.starts == ["auto:nf4"] and slow_end.state("auto:nf4") == "starting"
    for ask in (slow_end.ask, slow_end.engine.hold_model().__enter__):
        with pytest.raises(InferenceError, match=f"being changed to {OTHER}. Ask again"):
            ask()
    slow_end.let_go.set()
    until(lambda: slow_end.starts == ["auto:nf4"] * 2, what="the new process")
    assert slow_end.ask().runs


def test_old_processes_that_could_not_be_waited_for_do_not_keep_the_page_closed(loaded, monkeypatch):
    def fails(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(change, "end_all", fails)
    with pytest.raises(RuntimeError):
        loaded.engine.change_model(OTHER)
    assert loaded.starts == ["auto:nf4"] * 2 and loaded.ask().runs


def test_the_new_lanes_know_nothing_of_the_old_ones_deaths_faults_facts_and_lost_ways(loaded):
    loaded.lanes["auto:nf4"].emit(Loading("making ready: nf4", trying="nf4"))
    loaded.lanes["auto:nf4"].exit(-11)
    loaded.lanes["auto:nf4"].ready()
    loaded.lanes["auto:nf4"].exit(-9)
    assert loaded.started_with.fast_lost == ("nf4",)
    loaded.engine.change_model(OTHER)
    (lane, _) = loaded.engine.status()
    assert loaded.started_with.fast_lost == () and (lane.facts, lane.load, lane.hello, lane.reason) == (None,) * 4
    for _ in range(2):
        loaded.lanes["auto:nf4"].exit(1)
        assert loaded.state("auto:nf4") == "starting", "the deaths before don't count"
    loaded.lanes["auto:nf4"].ready()
    assert loaded.engine.status()[0].load.cold, "the first load of this model"


@pytest.mark.parametrize("said", ["hello", "loaded", "failed", "ended"])
def test_nothing_that_an_old_process_says_reaches_the_new_lanes(loaded, said):
    old = loaded.lanes["auto:nf4"]
    loaded.engine.change_model(OTHER)
    before = loaded.engine.status()
    {"hello": old.hello, "loaded": old.loaded, "failed": lambda: old.emit(Failed(None, "late")), "ended": lambda: old.exit(-9)}[said]()
    assert loaded.engine.status() == before and len(loaded.starts) == 2


def test_what_is_set_for_one_model_alone_is_not_the_next_one_s_and_comes_back_with_it():
    stage = Stage(first := Settings(model_id="you/tuned", cpu_model_id="you/tuned-merged", base_model_id="you/base"))
    change_to(stage)
    assert [stage.started_with.model_for(lane) for lane in ("cpu:nf4", "cpu:fp32")] == [OTHER] * 2 and not stage.started_with.base_model_id
    change_to(stage, "you/tuned")
    assert stage.started_with == first
    stage.engine.close()


def test_each_change_has_a_number_of_its_own_and_ends_when_the_kept_lane_is_loaded(loaded):
    assert (loaded.engine.model().number, loaded.engine.model().phase) == (0, "kept")
    loaded.engine.change_model(OTHER)
    model = loaded.engine.model()
    assert (model.name, model.number, model.phase, model.other) == (OTHER, 1, "loading", FIRST)
    loaded.lanes["auto:nf4"].ready()
    assert loaded.engine.model().phase == "kept"
    loaded.lanes["auto:nf4"].exit(-9)
    assert loaded.engine.model().phase == "kept", "a lane that dies later is no change"


def test_where_no_lane_is_kept_loaded_a_change_is_over_at_once():
    stage = Stage(Settings(lanes=("cpu:fp32",)))
    stage.engine.change_model(OTHER)
    assert stage.engine.model().phase == "kept" and stage.starts == []
    stage.engine.close()


def test_a_prompt_sent_while_the_new_model_loads_waits_for_it(loaded):
    loaded.engine.change_model(OTHER)
    four, _ = runs(loaded.ask())
    loaded.lanes["auto:nf4"].ready()
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].finish()
    assert last(loaded, four).text == "hello" and four.comparison.model_number == 1


def test_a_comparison_s_lanes_stay_those_that_answered_it(loaded):
    comparison = loaded.engine.submit(Request("hi"), ("auto:nf4",))
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].finish()
    answered = loaded.engine.statuses_of(comparison)
    loaded.engine.change_model(OTHER)
    assert loaded.engine.statuses_of(comparison) == answered and answered[0].facts and loaded.engine.status()[0].facts is None


# ---- refused while the model is in use


def test_it_is_refused_while_a_run_is_under_way_or_waits_and_done_after(loaded):
    comparison = loaded.ask(mode="in-turn")
    assert refused(loaded, r"2 runs under way or waiting")
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].finish()
    assert refused(loaded, r"1 run under way or waiting")
    loaded.engine.stop(comparison.runs["cpu:fp32"].id)
    loaded.engine.change_model(OTHER)
    assert loaded.engine.model().name == OTHER


def test_it_is_refused_while_another_change_is_made(slow_end):
    with pytest.raises(InferenceError, match=f"being changed to {OTHER}. Wait until it is loaded, or cancel"):
        slow_end.engine.change_model("you/third")
    slow_end.let_go.set()
    until(lambda: slow_end.engine.model().phase == "loading", what="the load")
    with pytest.raises(InferenceError, match="or cancel that"):
        slow_end.engine.change_model("you/third")
    assert slow_end.engine.model().name == OTHER


class Answering(FakeProcess):
    """Answers by itself whatever it is asked."""

    def send(self, **message) -> None:
        super().send(**message)
        if message["do"] == "generate":
            threading.Thread(target=lambda: (self.begin(), self.finish()), daemon=True).start()


@pytest.fixture
def answering(monkeypatch):
    monkeypatch.setattr(fakes, "FakeProcess", Answering)
    stage = Stage(("auto:nf4",))
    stage.lanes["auto:nf4"].ready()
    yield stage
    stage.engine.close()


def test_between_two_prompts_of_a_file_it_is_refused_and_after_them_done(answering):
    records = Series([Prompt(1, "one"), Prompt(2, "two")]).run(answering.engine, Request("x"))
    for _ in range(2):
        next(records)
        assert answering.state("auto:nf4") == "ready", "no run is under way"
        assert refused(answering, "a file of prompts, a comparison or a scoring goes on")
    assert list(records) == []
    change_to(answering)


def test_a_file_that_nobody_reads_on_holds_nothing(answering):
    records = Series([Prompt(1, "one"), Prompt(2, "two")]).run(answering.engine, Request("x"))
    next(records)
    records.close()
    change_to(answering)


def test_between_an_answer_and_its_scoring_it_is_refused(answering):
    tried = []
    compare(answering.engine, Request("x"), quality=lambda *_: tried.append(refused(answering, "a scoring goes on")))
    assert tried == [True]
    change_to(answering)


def test_what_was_asked_of_the_model_before_can_not_be_scored_by_the_next(loaded):
    comparison = loaded.engine.submit(Request("hi"), ("auto:nf4",))
    with loaded.engine.hold_model(comparison.model_number):
        pass
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].finish()
    change_to(loaded)
    with pytest.raises(InferenceError, match="changed after this comparison"), loaded.engine.hold_model(comparison.model_number):
        pass


def test_once_the_page_is_shut_down_it_is_refused_and_a_change_under_way_starts_nothing(slow_end):
    old = slow_end.lanes["auto:nf4"]
    closed = []
    old.close = lambda timeout_s=2.0: closed.append(old)
    slow_end.engine.close()
    assert closed == [old], "the process that was being ended is ended"
    slow_end.let_go.set()
    until(lambda: slow_end.engine.model().phase == "loading", what="the change's end")
    assert slow_end.starts == ["auto:nf4"]
    with pytest.raises(InferenceError, match="shutting down"):
        slow_end.ask()
