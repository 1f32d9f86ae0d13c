"""A lane that can't be loaded or started: one attempt answers all who waited for it, and a later prompt tries again."""

import pytest

from inference.errors import DEVICE_LOST_CODE
from inference.events import Done, Failed, Loading
from tests.support.fakes import Stage, last, runs

EIGHT = 8


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("mode", ["together", "in-turn"])
def test_a_failed_load_answers_all_who_waited_and_the_next_prompt_causes_another(loaded, mode, refused):
    waiting = [loaded.ask(mode=mode).runs["cpu:fp32"] for _ in range(EIGHT)]
    four = loaded.lanes["auto:nf4"]
    while "cpu:fp32" not in loaded.lanes:  # in turn, the first visitor's 4-bit run comes before
        four.begin()
        four.finish()
    full = loaded.lanes["cpu:fp32"]
    full.hello()
    full.emit(Failed(None, "The weights are cut short.", refused))
    assert [last(loaded, run).message for run in waiting] == ["The weights are cut short."] * EIGHT
    assert len(full.asked) == 1, "one load"
    while loaded.state("auto:nf4") == "busy":  # the other lane's answers go on
        four.begin()
        four.finish()
    later = loaded.ask(mode="together").runs["cpu:fp32"]
    assert full.asked[-1] == later.id and loaded.state("cpu:fp32") == "loading"


def test_a_lane_that_dies_while_it_loads_answers_all_who_waited(loaded):
    waiting = [loaded.ask(mode="together").runs["cpu:fp32"] for _ in range(EIGHT)]
    loaded.lanes["cpu:fp32"].exit(-9)
    assert all("signal 9" in last(loaded, run).message for run in waiting) and loaded.starts.count("cpu:fp32") == 1
    loaded.ask(mode="together")
    assert loaded.starts.count("cpu:fp32") == 2


def test_a_lane_that_dies_in_an_answer_fails_that_one_and_answers_the_next(loaded):
    first, second = (loaded.ask(mode="together").runs["cpu:fp32"] for _ in range(2))
    loaded.lanes["cpu:fp32"].ready()
    loaded.lanes["cpu:fp32"].begin()
    loaded.lanes["cpu:fp32"].exit(1)
    assert isinstance(last(loaded, first), Failed) and not second.ended
    assert loaded.lanes["cpu:fp32"].asked == [second.id]


def test_those_who_wait_for_a_4bit_lane_that_dies_at_its_start_wait_for_its_next_process(stage):
    four, _ = runs(stage.ask(mode="together"))
    stage.lanes["auto:nf4"].exit(1)
    assert not four.ended
    stage.lanes["auto:nf4"].ready()
    stage.lanes["auto:nf4"].begin()
    stage.lanes["auto:nf4"].finish()
    assert isinstance(last(stage, four), Done)


# ---- a faster way that takes its process down


def test_a_lane_that_dies_in_trying_a_faster_way_answers_all_without_it(loaded):
    first, second = (loaded.ask(mode="together").runs["cpu:fp32"] for _ in range(2))
    loaded.lanes["cpu:fp32"].emit(Loading("making ready: products", trying="products"))
    loaded.lanes["cpu:fp32"].exit(-4)
    assert loaded.started_with.fast_lost == ("products",) and not first.ended and not second.ended
    for run in (first, second):
        assert loaded.lanes["cpu:fp32"].asked[-1] == run.id
        loaded.lanes["cpu:fp32"].ready()
        loaded.lanes["cpu:fp32"].begin()
        loaded.lanes["cpu:fp32"].finish()
        assert isinstance(last(loaded, run), Done)


def test_a_4bit_lane_is_started_anew_without_the_way_that_ended_it_and_without_those_before(stage):
    for way in ("capture", "nf4"):
        stage.lanes["auto:nf4"].emit(Loading("reading weights"))
        stage.lanes["auto:nf4"].emit(Loading(f"making ready: {way}", trying=way))
        stage.lanes["auto:nf4"].exit(-11)
    assert stage.started_with.fast_lost == ("capture", "nf4")


def test_a_lane_that_dies_at_something_else_after_a_faster_way_keeps_that_way(stage):
    stage.lanes["auto:nf4"].emit(Loading("making ready: nf4", trying="nf4"))
    stage.lanes["auto:nf4"].emit(Loading("warming up"))
    stage.lanes["auto:nf4"].exit(-9)
    assert stage.started_with.fast_lost == ()


@pytest.mark.parametrize(("code", "lost"), [(DEVICE_LOST_CODE, ("cuda-graph",)), (-11, ("cuda-graph",)), (-9, ()), (1, ())])
def test_the_second_fault_in_one_paths_runs_has_the_next_process_do_without_it(code, lost):
    stage = Stage(("cuda:nf4",))
    for left_out in ((), lost):
        stage.lanes["cuda:nf4"].ready()
        run = stage.ask().runs["cuda:nf4"]
        stage.lanes["cuda:nf4"].begin(path="cuda-graph")
        stage.lanes["cuda:nf4"].exit(code)
        assert isinstance(last(stage, run), Failed) and stage.started_with.fast_lost == left_out and stage.state("cuda:nf4") == "starting"
    stage.engine.close()


def test_a_fault_in_an_eager_run_blames_no_way():
    stage = Stage(("cuda:nf4",))
    for _ in range(2):
        stage.lanes["cuda:nf4"].ready()
        stage.ask()
        stage.lanes["cuda:nf4"].begin(path="eager")
        stage.lanes["cuda:nf4"].exit(DEVICE_LOST_CODE)
    assert stage.started_with.fast_lost == ()
    stage.engine.close()


def test_a_run_stopped_while_its_lane_dies_in_a_faster_way_is_not_begun_again(loaded):
    run = loaded.ask(mode="together").runs["cpu:fp32"]
    loaded.lanes["cpu:fp32"].emit(Loading("making ready: products", trying="products"))
    loaded.engine.stop(run.id)
    loaded.lanes["cpu:fp32"].exit(-4)
    assert last(loaded, run).finish_reason == "stopped" and loaded.starts.count("cpu:fp32") == 1


# ---- a process that can't be started


def test_a_process_that_cannot_be_started_is_a_sentence_and_a_failed_lane_and_a_later_prompt_tries_again(loaded):
    loaded.no_start = OSError(12, "Cannot allocate memory")
    four, full = runs(loaded.ask(mode="in-turn"))
    behind = loaded.ask(mode="in-turn").runs["cpu:fp32"]
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].finish()
    assert "Cannot allocate memory" in last(loaded, full).message and "Cannot allocate memory" in last(loaded, behind).message
    assert loaded.state("cpu:fp32") == "failed" and isinstance(last(loaded, four), Done)
    loaded.no_start = None
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].finish()
    later = loaded.ask(mode="together").runs["cpu:fp32"]
    assert loaded.lanes["cpu:fp32"].asked == [later.id] and loaded.state("cpu:fp32") == "starting"


def test_a_4bit_lane_that_cannot_be_started_anew_is_failed_and_can_be_retried(loaded):
    loaded.no_start = OSError(11, "Resource temporarily unavailable")
    loaded.lanes["auto:nf4"].exit(-9)
    assert loaded.state("auto:nf4") == "failed"
    loaded.no_start = None
    loaded.engine.retry("auto:nf4")
    loaded.lanes["auto:nf4"].ready()
    assert loaded.state("auto:nf4") == "ready"


def test_a_retry_of_a_lane_whose_device_is_not_there_changes_nothing():
    stage = Stage(("cuda:nf4", "cpu:fp32"))
    stage.lanes["cuda:nf4"].hello(available=False, reason="no CUDA device")
    stage.engine.retry("cuda:nf4")
    assert stage.state("cuda:nf4") == "failed" and stage.starts == ["cuda:nf4"]
    assert last(stage, stage.ask().runs["cuda:nf4"]).message == "no CUDA device"
    stage.engine.close()
