"""An event is good for one reading: whoever comes to it later, or beside the first, gets 404 and a sentence, not heartbeats for ever."""

from __future__ import annotations

import http.client
import json
from types import SimpleNamespace

import pytest

from tests.support.page_fixtures import FakeApp
from tests.support.until import until
from ui.programs.calls import MOST_HEARD, NO_EVENT, Calls


def begun(app: FakeApp, name: str = "compare") -> str:
    """A call that was handed in: its event."""
    connection = http.client.HTTPConnection(app.url.removeprefix("http://"), timeout=20)
    connection.request("POST", f"/gradio_api/call/{name}", b'{"data": ["hello"]}', {"Content-Type": "application/json"})
    event = json.load(connection.getresponse())["event_id"]
    connection.close()
    return str(event)


def listening(app: FakeApp, event: str, name: str = "compare") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(app.url.removeprefix("http://"), timeout=10)
    connection.request("GET", f"/gradio_api/call/{name}/{event}")
    return connection.getresponse()


def refused(answer: http.client.HTTPResponse) -> bool:
    return answer.status == 404 and json.load(answer) == {"error": NO_EVENT}


@pytest.mark.parametrize("way", ["compare", "v2/compare"])
def test_an_event_that_was_read_is_no_longer_there(fake_app, way):
    event = begun(fake_app)
    with listening(fake_app, event, way) as first:
        assert b"event: complete" in first.read()
    for again in ("compare", "v2/compare"):
        with listening(fake_app, event, again) as second:
            assert refused(second)


def test_a_second_reader_takes_no_frame_of_the_first(fake_app):
    fake_app.script(both={"hold_at": 3})
    event = begun(fake_app, "ask")
    with listening(fake_app, event, "ask") as first:
        until(lambda: any(lane.state == "busy" for lane in fake_app.engine.status()), what="its run")
        with listening(fake_app, event, "ask") as second:
            assert refused(second)
        fake_app.script()
        assert b"event: complete" in first.read()


class Gradio:
    """The app behind the middleware: it holds messages for `held`, and answers every listener with `status`."""

    def __init__(self, *held: str) -> None:
        self.held, self.status = held, 200

    def get_blocks(self) -> SimpleNamespace:
        return SimpleNamespace(_queue=SimpleNamespace(pending_messages_per_session=self.held))

    async def __call__(self, scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": []})


def status(calls: Calls, app: Gradio, event: str) -> int:
    sent = []

    async def send(message) -> None:
        sent.append(message)

    with pytest.raises(StopIteration):  # it waits for nothing, and a browser's tests leave a loop running in which no other may be
        calls({"type": "http", "method": "GET", "path": f"/gradio_api/call/ask/{event}", "app": app}, None, send).send(None)
    return sent[0]["status"]


def test_who_is_refused_for_want_of_the_password_may_listen_with_it():
    app = Gradio("a")
    calls = Calls(app, {})
    app.status = 401
    assert status(calls, app, "a") == 401
    app.status = 200
    assert [status(calls, app, "a") for _ in range(2)] == [200, 404]


def test_of_the_events_that_were_heard_the_oldest_are_forgotten():
    events = [str(number) for number in range(MOST_HEARD + 1)]
    app = Gradio(*events)
    calls = Calls(app, {})
    assert {status(calls, app, event) for event in events} == {200}
    assert len(calls._heard) == MOST_HEARD and status(calls, app, events[1]) == 404
