"""Visitors of a page with limits, over HTTP and fake lanes: told apart by what a trusted proxy adds, on the page and at the endpoint alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import gradio as gr
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from inference.events import Request
from inference.host.child import ROOT
from inference.series.prompts import MOST_BYTES
from inference.settings import Settings
from tests.support.fakes import Stage
from tests.support.http_tab import HttpTab, from_address
from tests.support.page_fixtures import FakeApp
from tests.support.records import ended
from tests.support.until import until
from ui.bodies import ENVELOPE_BYTES, TOO_LARGE
from ui.comparison.handlers import Page
from ui.comparison.results import Results
from ui.fork.viewer import ForkViewer
from ui.history.tab import HistoryTab
from ui.programs import callers
from ui.prompts.tab import PromptsTab

ONE = "One prompt at a time"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    app = FakeApp(tmp_path_factory.mktemp("limited") / "script.json", Settings(limits="on", limit_a_minute=4, trusted_proxies=("127.0.0.1",)))
    yield app
    app.close()


def at_rest(app: FakeApp) -> bool:
    return not any(lane.waiting or lane.state == "busy" for lane in app.engine.status())


@pytest.fixture
def app(served):
    served.script()
    until(lambda: at_rest(served), what="lanes at rest")
    return served


def asked_only(app: FakeApp, address: str) -> str:
    """An event of `/compare`, asked for by plain HTTP, for whose answer nobody listens yet."""
    body = json.dumps({"data": ["hi"]}).encode()
    asked = urllib.request.Request(f"{app.url}/gradio_api/call/compare", body, {"Content-Type": "application/json", **from_address(address)})
    with urllib.request.urlopen(asked, timeout=20) as answer:
        return str(json.load(answer)["event_id"])


def client(app: FakeApp, address: str) -> Client:
    return Client(app.url, headers=from_address(address), verbose=False)


def test_a_visitor_has_one_run_at_a_time_whatever_door_it_comes_in_by_and_others_their_own(app):
    app.script(both={"hold_at": 2})
    page = HttpTab(app.url, "first", from_address("198.51.100.1"))
    page.begin()
    until(lambda: any(lane.state == "busy" for lane in app.engine.status()), what="a run")
    assert ONE in HttpTab(app.url, "second tab", from_address("198.51.100.1")).press("hi")
    for header in ("198.51.100.1", "203.0.113.99, 198.51.100.1"):  # what stands before the proxy's own entry may be made up
        with pytest.raises(AppError, match=ONE):
            client(app, header).predict("hi", api_name="/compare")
    other = client(app, "198.51.100.2").submit("hi", api_name="/compare")
    app.script()
    assert other.result(20)["request"]["prompt"] == "hi"
    until(lambda: not page.is_alive(), what="the page's answer")
    assert "chicken" in str(client(app, "198.51.100.1").predict("hi", api_name="/compare")["lanes"])


def test_the_fifth_run_of_a_minute_is_refused_with_the_seconds_to_wait(app):
    visitor = client(app, "198.51.100.3")
    for _ in range(4):
        visitor.predict("hi", max_new_tokens=1, api_name="/compare")
    with pytest.raises(AppError, match=r"4 prompts a minute are the most here\. Try again in \d+ s\."):
        visitor.predict("hi", api_name="/compare")
    assert "a minute are the most here" in HttpTab(app.url, "third", from_address("198.51.100.3")).press("hi")
    assert "new tokens are more" in HttpTab(app.url, "fourth", from_address("198.51.100.4")).press("hi", ["", "chat", 500, 0, 0, "auto"])


def test_without_a_trusted_proxy_a_header_makes_nobody_another_visitor(tmp_path):
    app = FakeApp(tmp_path / "script.json", Settings(limits="on"))
    try:
        app.script(both={"hold_at": 2})
        HttpTab(app.url, "first", from_address("198.51.100.1")).begin()
        assert ONE in HttpTab(app.url, "second", from_address("198.51.100.2")).press("hi")
    finally:
        app.close()


def test_a_client_of_the_endpoint_is_told_its_place_in_the_line(app):
    app.script(both={"hold_at": 2})
    HttpTab(app.url, "holds", from_address("198.51.100.5")).begin()
    until(lambda: any(lane.state == "busy" for lane in app.engine.status()), what="a run")
    waits = client(app, "198.51.100.6").submit("hi", api_name="/compare")

    def told() -> str:
        return "".join(unit.desc or "" for unit in waits.status().progress_data or [])

    until(lambda: "1 run before this one" in told(), what="its place")
    app.script()
    waits.result(20)


def test_the_run_of_a_client_that_is_killed_ends_and_the_next_does_not_wait_for_it(app):
    app.script(both={"hold_at": 2})
    code = (
        "import sys, time; from gradio_client import Client\n"
        "job = Client(sys.argv[1], headers={'X-Forwarded-For': '198.51.100.7'}, verbose=False).submit('hi', api_name='/compare')\n"
        "while not job.status().progress_data: time.sleep(0.05)\n"
        "print('listens', flush=True); job.result()"
    )
    killed = subprocess.Popen([sys.executable, "-c", code, app.url], cwd=ROOT, env={**os.environ, "no_proxy": "127.0.0.1"}, stdout=subprocess.PIPE)
    assert killed.stdout and killed.stdout.readline() == b"listens\n"
    until(lambda: any(lane.state == "busy" for lane in app.engine.status()), 30, "its run")
    killed.kill()
    killed.wait()
    killed.stdout.close()
    until(lambda: at_rest(app), 20, "its run ended, though its lanes would hold it for ever")
    app.script()
    assert client(app, "198.51.100.7").predict("hi", api_name="/compare")["lanes"], "and it is no visitor with a run under way"


def test_the_run_of_a_caller_that_never_listens_ends_and_one_that_listens_late_is_heard(app, monkeypatch):
    """Killed between the two, it leaves nothing open that would tell of its end."""
    app.script(both={"hold_at": 2})
    monkeypatch.setattr(callers, "UNHEARD_S", 2.0)
    asked_only(app, "198.51.100.8")
    until(lambda: any(lane.state == "busy" for lane in app.engine.status()), 30, "its run")
    until(lambda: at_rest(app), 20, "its run ended, though its lanes would hold it for ever")
    listens = client(app, "198.51.100.9").submit("hi", api_name="/compare")
    until(lambda: listens.status().progress_data, 30, "its run")
    time.sleep(4)
    assert not at_rest(app), "whoever listens is heard, however long a lane is silent"
    app.script()
    assert listens.result(20)["lanes"]
    monkeypatch.setattr(callers, "UNHEARD_S", 60.0)
    event = asked_only(app, "198.51.100.8")
    until(lambda: at_rest(app), 20, "the answer")
    with urllib.request.urlopen(f"{app.url}/gradio_api/call/compare/{event}", timeout=20) as answer:
        assert b"chicken" in answer.read()


@pytest.mark.parametrize("endpoint", ["compare", "ask", "quality"])
def test_every_endpoint_is_behind_the_limits(app, endpoint):
    app.script(both={"hold_at": 2})
    same = client(app, f"192.0.2.{len(endpoint)}")  # first: it takes a while, and a run that nobody reads is ended
    HttpTab(app.url, "holds", from_address(f"192.0.2.{len(endpoint)}")).begin()
    with pytest.raises(AppError, match=ONE):
        same.predict("hi", api_name=f"/{endpoint}")
    with pytest.raises(AppError, match="new tokens are more"):
        client(app, "192.0.2.99").predict("hi", max_new_tokens=500, api_name=f"/{endpoint}")


def test_the_run_of_a_client_that_cancels_ends(app):
    app.script(both={"hold_at": 2})
    asked = ["hi", "", "chat", 50, 0, 0, "together", False]
    HttpTab(app.url, "cancels", from_address("198.51.100.10")).cancelled("compare", asked, lambda: not at_rest(app))
    until(lambda: at_rest(app), 5, "its run ended")


# ---- what is sent


def post(app: FakeApp, body, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(f"{app.url}/gradio_api/upload", body, {"Content-Type": "multipart/form-data; boundary=x", **headers})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def form(size: int) -> bytes:
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\n'
    return head + b"a" * size + b"\r\n--x--\r\n"


def test_a_file_that_is_too_large_is_refused_in_a_sentence_and_nothing_of_it_stays(app):
    folder = app.demo.app.uploaded_file_dir
    files = {os.path.join(place, name) for place, _, names in os.walk(folder) for name in names}
    assert post(app, form(MOST_BYTES + ENVELOPE_BYTES)) == (413, TOO_LARGE)
    assert post(app, iter([form(MOST_BYTES + ENVELOPE_BYTES)]))[0] == 413, "without its length told beforehand"
    code, words = post(app, form(MOST_BYTES + 1))
    assert code == 413 and "maximum allowed size" in words
    assert {os.path.join(place, name) for place, _, names in os.walk(folder) for name in names} == files
    assert post(app, form(1000))[0] == 200


def test_a_request_that_is_too_large_is_refused_before_it_is_read(app):
    request = urllib.request.Request(f"{app.url}/gradio_api/queue/join", b"", {"Content-Type": "application/json", "Content-Length": str(2**40)})
    with pytest.raises(urllib.error.HTTPError, match="413"):
        urllib.request.urlopen(request, timeout=10)


# ---- two visitors


def test_nobody_s_stop_text_or_settings_reach_another(app):
    app.script(both={"hold_at": 2})
    mine, theirs = (HttpTab(app.url, name, from_address(f"198.51.100.{number}")) for number, name in ((8, "mine"), (9, "theirs")))
    mine.begin("my secret", ["my system", "chat", 7, 0, 0, "together"])
    theirs.begin("their secret")
    until(lambda: theirs.saw("Waiting"), what="the other's place")
    for listener in ("stop", "stop_1"):
        theirs.call(listener)
    until(lambda: not theirs.is_alive(), what="theirs stopped")
    assert mine.is_alive() and not mine.saw("Stopped")
    app.script()
    until(lambda: not mine.is_alive(), what="mine")
    assert mine.saw("chicken") and not mine.saw("their secret") and not theirs.saw("my secret") and not theirs.saw("chicken")


def test_what_a_tab_asked_is_shown_to_no_other():
    stage = Stage(("cpu:nf4", "cpu:fp32"))
    page = Page(stage.engine, lambda: None)
    with gr.Blocks():
        results, history, prompts, fork = Results(page), HistoryTab(page), PromptsTab(page), ForkViewer(page)
    me, other = (SimpleNamespace(session_hash=name, query_params={}, client=None) for name in ("me", "other"))
    page.begin(lambda: Request("my secret", system="my system"), "together", me)
    for key, column in zip(("cpu:nf4", "cpu:fp32"), page.lanes, strict=True):
        page.sessions.ended("me", page.sessions.get("me"), key, ended(5))
        assert list(column.stream(other)) == [[gr.skip()] * 3], "no stream of another's run"
        column.stop(other)
    assert page.latest("me") and page.latest("other") is None and not page.histories.labels("other", 0)
    seen = [page.watch(other), results.show(other), history.listed([], 0, other), history.show(["c1"], "json", 0, other), history.again(["c1"], other)]
    seen += [list(fork.show(other)), page.over("other", None)]
    for export in (lambda: history.export([], "json", other), lambda: prompts.export("json", other)):
        with pytest.raises(gr.Error, match="nothing to download"):
            export()
    assert "my secret" not in str(seen) and "my system" not in str(seen)
    assert "my secret" in str(history.export([], "json", me))
    page.leave(other)
    prompts.leave(other)
    assert page.latest("me"), "nor does it go with another's tab"
    stage.engine.close()
