"""The default model's real weights: both lanes give the tokens of plain generate on both of the seed's prompts."""

import pytest

from inference.events import Request
from tests.support.real import answer, plain_ids

PROMPTS = ("hello good morning may i see the menu", "ok i want two chicken biryani with couple of drinks")


@pytest.mark.parametrize("name", ["cpu:fp32", "cpu:nf4"])
def test_the_tokens_are_those_of_plain_generate(name, default_folder, default_lane):
    lane = default_lane(name)
    for prompt in PROMPTS:
        request = Request(prompt, max_new_tokens=16)
        done = answer(lane, request)
        assert list(done.token_ids) == plain_ids(name, default_folder, tuple(lane.source.encode(request)[0]), 16, lane.end_ids)
        assert done.text.strip()
