"""Order, waits, stops and deaths: what the engine promises, on fake processes and a fake clock."""

from inference.events import Failed, Loading, Queued, Text
from inference.progress import Progress
from tests.support.fakes import Stage, last, runs


def test_only_the_4bit_lane_is_started_and_told_to_load(stage):
    assert stage.starts == ["auto:nf4"]
    assert [m["do"] for m in stage.lanes["auto:nf4"].sent] == ["load"]


def test_the_fp32_lane_is_started_once_however_many_ask(loaded):
    for _ in range(5):
        loaded.ask(mode="together")
    assert loaded.starts.count("cpu:fp32") == 1


def test_lanes_on_one_device_take_turns_and_say_so(loaded):
    four, full = runs(comparison := loaded.ask())
    assert comparison.mode == "in-turn"
    assert loaded.lanes["auto:nf4"].asked == [four.id] and "cpu:fp32" not in loaded.lanes
    assert loaded.drain(full)[-1] == Queued(full.id, 0, "turn")
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].finish()
    assert loaded.lanes["cpu:fp32"].asked == [full.id]


def test_lanes_on_two_devices_run_together():
    stage = Stage(("cuda:nf4", "cpu:fp32"))
    stage.lanes["cuda:nf4"].ready()
    comparison = stage.ask()
    assert comparison.mode == "together"
    assert stage.lanes["cuda:nf4"].asked and stage.lanes["cpu:fp32"].asked
    stage.engine.close()


def test_a_run_in_turn_waits_for_other_visitors_and_they_for_it(loaded):
    loaded.ask(mode="together")
    first = loaded.lanes
    second = loaded.ask(mode="in-turn")
    third = loaded.ask(mode="together")
    first["auto:nf4"].begin()
    first["auto:nf4"].finish()
    assert len(first["auto:nf4"].asked) == 1, "the fp32 lane is still busy with the first visitor"
    first["cpu:fp32"].ready()
    first["cpu:fp32"].begin()
    first["cpu:fp32"].finish()
    assert first["auto:nf4"].asked[-1] == second.runs["auto:nf4"].id
    first["auto:nf4"].begin()
    first["auto:nf4"].finish()
    assert first["cpu:fp32"].asked[-1] == second.runs["cpu:fp32"].id
    assert third.runs["auto:nf4"].id not in first["auto:nf4"].asked
    first["cpu:fp32"].begin()
    first["cpu:fp32"].finish()
    assert first["auto:nf4"].asked[-1] == third.runs["auto:nf4"].id and first["cpu:fp32"].asked[-1] == third.runs["cpu:fp32"].id


def test_waits_are_split_into_load_turn_and_queue(stage):
    four, full = runs(stage.ask())
    stage.lanes["auto:nf4"].hello()
    stage.clock.now += 3
    stage.lanes["auto:nf4"].loaded()
    stage.lanes["auto:nf4"].begin()
    stage.clock.now += 2
    stage.lanes["auto:nf4"].finish()
    done = last(stage, four)
    assert (done.load_wait_s, done.turn_wait_s) == (3, 0)
    stage.lanes["cpu:fp32"].hello()
    stage.lanes["cpu:fp32"].emit(Loading("reading weights"))
    stage.clock.now += 7
    stage.lanes["cpu:fp32"].loaded()
    stage.lanes["cpu:fp32"].begin()
    stage.lanes["cpu:fp32"].finish()
    done = last(stage, full)
    assert (done.turn_wait_s, done.load_wait_s, done.queue_s) == (5, 7, 0)


def test_a_cache_that_grows_before_a_run_is_told_as_loading_and_counted_as_load(loaded):
    four, _ = runs(loaded.ask())
    lane = loaded.lanes["auto:nf4"]
    lane.emit(Loading("making room for a longer context"))
    assert loaded.state("auto:nf4") == "loading" and loaded.drain(four)[-1] == Loading("making room for a longer context")
    loaded.clock.now += 2
    lane.begin()
    assert loaded.state("auto:nf4") == "busy"
    loaded.clock.now += 5
    lane.finish()
    assert last(loaded, four).load_wait_s == 2, "the run itself is no load"


def test_waiting_behind_another_visitor_is_queue_and_the_position_is_told(loaded):
    loaded.ask(mode="together")
    four, _ = runs(loaded.ask(mode="together"))
    assert Queued(four.id, 1, "lane") in loaded.drain(four)
    loaded.lanes["auto:nf4"].begin()
    loaded.clock.now += 5
    loaded.lanes["auto:nf4"].finish()
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].finish()
    assert last(loaded, four).queue_s == 5


def test_alone_and_contended_runs_are_told_apart(loaded):
    four, full = runs(loaded.ask(mode="together"))
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].finish()
    assert last(loaded, four).alone is False
    loaded.lanes["cpu:fp32"].ready()
    loaded.lanes["cpu:fp32"].begin()
    loaded.lanes["cpu:fp32"].finish()
    four, _ = runs(loaded.ask(mode="in-turn"))
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].finish()
    assert last(loaded, four).alone is True


def test_a_prompt_that_becomes_other_ids_in_the_second_lane_fails_with_a_sentence(loaded):
    _, full = runs(loaded.ask(mode="together"))
    loaded.lanes["auto:nf4"].begin((1, 2))
    loaded.lanes["cpu:fp32"].ready()
    loaded.lanes["cpu:fp32"].begin((1, 9))
    event = last(loaded, full)
    assert isinstance(event, Failed) and "tokenizer" in event.message


def test_stop_before_the_turn_ends_at_once_and_sends_nothing(loaded):
    _, full = runs(loaded.ask(mode="in-turn"))
    loaded.engine.stop(full.id)
    assert last(loaded, full).finish_reason == "stopped"
    loaded.lanes["auto:nf4"].begin()
    loaded.lanes["auto:nf4"].finish()
    assert "cpu:fp32" not in loaded.lanes


def test_stop_while_decoding_is_passed_on_and_the_lane_ends_the_run(loaded):
    four, _ = runs(loaded.ask())
    lane = loaded.lanes["auto:nf4"]
    lane.begin()
    loaded.engine.stop(four.id)
    assert lane.sent[-1] == {"do": "stop", "run_id": four.id}
    lane.finish(reason="stopped")
    assert last(loaded, four).finish_reason == "stopped" and loaded.state("auto:nf4") == "ready"


def test_stop_during_the_load_frees_the_reader_and_keeps_the_load(loaded):
    _, full = runs(loaded.ask(mode="together"))
    loaded.engine.stop(full.id)
    assert last(loaded, full).finish_reason == "stopped"
    loaded.lanes["cpu:fp32"].ready()
    assert loaded.state("cpu:fp32") == "busy"
    loaded.lanes["cpu:fp32"].finish(reason="stopped")
    assert loaded.state("cpu:fp32") == "ready"


def test_a_lane_that_does_not_answer_a_stop_is_ended(loaded):
    four, _ = runs(loaded.ask())
    old = loaded.lanes["auto:nf4"]
    old.begin()
    loaded.engine.stop(four.id)
    for _ in range(6):
        loaded.clock.now += 1
        loaded.engine.end_silent_lanes()
    assert old.killed
    old.exit(-9)
    assert last(loaded, four).finish_reason == "stopped"
    assert loaded.lanes["auto:nf4"] is not old


def test_a_run_ended_for_its_lane_leaves_its_reader_the_text_so_far(loaded):
    four, _ = runs(loaded.ask())
    lane = loaded.lanes["auto:nf4"]
    lane.begin()
    lane.emit(Text(four.id, "half an ans", 3, 0.3))
    loaded.engine.stop(four.id)
    lane.exit(-9)
    progress = Progress(0.0)
    for event in loaded.drain(four):
        progress = progress.apply(event, 1.0)
    assert (progress.phase, progress.text, progress.n) == ("stopped", "half an ans", 3)


def test_closing_the_iterator_stops_the_run(loaded):
    four, _ = runs(loaded.ask())
    events = loaded.engine.events(four)
    next(events)
    loaded.lanes["auto:nf4"].begin()
    events.close()
    assert {"do": "stop", "run_id": four.id} in loaded.lanes["auto:nf4"].sent


def test_a_run_that_nobody_reads_is_stopped(loaded):
    four, full = runs(loaded.ask())
    loaded.clock.now += 20
    loaded.engine.end_unread_runs()
    assert full.ended and {"do": "stop", "run_id": four.id} in loaded.lanes["auto:nf4"].sent


def test_work_beside_is_held_in_every_lane_while_any_lane_answers(loaded):
    loaded.ask(mode="together")
    loaded.lanes["auto:nf4"].begin()
    assert {"do": "hold", "devices": ["cpu"]} in loaded.lanes["auto:nf4"].sent
    loaded.lanes["cpu:fp32"].ready()
    loaded.lanes["cpu:fp32"].begin()
    loaded.lanes["auto:nf4"].finish()
    assert {"do": "hold", "devices": []} not in loaded.lanes["auto:nf4"].sent
    loaded.lanes["cpu:fp32"].finish()
    assert loaded.lanes["auto:nf4"].sent[-1] == {"do": "hold", "devices": []}
