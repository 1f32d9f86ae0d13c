"""The matrix: a tiny model of each family in each CPU lane, its tokens those of plain `generate`, by the path that is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from inference.errors import InferenceError
from inference.events import Request
from inference.lane.lane import Lane
from inference.settings import Settings
from tests.support import families
from tests.support.real import answer, plain_ids
from tests.support.tiny import make_tokenizer

ASKED = Request("hello good morning may i see the menu", format="raw", max_new_tokens=24)
NF4 = [*families.FAST, "gpt2", "mixtral", "nemotron"]  # of those that are decoded eagerly, one of each way in which they differ
CASES = [("cpu:fp32", name) for name in (families.FAST | families.EAGER)] + [("cpu:nf4", name) for name in NF4]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """One cache for all, so that the C library is built once."""
    return tmp_path_factory.mktemp("cache")


def lane_of(lane_name: str, name: str, folder: Path, cache: Path) -> Lane:
    families.make(name).to(torch.bfloat16).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return Lane(lane_name, Settings(model_id=str(folder), cache_dir=str(cache)))


@pytest.mark.parametrize(("lane_name", "name"), CASES)
def test_a_family_is_answered_as_plain_generate_does(lane_name: str, name: str, kernels, tmp_path) -> None:
    lane = lane_of(lane_name, name, tmp_path, kernels)
    facts = lane.load(lambda _: None).facts
    done = answer(lane, ASKED)
    assert list(done.token_ids) == plain_ids(lane_name, str(tmp_path), tuple(lane.source.encode(ASKED).ids), ASKED.max_new_tokens, lane.end_ids)
    assert done.path == ("c-step" if name in families.FAST else "eager"), facts.fast_why_not


@pytest.mark.parametrize("lane_name", ["cpu:fp32", "cpu:nf4"])
def test_queries_that_grow_with_their_position_are_those_of_the_model(lane_name: str, kernels, tmp_path) -> None:
    """Ministral 3 scales its queries past its original length, further than a fast path is tried: a long prompt got another model's answer."""
    lane = lane_of(lane_name, "ministral3", tmp_path, kernels)
    lane.load(lambda _: None)
    for words, path in ((40, "c-step"), (120, "eager"), (150, "eager")):
        asked = Request("hello may i see the menu " * (words // 6), format="raw", max_new_tokens=24)
        ids, done = tuple(lane.source.encode(asked).ids), answer(lane, asked)
        assert list(done.token_ids) == plain_ids(lane_name, str(tmp_path), ids, asked.max_new_tokens, lane.end_ids)
        assert done.path == path and (path == "c-step" or "past 128 positions its queries grow" in done.path_reason)


@pytest.mark.parametrize(("kind", "words"), [("xlnet", "keeps its state in no cache"), ("xlm", "can't be computed with in this lane")])
def test_a_model_that_reads_no_text_from_left_to_right_is_told(kind: str, words: str, kernels, tmp_path) -> None:
    """XLNet's context of -1 was taken for a length, and XLM's own reading of a cache ended the load in a trace."""
    sizes = {"xlnet": {"d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128}, "xlm": {"emb_dim": 64, "n_layers": 2, "n_heads": 4, "causal": True}}
    AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **families.IDS, vocab_size=512, **sizes[kind])).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(InferenceError, match=words):
        Lane("cpu:fp32", Settings(model_id=str(tmp_path), cache_dir=str(kernels))).load(lambda _: None)


@pytest.mark.parametrize(("name", "words"), [("mamba", "can't be computed with in this lane"), ("falcon", "no layer that bitsandbytes puts in 4 bits")])
def test_a_family_that_can_not_be_in_4_bits_is_refused(name: str, words: str, kernels, tmp_path) -> None:
    with pytest.raises(InferenceError, match=words):
        lane_of("cpu:nf4", name, tmp_path, kernels).load(lambda _: None)


def test_a_family_with_a_cache_of_its_own_is_refused(kernels, tmp_path) -> None:
    values = families.SHORT | {"num_local_experts": 4, "layer_types": ["linear_attention", "full_attention"], "block_size": 32}
    AutoModelForCausalLM.from_config(AutoConfig.for_model("minimax", **values)).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(InferenceError, match="MiniMaxForCausalLM can't be computed with in this lane .*cache of its own.* Choose another model"):
        Lane("cpu:fp32", Settings(model_id=str(tmp_path), cache_dir=str(kernels))).load(lambda _: None)


@pytest.mark.parametrize(("name", "words"), [("mamba", "dtype"), ("mamba2", "rounds what a layer is given to bfloat16")])
def test_a_matrix_that_the_model_reads_past_its_layer_is_not_stored_compactly(name: str, words: str, kernels, tmp_path) -> None:
    """Mamba-2 rounds its last states to the dtype of its head: the FP32 lane answered in bfloat16, and our product read past what it was given."""
    facts = lane_of("cpu:fp32", name, tmp_path, kernels).load(lambda _: None).facts
    assert words in facts.fast_why_not["compact"] and "compact" not in facts.fast_used and set(facts.held) == {"float32"}
