"""The lane of a server that answers as the test tells it, in the test's own process: what was sent, and what came."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inference.endpoint import private
from inference.endpoint.server import Server
from inference.endpoints import Endpoint
from inference.errors import InferenceError
from inference.events import Request, Text
from inference.settings import Settings
from tests.support.false_server import KEY, FalseServer

ASKED = Request("two biryanis", max_new_tokens=8)


@pytest.fixture
def false_llm() -> Iterator[FalseServer]:
    server = FalseServer()
    yield server
    server.close()


@pytest.fixture
def server_lane(false_llm, monkeypatch, tmp_path) -> Iterator:
    """Makes the lane of the false server; further settings by name."""
    from huggingface_hub.utils import close_session

    monkeypatch.setattr(private, "prepare", lambda _: None)
    made = []

    def make(key: str = KEY, model: str = "menu-4bit", patience_s: int = 5, **settings) -> Server:
        close_session()
        endpoint = Endpoint("far", false_llm.url, model, "The far one", key, patience_s)
        made.append(Server("endpoint:far", Settings(lanes=("endpoint:far",), endpoints=(endpoint,), cache_dir=str(tmp_path), **settings)))
        return made[-1]

    yield make
    close_session()


def run(server: Server, request: Request = ASKED, should_stop=lambda: False) -> tuple[list, InferenceError | None]:
    """The events of a run, and the fault that it ended by."""
    events = []
    try:
        events.extend(iter_into(events, server.generate("r1", request, should_stop)))
    except InferenceError as error:
        return events, error
    return events, None


def iter_into(events: list, source: Iterator) -> Iterator:
    for event in source:
        events.append(event)
    return iter(())


def text_of(events: list) -> str:
    return "".join(event.delta for event in events if isinstance(event, Text))
