"""A change of an engine's model on fake processes."""

from __future__ import annotations

import threading

import pytest

from inference.errors import InferenceError
from inference.settings import Settings
from tests.support.fakes import FakeProcess, Stage
from tests.support.until import until

FIRST, OTHER = Settings().model_id, "you/other"


def refused(stage: Stage, words: str) -> bool:
    with pytest.raises(InferenceError, match=words):
        stage.engine.change_model(OTHER)
    return stage.engine.model().name == FIRST


def change_to(stage: Stage, name: str = OTHER) -> None:
    stage.engine.change_model(name)
    stage.lanes["auto:nf4"].ready()


@pytest.fixture
def slow_end(loaded, monkeypatch):
    """`loaded`, with a change to OTHER in a thread whose processes before are not gone until `let_go` is set."""
    loaded.let_go = threading.Event()
    monkeypatch.setattr(FakeProcess, "close", lambda self, timeout_s=2.0: loaded.let_go.wait(10))
    thread = threading.Thread(target=loaded.engine.change_model, args=(OTHER,), daemon=True)
    thread.start()
    until(lambda: loaded.engine.model().phase == "ending", what="the old processes being ended")
    yield loaded
    loaded.let_go.set()
    thread.join(5)
