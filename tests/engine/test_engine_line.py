"""The line before the lanes: what is done for a token, who is told what while waiting, and visitors whose reader comes late."""

import pytest

from inference.engine.turns import Turns
from inference.events import Done, Loading, Queued, Request, Text
from tests.support.fakes import Stage, last, runs

MANY = 20  # more than the page streams at once on a lane


def test_a_token_and_a_step_of_a_load_do_not_walk_the_line(loaded, monkeypatch):
    walks, tell = [], Turns.tell
    monkeypatch.setattr(Turns, "tell", lambda *arguments: walks.append(1) or tell(*arguments))
    four, _ = runs(loaded.ask(mode="together"))
    loaded.ask(mode="together")
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["cpu:fp32"].emit(Loading("reading weights", 1, 9))
    before = len(walks)
    for n in range(50):
        loaded.lanes["auto:nf4"].emit(Text(four.id, "x", n + 1, n / 500))
        loaded.lanes["cpu:fp32"].emit(Loading("reading weights", n, 50))
    assert len(walks) == before
    loaded.lanes["auto:nf4"].finish()
    assert len(walks) == before + 1


# ---- late readers


def test_however_many_visitors_a_slow_lane_has_each_waits_with_its_place_and_is_answered():
    stage = Stage(("cuda:nf4", "cpu:fp32"))
    stage.lanes["cuda:nf4"].ready()
    visitors = [stage.ask(mode="together") for _ in range(MANY)]
    slow, fast = stage.lanes["cpu:fp32"], stage.lanes["cuda:nf4"]
    slow.ready()
    for number, visitor in enumerate(visitors):
        run = visitor.runs["cpu:fp32"]
        assert slow.asked[-1] == run.id, "in the order they came"
        events = stage.engine.events(run)  # its reader comes when its turn does
        next(events)
        slow.begin()
        stage.clock.now += 60
        stage.engine.end_unread_runs()
        assert not any(later.runs["cpu:fp32"].ended for later in visitors[number:])
        slow.finish()
        *before, done = events
        assert done.finish_reason == "stop"
        assert number < 2 or Queued(run.id, 1, "lane") in before
    assert fast.asked  # and what nobody read there has not been waited for
    stage.engine.close()


def test_a_run_that_nobody_reads_when_its_turn_comes_is_stopped_then(loaded):
    loaded.ask(mode="together")
    unread, _ = runs(loaded.ask(mode="together"))
    lane = loaded.lanes["auto:nf4"]
    lane.begin()
    loaded.clock.now += 60
    loaded.engine.end_unread_runs()
    assert not unread.ended, "it was in nobody's way"
    lane.finish()
    assert lane.asked[-1] == unread.id
    loaded.clock.now += 10
    loaded.engine.end_unread_runs()
    assert {"do": "stop", "run_id": unread.id} not in lane.sent
    loaded.clock.now += 6
    loaded.engine.end_unread_runs()
    assert {"do": "stop", "run_id": unread.id} in lane.sent


def test_a_run_that_ended_before_its_reader_came_is_read_to_its_end(loaded):
    four, _ = runs(loaded.ask())
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].finish()
    loaded.clock.now += 1000
    loaded.engine.end_unread_runs()
    assert isinstance(list(loaded.engine.events(four))[-1], Done)


# ---- what a run is told while it waits


def test_who_comes_after_a_run_that_waits_for_its_turn_does_not_begin_before_it(loaded):
    four, full = loaded.lanes["auto:nf4"], "cpu:fp32"
    loaded.engine.submit(Request("first"), ("auto:nf4",), mode="together")
    alone = loaded.engine.submit(Request("alone"), ("auto:nf4",), mode="in-turn")
    loaded.engine.submit(Request("last"), (full,), mode="together")
    assert full not in loaded.starts, "its lane is free, and one that must have the machine to itself is before it"
    four.begin(), four.finish()
    assert four.asked[-1] == alone.runs["auto:nf4"].id and full not in loaded.starts
    four.begin(), four.finish()
    assert full in loaded.starts


def test_a_run_that_waits_for_a_turn_is_not_told_of_a_load_that_is_not_its_own(loaded):
    loaded.ask(mode="in-turn")
    waiting, waiting_full = runs(loaded.ask(mode="in-turn"))
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].finish()
    loaded.drain(waiting), loaded.drain(waiting_full)
    loaded.lanes["cpu:fp32"].hello()
    loaded.lanes["cpu:fp32"].emit(Loading("warming up"))
    assert not any(isinstance(event, Loading) for run in (waiting, waiting_full) for event in loaded.drain(run))


def test_only_the_next_in_line_is_told_of_the_load_and_the_others_of_the_visitor_before_them(stage):
    first, second = (stage.ask(mode="together").runs["auto:nf4"] for _ in range(2))
    assert stage.drain(first) == [Queued(first.id, 0, "load"), Loading("starting its process")]
    stage.lanes["auto:nf4"].emit(Loading("importing libraries"))
    stage.lanes["auto:nf4"].hello()
    stage.lanes["auto:nf4"].emit(Loading("reading weights"))
    assert stage.drain(first) == [Loading("importing libraries"), Loading("reading weights")]
    assert stage.drain(second) == [Queued(second.id, 1, "lane")]


def test_a_run_hears_again_what_it_waits_for_when_that_changes(stage):
    first, second = (stage.ask(mode="together").runs["auto:nf4"] for _ in range(2))
    stage.lanes["auto:nf4"].ready()
    stage.lanes["auto:nf4"].begin()
    stage.lanes["auto:nf4"].exit(1)
    assert stage.drain(second)[-2:] == [Queued(second.id, 0, "load"), Loading("starting its process")]
    stage.lanes["auto:nf4"].emit(Loading("reading weights"))
    assert stage.drain(second) == [Loading("reading weights")] and first.ended


@pytest.mark.parametrize("mode", ["together", "in-turn"])
def test_a_run_whose_lane_is_being_started_is_told_so_and_of_each_step_before_hello(loaded, mode):
    _, full = runs(loaded.ask(mode=mode))
    if mode == "in-turn":
        loaded.lanes["auto:nf4"].begin()
        loaded.lanes["auto:nf4"].finish()
    assert loaded.drain(full)[-1] == Loading("starting its process") and loaded.state("cpu:fp32") == "starting"
    loaded.lanes["cpu:fp32"].emit(Loading("importing libraries"))
    assert loaded.drain(full) == [Loading("importing libraries")] and loaded.state("cpu:fp32") == "loading"
    loaded.lanes["cpu:fp32"].ready()
    loaded.lanes["cpu:fp32"].begin()
    loaded.lanes["cpu:fp32"].finish()
    assert last(loaded, full).finish_reason == "stop"
