"""A measurement waits for the lanes that load, and not for one that can't."""

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

LANE = "auto:nf4"


LOADED = Loaded(facts("cpu:nf4"), LoadFigures(1.0))


def in_thread(work, *arguments) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def test_settle_waits_for_the_load():
    stage = Stage((LANE,))
    waiting = in_thread(settle, stage.engine)
    stage.lanes[LANE].hello()
    waiting.join(0.2)
    assert waiting.is_alive()
    stage.lanes[LANE].emit(LOADED)
    waiting.join(5)
    assert not waiting.is_alive()
    stage.engine.close()


def test_a_lane_that_dies_again_and_again_is_not_waited_for():
    stage = Stage((LANE,))
    stage.lanes[LANE].hello()
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
