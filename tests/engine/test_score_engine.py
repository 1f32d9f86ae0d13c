"""Scores in the engine's queue, on fake processes: their turn, their end, stops, and lanes that fail or die."""

from inference.events import Done, Failed
from inference.score_events import Scored, ScoreRequest
from tests.support.fakes import Stage

REQUEST = ScoreRequest((1, 2, 3, 4), 1, 4)


def ready_stage() -> Stage:
    stage = Stage(("cpu:nf4", "cpu:fp32"))
    stage.lanes["cpu:nf4"].ready()
    return stage


def submit(stage, lane):
    return next(iter(stage.engine.submit(REQUEST, (lane,), "in-turn").runs.values()))


def scores(process) -> list:
    return [message for message in process.sent if message["do"] == "score"]


def test_a_score_reaches_the_lane_and_ends_with_its_figures():
    stage = ready_stage()
    run = submit(stage, "cpu:nf4")
    message = scores(stage.lanes["cpu:nf4"])[0]
    assert message["run_id"] == run.id and message["request"]["ids"] == (1, 2, 3, 4)
    assert stage.state("cpu:nf4") == "busy"
    stage.lanes["cpu:nf4"].emit(Scored(run.id, (2, 3, 4)))
    assert stage.drain(run)[-1] == Scored(run.id, (2, 3, 4)) and run.ended and stage.state("cpu:nf4") == "ready"


def test_a_score_loads_a_lane_that_is_off():
    stage = ready_stage()
    run = submit(stage, "cpu:fp32")
    process = stage.lanes["cpu:fp32"]
    process.ready()
    assert scores(process) and not run.ended
    process.emit(Scored(run.id, (2, 3, 4)))
    assert stage.state("cpu:fp32") == "ready"


def test_a_score_waits_for_a_comparison_that_is_measured_and_the_next_one_for_it():
    stage = ready_stage()
    stage.ask("in-turn")
    four = stage.lanes["cpu:nf4"]
    run = submit(stage, "cpu:nf4")
    later = stage.ask("in-turn")
    four.begin()
    assert not scores(four)
    four.finish()
    full = stage.lanes["cpu:fp32"]
    full.ready()
    full.begin()
    assert not scores(four), "the comparison's second lane has the machine"
    full.finish()
    assert scores(four) and len(four.asked) == 1
    four.emit(Scored(run.id, ()))
    assert four.asked[-1] == later.runs["cpu:nf4"].id


def test_a_stopped_score_ends_at_once_for_its_reader_and_the_lane_is_free_after():
    stage = ready_stage()
    run = submit(stage, "cpu:nf4")
    stage.engine.stop(run.id)
    assert isinstance(stage.drain(run)[-1], Done)
    stage.lanes["cpu:nf4"].emit(Failed(run.id, "The scoring was stopped."))
    assert stage.state("cpu:nf4") == "ready" and submit(stage, "cpu:nf4") and len(scores(stage.lanes["cpu:nf4"])) == 2


def test_a_lane_that_dies_while_it_scores_fails_the_score():
    stage = ready_stage()
    run = submit(stage, "cpu:nf4")
    stage.lanes["cpu:nf4"].exit(-9)
    last = stage.drain(run)[-1]
    assert isinstance(last, Failed) and "killed" in last.message
