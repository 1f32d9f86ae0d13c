"""The matrix: a tiny model of each family in each CPU lane, its tokens those of plain `generate`, by the path that is said of it."""

from __future__ import annotations

import pytest
import torch

from inference.events import Request
from inference.lane.lane import Lane
from inference.settings import Settings
from tests.support import families
from tests.support.real import answer, plain_ids
from tests.support.tiny import make_tokenizer

ASKED = Request("hello good morning may i see the menu", format="raw", max_new_tokens=24)
NF4 = [*families.FAST, "gpt2", "mixtral", "mamba", "nemotron"]  # of those that are decoded eagerly, one of each way in which they differ
CASES = [("cpu:fp32", name) for name in (families.FAST | families.EAGER)] + [("cpu:nf4", name) for name in NF4]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """One cache for all, so that the C library is built once."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(("lane_name", "name"), CASES)
def test_a_family_is_answered_as_plain_generate_does(lane_name: str, name: str, kernels, tmp_path) -> None:
    families.make(name).to(torch.bfloat16).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    lane = Lane(lane_name, Settings(model_id=str(tmp_path), cache_dir=str(kernels)))
    facts = lane.load(lambda _: None).facts
    done = answer(lane, ASKED)
    assert list(done.token_ids) == plain_ids(lane_name, str(tmp_path), tuple(lane.source.encode(ASKED).ids), ASKED.max_new_tokens, lane.end_ids)
    assert done.path == ("c-step" if name in families.FAST else "eager"), facts.fast_why_not
