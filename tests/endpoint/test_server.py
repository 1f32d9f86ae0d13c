"""A server as a lane, against one that misbehaves: what it is sent, what comes of its answers, and each fault in a sentence."""

from __future__ import annotations

import pytest

from inference.errors import InferenceError
from inference.events import Done, Prefill, Request, Text
from inference.progress import Progress
from tests.support.false_server import KEY, piece, usage
from tests.support.server_lane import run, text_of
from tests.support.tiny import make_tokenizer

# ---- what it is sent, and what comes of a good answer


def test_the_server_gets_messages_and_settings_and_its_own_key(false_llm, server_lane):
    server = server_lane()
    server.load(lambda _: None)
    run(server, Request("two biryanis", system="Take orders.", max_new_tokens=9, temperature=0.5, seed=3))
    (listed, headers, _), (path, asked_with, body) = false_llm.seen
    assert (listed, path) == ("/v1/models", "/v1/chat/completions")
    assert headers["authorization"] == asked_with["authorization"] == f"Bearer {KEY}"
    assert body["messages"] == [{"role": "system", "content": "Take orders."}, {"role": "user", "content": "two biryanis"}]
    assert (body["model"], body["max_tokens"], body["temperature"], body["seed"], body["stream"]) == ("menu-4bit", 9, 0.5, 3, True)
    assert body["stream_options"] == {"include_usage": True}


def test_a_greedy_request_is_sent_as_one(false_llm, server_lane):
    run(server_lane())
    body = false_llm.seen[-1][2]
    assert body["temperature"] == 0 and "seed" not in body


def test_without_a_key_no_key_is_sent_not_even_the_hub_s(false_llm, server_lane, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_not_for_others")
    server = server_lane(key="")
    server.load(lambda _: None)
    run(server)
    assert len(false_llm.seen) == 2 and all("authorization" not in {name.lower() for name in headers} for _, headers, _ in false_llm.seen)
    assert "hf_not" not in str(false_llm.seen)


def test_an_answer_is_its_text_with_the_server_s_counts_and_no_ids(server_lane):
    events, fault = run(server_lane())
    done = events[-1]
    assert fault is None and isinstance(events[0], Prefill) and text_of(events) == done.text == "Two biryanis."
    assert isinstance(done, Done) and (done.finish_reason, done.token_ids, done.prompt_tokens, done.new_tokens) == ("stop", (), 7, 4)
    assert done.counted_by == "the server" and done.timings.prefill_tps is None and 0 < done.timings.ttft_s <= done.timings.total_s


def test_the_model_is_asked_for_where_none_is_named(false_llm, server_lane):
    server = server_lane(model="")
    assert server.load(lambda _: None).facts.model_id == "menu-4bit"
    false_llm.listing = lambda handler: handler.status(200, {"data": [{"id": "a"}, {"id": "b"}]})
    with pytest.raises(InferenceError, match=r"2 models \(a, b\). Name one in ENDPOINT_FAR_MODEL"):
        server.load(lambda _: None)
    false_llm.listing = lambda handler: handler.status(404, "no such page")
    server.load(lambda _: None)  # a server without a list is one too


def test_a_raw_prompt_is_refused(server_lane):
    events, fault = run(server_lane(), Request("hi", format="raw"))
    assert not events and "chat format" in str(fault)


def test_an_answer_cut_at_the_limit_says_so(false_llm, server_lane):
    false_llm.script = lambda handler: (handler.begin(), handler.say(piece("Two", "length"), usage(7, 1), "[DONE]"), handler.end())
    assert run(server_lane())[0][-1].finish_reason == "length"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_thoughts_are_counted_and_are_no_answer(name, false_llm, server_lane):
    """Under the name that the library doesn't know they were lost: their tokens were counted, their time was not, and the speed was a hundred times too high."""
    thought = piece(None).replace('"delta": {}', f'"delta": {{"{name}": "Hm. "}}')
    false_llm.script = lambda handler: (handler.begin(), handler.say(thought, piece("Two"), piece(reason="stop"), usage(7, 3), "[DONE]"), handler.end())
    events = run(server_lane())[0]
    done, shown = events[-1], Progress(0.0)
    assert done.text == "Two" and done.new_tokens == 3
    texts = [event for event in events if isinstance(event, Text)]
    assert [event.delta for event in texts] == ["", "Two"] and done.timings.ttft_s == texts[0].t_s < texts[1].t_s
    for event in events[:-1]:
        shown = shown.apply(event, 0.0)
    assert shown.timings.ttft_s == done.timings.ttft_s, "the first token is the same while it writes and at the end"


@pytest.mark.parametrize(("reason", "name"), [("length", "reasoning"), ("stop", "reasoning_content")])
def test_thoughts_alone_are_told_as_what_they_are(reason, name, false_llm, server_lane):
    """They were "no readable text" and "a fault of the lane", where only the limit was too low."""
    thought = piece(None).replace('"delta": {}', f'"delta": {{"{name}": "Hm. "}}')
    false_llm.script = lambda handler: (handler.begin(), handler.say(thought, piece("", reason), usage(7, 8), "[DONE]"), handler.end())
    events, fault = run(server_lane())
    assert "only thought, and wrote no answer. Ask for more new tokens" in str(fault) and not text_of(events)
    false_llm.script = lambda handler: (handler.begin(), handler.say(piece("", "stop"), "[DONE]"), handler.end())
    events, fault = run(server_lane())
    ended = Progress(0.0)
    for event in events:
        ended = ended.apply(event, 0.0)
    assert fault is None and ended.fault == "No text produced. The model gave no readable text. This is a fault of the lane, not an answer."


def test_an_answer_is_whole_though_the_connection_breaks_before_the_counts(false_llm, server_lane):
    false_llm.script = lambda handler: (handler.begin(), handler.say(piece("Two"), piece(reason="stop")), handler.break_off())
    events, fault = run(server_lane())
    assert fault is None and (events[-1].text, events[-1].new_tokens, events[-1].counted_by) == ("Two", None, None)
    assert events[-1].timings.decode_tps is None and events[-1].timings.total_s is not None


def test_without_the_server_s_counts_the_compared_model_s_tokenizer_counts(false_llm, server_lane, tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model" / "model.safetensors").write_bytes(b"")
    false_llm.script = lambda handler: (handler.begin(), handler.say(piece("Two chicken biryani"), piece(reason="stop"), "[DONE]"), handler.end())
    done = run(server_lane(model_id=str(tmp_path / "model")))[0][-1]
    assert (done.new_tokens, done.counted_by) == (len(tokenizer("Two chicken biryani")["input_ids"]) + 1, "the compared model's tokenizer")
