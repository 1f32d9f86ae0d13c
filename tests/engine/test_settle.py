"""A measurement waits for the path it means to measure: the captured or compiled one, once it is there or known not to come."""

from __future__ import annotations

import json
import threading

from inference.engine.compare import settle, warm_up
from inference.engine.engine import Engine
from inference.events import Loaded, LoadFigures, Request
from inference.settings import Settings
from tests.support.fake_lane import facts
from tests.support.fakes import Stage
from tests.support.page_fixtures import start_fake_lane
from tests.support.until import until

LANE = "auto:nf4"


def loaded(path_pending: bool) -> Loaded:
    return Loaded(facts("cpu:nf4"), LoadFigures(1.0), path_pending)


def in_thread(work, *arguments) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def test_settle_waits_for_the_load_and_then_for_the_faster_path():
    stage = Stage((LANE,))
    waiting = in_thread(settle, stage.engine)
    stage.lanes[LANE].hello()
    stage.lanes[LANE].emit(loaded(True))
    waiting.join(0.3)
    assert waiting.is_alive() and stage.engine.status()[0].path_pending
    stage.lanes[LANE].emit(loaded(False))
    waiting.join(5)
    assert not waiting.is_alive()
    stage.engine.close()


def test_a_lane_that_dies_while_its_faster_path_is_made_is_not_waited_for():
    stage = Stage((LANE,))
    stage.lanes[LANE].hello()
    stage.lanes[LANE].emit(loaded(True))
    for _ in range(3):
        stage.lanes[LANE].exit(-9)
    assert settle(stage.engine)
    stage.engine.close()


def test_a_warm_up_ends_where_a_lane_dies_in_each_run():
    script = json.dumps({"*": {"load_s": 0, "first_s": 0.001, "token_s": 0.001, "die_at": 2}})
    asked = []
    with Engine(Settings(lanes=(LANE,)), lambda lane, settings: start_fake_lane(lane, settings, FAKE_LANE=script)) as engine:
        submit = engine.submit

        def count(*arguments):
            asked.append(arguments)
            assert len(asked) < 4, "it goes on for ever"
            return submit(*arguments)

        engine.submit = count
        warm_up(engine, Request("hi"))
    assert len(asked) == 1


def test_a_warm_up_is_asked_again_once_the_path_has_changed():
    stage = Stage((LANE,))
    lane = stage.lanes[LANE]
    lane.hello()
    lane.emit(loaded(False))
    waiting = in_thread(warm_up, stage.engine, Request("hi"))
    until(lambda: len(lane.asked) == 1, what="a first warm-up")
    lane.begin()
    lane.emit(loaded(True))
    lane.finish()
    waiting.join(0.3)
    assert len(lane.asked) == 1
    lane.emit(loaded(False))
    until(lambda: len(lane.asked) == 2, what="a second warm-up")
    lane.begin()
    lane.finish()
    waiting.join(5)
    assert not waiting.is_alive()
    stage.engine.close()
