"""A lane on real files of two layers: labels, ends, dtypes, refusals, and the tokens of plain generate."""

import json
from itertools import islice

import pytest
import torch
from safetensors.torch import load_file, save_file

from inference.decode.sampling import Sampler
from inference.errors import InferenceError, Refused
from inference.events import Request
from inference.host import machine
from inference.lane.lane import Lane
from inference.models import loading
from inference.settings import Settings
from tests.support.real import answer, loaded_lane, plain_ids
from tests.support.tiny import make_checkpoint

LANES = ("cpu:fp32", "cpu:nf4", *(("cuda:nf4", "cuda:bf16") if torch.cuda.is_available() else ()))


class Scripted:
    """A decoder that gives the ids of a list."""

    path = "eager"

    def __init__(self, ids):
        self.ids = ids

    def why_not(self, *_):
        return None

    def prefill(self, *_):
        yield from ()

    def decode(self, new_tokens, *_):
        return islice(self.ids, new_tokens)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("tiny") / "gemma")


@pytest.fixture(scope="module", params=LANES)
def lane(request, folder):
    return loaded_lane(request.param, str(folder))


def test_the_tokens_are_those_of_plain_generate(lane, folder):
    done = answer(lane, Request("hello good morning", max_new_tokens=40))
    prompt = tuple(lane.source.encode(Request("hello good morning", max_new_tokens=40))[0])
    assert list(done.token_ids) == plain_ids(lane.name, str(folder), prompt, 40, lane.end_ids)
    assert done.prompt_tokens == len(prompt)
    assert len(set(done.token_ids)) >= 8, "an answer of one token again and again would hide a broken cache"


def test_labels_are_read_off_the_loaded_model(lane):
    facts = lane.facts
    device, precision = lane.name.split(":")
    if precision != "nf4":
        stored, computed = {"fp32": ("bfloat16 (exact)", "float32"), "bf16": ("bfloat16", "bfloat16")}[precision]
        assert (facts.precision.lower(), facts.storage_dtype, facts.compute_dtype, facts.quantization) == (precision, stored, computed, None)
    else:
        assert facts.precision == "NF4" and facts.quantization["type"] == "nf4" and facts.quantization["layers"] == 14
        assert any("embed_tokens" in name for name in facts.kept_16bit)
    assert (
        facts.device == device
        and {p.device.type for p in lane.model.parameters()} == {device}
        and facts.architecture == "Gemma3ForCausalLM"
        and facts.has_chat_template
    )


def test_weights_are_counted_once_and_with_their_scales(lane):
    model = lane.model
    expected = sum(p.numel() * p.element_size() for p in model.parameters()) + sum(b.numel() * b.element_size() for b in model.buffers())
    states = [p.quant_state for p in model.parameters() if hasattr(p, "quant_state")]
    expected += sum(s.absmax.numel() * 4 for s in states) + (states[0].code.numel() * 4 * len(states) if states else 0)
    assert lane.facts.weights_bytes == pytest.approx(expected, rel=0.02)


def test_a_lane_that_came_out_otherwise_is_not_labelled(folder, monkeypatch):
    monkeypatch.setattr(loading, "arguments_for", lambda *_: {"device_map": "cpu", "dtype": torch.bfloat16})
    with pytest.raises(InferenceError, match="BF16"):
        loaded_lane("cpu:fp32", str(folder))


def test_the_answer_ends_by_length_at_the_limit_and_by_stop_at_the_turn_end(lane, monkeypatch):
    assert answer(lane, Request("hi", max_new_tokens=7)).finish_reason in ("length", "stop")
    turn_end = lane.source.tokenizer.convert_tokens_to_ids("<end_of_turn>")
    words = lane.source.tokenizer("good morning")["input_ids"]
    lane.paths.fast = None
    monkeypatch.setattr(lane.paths, "eager", Scripted([*words, turn_end, 300]))
    done = answer(lane, Request("hi", max_new_tokens=20))
    assert (done.finish_reason, done.text, done.token_ids[-1]) == ("stop", "good morning", turn_end)
    monkeypatch.setattr(lane.paths, "eager", Scripted([words[0]] * 100))
    done = answer(lane, Request("hi", max_new_tokens=20))
    assert (done.finish_reason, len(done.token_ids)) == ("length", 20)


def test_stop_ends_the_run_at_the_next_token_with_its_figures(lane):
    events = []
    for event in lane.generate("r", Request("hi", max_new_tokens=400), lambda: len(events) > 4):
        events.append(event)
    done = events[-1]
    assert done.finish_reason == "stopped" and 3 <= len(done.token_ids) <= 6 and done.timings.ttft_s > 0


def test_a_seed_gives_the_same_draws_in_each_lane_and_run(lane):
    request = Request("hi", max_new_tokens=12, temperature=1.0, seed=5)
    assert answer(lane, request).token_ids == answer(lane, request).token_ids
    draws = [Sampler(1.0, 5).uniform() for _ in range(2)]
    assert draws[0] == draws[1]


def test_a_too_long_prompt_is_refused_before_the_weights_are_read(folder):
    lane = Lane("cpu:fp32", Settings(model_id=str(folder)))
    lane.source.read(lambda _: None)
    with pytest.raises(InferenceError, match="tokens"):
        lane.source.encode(Request("word " * 2000))
    assert not lane.loaded


def test_what_does_not_fit_is_never_read(folder, monkeypatch):
    monkeypatch.setattr(machine, "ram_available_bytes", lambda *_: 2**28)
    monkeypatch.setattr(loading, "Weights", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(Refused, match="full FP32 needs about"):
        loaded_lane("cpu:fp32", str(folder))


def test_missing_weights_are_an_error_and_not_random(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.9.renamed"] = tensors.pop("model.layers.0.self_attn.q_proj.weight")
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(InferenceError, match="q_proj"):
        loaded_lane("cpu:fp32", str(tmp_path))


def test_weights_that_are_not_finite_are_an_error(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.norm.weight"].fill_(float("nan"))
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(InferenceError, match="finite"):
        loaded_lane("cpu:fp32", str(tmp_path))


def test_a_load_tells_its_spans_and_its_progress(folder):
    seen = []
    lane = Lane("cpu:fp32", Settings(model_id=str(folder)), import_s=1.5)
    load = lane.load(seen.append).load
    assert {"import", "download", "tokenizer", "read", "values", "warm-up", "fast path"} == set(load.spans)
    assert load.total_s == pytest.approx(sum(load.spans.values()))
    assert load.spans["import"] == 1.5
    assert {"reading the tokenizer", "reading weights", "warming up"} <= {event.stage for event in seen}


def test_a_load_after_one_that_failed_counts_nothing_that_the_first_did(folder, monkeypatch):
    """One that fetched for minutes and was refused for want of memory: the next took seconds, and said minutes."""
    lane = Lane("cpu:fp32", Settings(model_id=str(folder)), import_s=1.5)
    with monkeypatch.context() as full:
        full.setattr(lane, "_try", refused)
        with pytest.raises(Refused):
            lane.load(lambda _: None)
    load = lane.load(lambda _: None).load
    assert {"read", "values", "warm-up", "fast path"} == set(load.spans) and load.total_s == pytest.approx(sum(load.spans.values()))


def refused(_):
    raise Refused("No room.")


def test_a_bf16_file_is_served_as_fp32_when_compact_storage_is_off(tmp_path):
    folder = make_checkpoint(tmp_path / "l", "llama")
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    lane = Lane("cpu:fp32", Settings(model_id=str(folder), fast=()))
    assert lane.load(lambda _: None).facts.storage_dtype == "float32"
