"""A server as a lane, against one that misbehaves: what it is sent, what comes of its answers, and each fault in a sentence."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from inference.endpoint import faults, private
from inference.endpoint.server import Server
from inference.endpoints import Endpoint
from inference.errors import InferenceError
from inference.events import Done, Prefill, Queued, Request, Text
from inference.progress import Progress
from inference.settings import Settings
from tests.support.false_server import KEY, FalseServer, good, piece, usage
from tests.support.tiny import make_tokenizer

ASKED = Request("two biryanis", max_new_tokens=8)


@pytest.fixture
def false() -> Iterator[FalseServer]:
    server = FalseServer()
    yield server
    server.close()


@pytest.fixture
def lane(false, monkeypatch, tmp_path) -> Iterator:
    """Makes the lane of the false server; further settings by name."""
    from huggingface_hub.utils import close_session

    monkeypatch.setattr(private, "prepare", lambda _: None)
    made = []

    def make(key: str = KEY, model: str = "menu-4bit", patience_s: int = 5, **settings) -> Server:
        close_session()
        endpoint = Endpoint("far", false.url, model, "The far one", key, patience_s)
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


# ---- what it is sent, and what comes of a good answer


def test_the_server_gets_messages_and_settings_and_its_own_key(false, lane):
    server = lane()
    server.load(lambda _: None)
    run(server, Request("two biryanis", system="Take orders.", max_new_tokens=9, temperature=0.5, seed=3))
    (listed, headers, _), (path, asked_with, body) = false.seen
    assert (listed, path) == ("/v1/models", "/v1/chat/completions")
    assert headers["authorization"] == asked_with["authorization"] == f"Bearer {KEY}"
    assert body["messages"] == [{"role": "system", "content": "Take orders."}, {"role": "user", "content": "two biryanis"}]
    assert (body["model"], body["max_tokens"], body["temperature"], body["seed"], body["stream"]) == ("menu-4bit", 9, 0.5, 3, True)
    assert body["stream_options"] == {"include_usage": True}


def test_a_greedy_request_is_sent_as_one(false, lane):
    run(lane())
    body = false.seen[-1][2]
    assert body["temperature"] == 0 and "seed" not in body


def test_without_a_key_no_key_is_sent_not_even_the_hub_s(false, lane, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_not_for_others")
    server = lane(key="")
    server.load(lambda _: None)
    run(server)
    assert len(false.seen) == 2 and all("authorization" not in {name.lower() for name in headers} for _, headers, _ in false.seen)
    assert "hf_not" not in str(false.seen)


def test_an_answer_is_its_text_with_the_server_s_counts_and_no_ids(lane):
    events, fault = run(lane())
    done = events[-1]
    assert fault is None and isinstance(events[0], Prefill) and text_of(events) == done.text == "Two biryanis."
    assert isinstance(done, Done) and (done.finish_reason, done.token_ids, done.prompt_tokens, done.new_tokens) == ("stop", (), 7, 4)
    assert done.counted_by == "the server" and done.timings.prefill_tps is None and 0 < done.timings.ttft_s <= done.timings.total_s


def test_the_model_is_asked_for_where_none_is_named(false, lane):
    server = lane(model="")
    assert server.load(lambda _: None).facts.model_id == "menu-4bit"
    false.listing = lambda handler: handler.status(200, {"data": [{"id": "a"}, {"id": "b"}]})
    with pytest.raises(InferenceError, match=r"2 models \(a, b\). Name one in ENDPOINT_FAR_MODEL"):
        server.load(lambda _: None)
    false.listing = lambda handler: handler.status(404, "no such page")
    server.load(lambda _: None)  # a server without a list is one too


def test_a_raw_prompt_is_refused(lane):
    events, fault = run(lane(), Request("hi", format="raw"))
    assert not events and "chat format" in str(fault)


def test_an_answer_cut_at_the_limit_says_so(false, lane):
    false.script = lambda handler: (handler.begin(), handler.say(piece("Two", "length"), usage(7, 1), "[DONE]"), handler.end())
    assert run(lane())[0][-1].finish_reason == "length"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_thoughts_are_counted_and_are_no_answer(name, false, lane):
    """Under the name that the library doesn't know they were lost: their tokens were counted, their time was not, and the speed was a hundred times too high."""
    thought = piece(None).replace('"delta": {}', f'"delta": {{"{name}": "Hm. "}}')
    false.script = lambda handler: (handler.begin(), handler.say(thought, piece("Two"), piece(reason="stop"), usage(7, 3), "[DONE]"), handler.end())
    events = run(lane())[0]
    done, shown = events[-1], Progress(0.0)
    assert done.text == "Two" and done.new_tokens == 3
    texts = [event for event in events if isinstance(event, Text)]
    assert [event.delta for event in texts] == ["", "Two"] and done.timings.ttft_s == texts[0].t_s < texts[1].t_s
    for event in events[:-1]:
        shown = shown.apply(event, 0.0)
    assert shown.timings.ttft_s == done.timings.ttft_s, "the first token is the same while it writes and at the end"


@pytest.mark.parametrize(("reason", "name"), [("length", "reasoning"), ("stop", "reasoning_content")])
def test_thoughts_alone_are_told_as_what_they_are(reason, name, false, lane):
    """They were "no readable text" and "a fault of the lane", where only the limit was too low."""
    thought = piece(None).replace('"delta": {}', f'"delta": {{"{name}": "Hm. "}}')
    false.script = lambda handler: (handler.begin(), handler.say(thought, piece("", reason), usage(7, 8), "[DONE]"), handler.end())
    events, fault = run(lane())
    assert "only thought, and wrote no answer. Ask for more new tokens" in str(fault) and not text_of(events)
    false.script = lambda handler: (handler.begin(), handler.say(piece("", "stop"), "[DONE]"), handler.end())
    events, fault = run(lane())
    ended = Progress(0.0)
    for event in events:
        ended = ended.apply(event, 0.0)
    assert fault is None and ended.fault == "No text produced. The model gave no readable text. This is a fault of the lane, not an answer."


def test_an_answer_is_whole_though_the_connection_breaks_before_the_counts(false, lane):
    false.script = lambda handler: (handler.begin(), handler.say(piece("Two"), piece(reason="stop")), handler.break_off())
    events, fault = run(lane())
    assert fault is None and (events[-1].text, events[-1].new_tokens, events[-1].counted_by) == ("Two", None, None)
    assert events[-1].timings.decode_tps is None and events[-1].timings.total_s is not None


def test_without_the_server_s_counts_the_compared_model_s_tokenizer_counts(false, lane, tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model" / "model.safetensors").write_bytes(b"")
    false.script = lambda handler: (handler.begin(), handler.say(piece("Two chicken biryani"), piece(reason="stop"), "[DONE]"), handler.end())
    done = run(lane(model_id=str(tmp_path / "model")))[0][-1]
    assert (done.new_tokens, done.counted_by) == (len(tokenizer("Two chicken biryani")["input_ids"]) + 1, "the compared model's tokenizer")


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
    "a page": (lambda h: h.status(200, "<html>Welcome</html>"), "ended before the server said", ""),
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
def test_each_fault_is_a_sentence_that_names_no_secret_and_what_came_is_kept(name, false, lane):
    false.script, words, came = FAULTS[name]
    events, fault = run(lane())
    assert fault is not None
    with pytest.raises(InferenceError, match=words):
        raise fault
    assert text_of(events).startswith(came) and bool(came) == bool(text_of(events))
    for secret in (KEY, false.url, f"127.0.0.1:{false.server_address[1]}"):
        assert secret not in str(fault)
    assert str(fault).endswith(".") and "\n" not in str(fault) and len(str(fault)) < 500


@pytest.mark.parametrize(("script", "words"), [
    (lambda h: h.stay(), "did not answer for 1 s.*ENDPOINT_FAR_TIMEOUT"),
    (lambda h: (h.begin(), h.say(*HEAD), h.stay()), "fell silent for 1 s"),
])  # fmt: skip
def test_a_server_that_says_nothing_is_given_up(script, words, false, lane):
    false.script = script
    _, fault = run(lane(patience_s=1))
    with pytest.raises(InferenceError, match=words):
        raise fault
    assert false.went_away.wait(5), "the connection was left open"


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


def test_a_server_without_tls_is_told_as_that(false, monkeypatch):
    server = Server("endpoint:far", Settings(lanes=("endpoint:far",), endpoints=(Endpoint("far", false.url.replace("http:", "https:")),)))
    with pytest.raises(InferenceError, match="speaks no TLS on that port"):
        server.load(lambda _: None)


def test_a_busy_server_is_asked_again_and_the_wait_is_in_no_figure(false, lane):
    def first_busy(handler):
        false.script = good
        handler.status(429, {"message": "slow down"}, retry_after="0.1")

    false.script = first_busy
    events, fault = run(lane())
    assert fault is None and events[-1].text == "Two biryanis."
    assert [type(event) for event in events[:3]] == [Prefill, Queued, Prefill]
    assert events[-1].t_start == events[2].t_start >= events[0].t_start + 0.1


def test_a_stop_while_the_server_is_busy_ends_the_wait(false, lane):
    stop = threading.Event()

    def busy(handler):
        stop.set()
        handler.status(503, "", retry_after="4")

    false.script = busy
    events, _ = run(lane(), should_stop=stop.is_set)
    assert events[-1].finish_reason == "stopped"


@pytest.mark.parametrize("begun", [False, True])
def test_a_stop_closes_the_connection_at_once_and_keeps_what_came(begun, false, lane):
    stop = threading.Event()

    def silent(handler):
        if begun:
            handler.begin()
            handler.say(*HEAD)
        else:
            stop.set()
        handler.stay()

    false.script = silent
    server, events = lane(patience_s=60), []
    for event in server.generate("r1", ASKED, stop.is_set):
        events.append(event)
        if text_of(events) == "Two biry":
            stop.set()
    assert events[-1].finish_reason == "stopped" and events[-1].text == text_of(events) == ("Two biry" if begun else "")
    assert false.went_away.wait(5), "the connection was left open"
    false.script = good
    assert run(server)[0][-1].text == "Two biryanis."  # and the lane goes on


def test_a_question_that_was_stopped_in_the_load_is_not_asked(false, lane):
    """The server computed it for nobody, beside the next one."""
    server = lane()
    server.load(lambda _: None)
    (done,), fault = run(server, should_stop=lambda: True)
    assert fault is None and (done.finish_reason, done.text, done.new_tokens) == ("stopped", "", None)
    run(server)
    assert [path for path, _, _ in false.seen] == ["/v1/models", "/v1/chat/completions"]


def test_retry_after_is_a_number_or_a_date():
    date = "Wed, 21 Oct 2015 07:28:0{} GMT"
    assert faults.retry_after_s({"retry-after": "7"}) == 7
    assert [faults.retry_after_s({"retry-after": date.format(2), "date": date.format(second)}) for second in (0, 5)] == [2, 0], "by no clock of ours"
    assert faults.retry_after_s({"retry-after": date.format(2)}) is None
    assert faults.retry_after_s({}) is None and faults.retry_after_s({"retry-after": "soon"}) is None
