"""A server that fails, is silent, is busy or is to be stopped: each is a sentence, and what came is kept."""

from __future__ import annotations

import threading

import pytest

from inference.endpoint import faults, private
from inference.endpoint.server import Server
from inference.endpoints import Endpoint
from inference.errors import InferenceError
from inference.events import Prefill, Queued
from inference.settings import Settings
from tests.support.false_server import KEY, good, piece
from tests.support.server_lane import ASKED, run, text_of

# ---- faults

HEAD = (piece("Two "), piece("biry"))
FAULTS = {
    "no key taken": (lambda h: h.status(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}), "does not take the key in ENDPOINT_FAR_KEY .401", ""),
    "forbidden": (lambda h: h.status(403, "<html>"), "does not take the key .* .403", ""),
    "unknown model": (lambda h: h.status(404, {"error": {"message": "The model `menu-4bit` does not exist."}}), "knows no model menu-4bit.*404.*does not exist.*ENDPOINT_FAR_MODEL", ""),
    "bad request": (lambda h: h.status(400, {"error": {"message": "too\nlong " + "x" * 500}}), r"does not take this request \(400\): \"too long x+\.\.\.\"", ""),
    "not valid": (lambda h: h.status(422, {"error": "Input validation error: `max_new_tokens` must be <= 4", "error_type": "validation"}), "422.: \"Input validation error", ""),
    "not valid, by FastAPI": (lambda h: h.status(422, {"detail": [{"msg": "field required"}]}), "422.: \"field required", ""),
    "busy for long": (lambda h: h.status(429, {"message": "slow down"}, retry_after="120"), "busy .429.: \"slow down\". Ask again in 120 s", ""),
    "failed": (lambda h: h.status(500, {"error": f"Bearer {KEY} at {h.server.url}"}), r"The server failed \(500\): \"Bearer \*\*\* at \*\*\*\". Ask again", ""),
    "a gateway's page": (lambda h: h.status(502, "<html><h1>Bad Gateway</h1></html>"), "The server failed .502.", ""),
    "a redirect": (lambda h: h.status(307, "", location="http://127.0.0.1:9/other"), "redirect .307.*ENDPOINT_FAR_URL", ""),
    "a page": (lambda h: h.status(200, "<html>Welcome</html>"), "with no stream of a chat completion.*ENDPOINT_FAR_URL", ""),
    "no stream": (lambda h: h.status(200, {"choices": [{"index": 0, "message": {"content": "Two."}, "finish_reason": "stop"}]}), "Have it stream", ""),
    "no JSON": (lambda h: (h.begin(), h.say(*HEAD, "{broken"), h.end()), "no part of a chat completion .no JSON", "Two biry"),
    "no choices": (lambda h: (h.begin(), h.say(*HEAD, '{"id": "x"}'), h.end()), "a piece without choices", "Two biry"),
    "a list": (lambda h: (h.begin(), h.say(*HEAD, '{"choices": [7]}'), h.end()), "no part of a chat completion", "Two biry"),
    "content that is no text": (lambda h: (h.begin(), h.say(*HEAD, piece("").replace('""', '{"a": 1}')), h.end()), "no part of a chat completion", "Two biry"),
    "no end": (lambda h: (h.begin(), h.say(*HEAD), h.end()), "ended before the server said that it was complete", "Two biry"),
    "no end but the mark": (lambda h: (h.begin(), h.say(*HEAD, "[DONE]"), h.end()), "ended before the server said that it was complete", "Two biry"),
    "an error in the stream": (lambda h: (h.begin(), h.say(*HEAD, '{"error": {"message": "CUDA out of memory"}}'), h.end()), "broke its answer off: \"CUDA out of memory\"", "Two biry"),
    "body cut off": (lambda h: (h.begin(), h.say(*HEAD), setattr(h, "close_connection", True)), "broke before the answer was complete", "Two biry"),
    "killed": (lambda h: (h.begin(), h.say(*HEAD), threading.Event().wait(0.1), h.break_off()), "broke before the answer was complete", "Two biry"),
    "killed before it answers": (lambda h: h.break_off(), "broke before it answered", ""),
    "filtered": (lambda h: (h.begin(), h.say(*HEAD, piece(reason="content_filter")), h.end()), "filter ended the answer", "Two biry"),
    "never ends": (lambda h: (h.begin(), h.say(*[piece("x" * 6000)] * 3), h.stay()), "writes on past the tokens", "x" * 6000),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_a_sentence_that_names_no_secret_and_what_came_is_kept(name, false_llm, server_lane):
    false_llm.script, words, came = FAULTS[name]
    events, fault = run(server_lane())
    assert fault is not None
    with pytest.raises(InferenceError, match=words):
        raise fault
    assert text_of(events).startswith(came) and bool(came) == bool(text_of(events))
    for secret in (KEY, false_llm.url, f"127.0.0.1:{false_llm.server_address[1]}"):
        assert secret not in str(fault)
    assert str(fault).endswith(".") and "\n" not in str(fault) and len(str(fault)) < 500


@pytest.mark.parametrize(("script", "words"), [
    (lambda h: h.stay(), "did not answer for 1 s.*ENDPOINT_FAR_TIMEOUT"),
    (lambda h: (h.begin(), h.say(*HEAD), h.stay()), "fell silent for 1 s"),
])  # fmt: skip
def test_a_server_that_says_nothing_is_given_up(script, words, false_llm, server_lane):
    false_llm.script = script
    _, fault = run(server_lane(patience_s=1))
    with pytest.raises(InferenceError, match=words):
        raise fault
    assert false_llm.went_away.wait(5), "the connection was left open"


@pytest.mark.parametrize(("url", "words"), [
    ("http://127.0.0.1:9/v1", "nothing answers at its address. Start it, or check ENDPOINT_FAR_URL"),
    ("http://no-such-host.invalid/v1", "host name is not known"),
])  # fmt: skip
def test_a_server_that_is_not_there_is_told(url, words, monkeypatch):
    for name in private.PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    server = Server("endpoint:far", Settings(lanes=("endpoint:far",), endpoints=(Endpoint("far", url),)))
    for ask in (lambda: server.load(lambda _: None), lambda: list(server.generate("r1", ASKED, lambda: False))):
        with pytest.raises(InferenceError, match=words):
            ask()


def test_a_server_without_tls_is_told_as_that(false_llm, monkeypatch):
    server = Server("endpoint:far", Settings(lanes=("endpoint:far",), endpoints=(Endpoint("far", false_llm.url.replace("http:", "https:")),)))
    with pytest.raises(InferenceError, match="speaks no TLS on that port"):
        server.load(lambda _: None)


def test_a_busy_server_is_asked_again_and_the_wait_is_in_no_figure(false_llm, server_lane):
    def first_busy(handler):
        false_llm.script = good
        handler.status(429, {"message": "slow down"}, retry_after="0.1")

    false_llm.script = first_busy
    events, fault = run(server_lane())
    assert fault is None and events[-1].text == "Two biryanis."
    assert [type(event) for event in events[:3]] == [Prefill, Queued, Prefill]
    assert events[-1].t_start == events[2].t_start >= events[0].t_start + 0.1


def test_a_stop_while_the_server_is_busy_ends_the_wait(false_llm, server_lane):
    stop = threading.Event()

    def busy(handler):
        stop.set()
        handler.status(503, "", retry_after="4")

    false_llm.script = busy
    events, _ = run(server_lane(), should_stop=stop.is_set)
    assert events[-1].finish_reason == "stopped"


@pytest.mark.parametrize("begun", [False, True])
def test_a_stop_closes_the_connection_at_once_and_keeps_what_came(begun, false_llm, server_lane):
    stop = threading.Event()

    def silent(handler):
        if begun:
            handler.begin()
            handler.say(*HEAD)
        else:
            stop.set()
        handler.stay()

    false_llm.script = silent
    server, events = server_lane(patience_s=60), []
    for event in server.generate("r1", ASKED, stop.is_set):
        events.append(event)
        if text_of(events) == "Two biry":
            stop.set()
    assert events[-1].finish_reason == "stopped" and events[-1].text == text_of(events) == ("Two biry" if begun else "")
    assert false_llm.went_away.wait(5), "the connection was left open"
    false_llm.script = good
    assert run(server)[0][-1].text == "Two biryanis."  # and the lane goes on


def test_a_question_that_was_stopped_in_the_load_is_not_asked(false_llm, server_lane):
    """The server computed it for nobody, beside the next one."""
    server = server_lane()
    server.load(lambda _: None)
    (done,), fault = run(server, should_stop=lambda: True)
    assert fault is None and (done.finish_reason, done.text, done.new_tokens) == ("stopped", "", None)
    run(server)
    assert [path for path, _, _ in false_llm.seen] == ["/v1/models", "/v1/chat/completions"]


def test_retry_after_is_a_number_or_a_date():
    date = "Wed, 21 Oct 2015 07:28:0{} GMT"
    assert faults.retry_after_s({"retry-after": "7"}) == 7
    assert [faults.retry_after_s({"retry-after": date.format(2), "date": date.format(second)}) for second in (0, 5)] == [2, 0], "by no clock of ours"
    assert faults.retry_after_s({"retry-after": date.format(2)}) is None
    assert faults.retry_after_s({}) is None and faults.retry_after_s({"retry-after": "soon"}) is None
