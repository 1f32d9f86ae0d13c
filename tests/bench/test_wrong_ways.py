"""The judge over a real model in bfloat16: its own other form of attention forks by rounding at the most, a planted fault never does."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from inference.bench.forks import MOST_DISTANCE, Judge
from inference.events import Request
from inference.models.private import cache_argument
from inference.settings import Settings
from tests.bench.test_forks import FakeSide
from tests.support import families

FAMILY, NEW = "gemma3", 12
PROMPT = torch.randint(3, 500, (20,), generator=torch.Generator().manual_seed(1)).tolist()  # longer than the window


def forced(model, ids, shift=0):
    """Logits [ids, vocabulary], a step each; `shift`: steps stand so many positions too far on."""
    found, start, cache = [], 0, {cache_argument(model): DynamicCache(config=model.config)}
    for given in [PROMPT, *([token] for token in ids[:-1])]:
        at = start + (shift if start else 0)
        output = model(input_ids=torch.tensor([given]), position_ids=torch.arange(at, at + len(given))[None], use_cache=True, **cache)
        found.append(output.logits[0, -1].float().numpy())
        start += len(given)
    return np.stack(found)


def one_key_more(model):
    for place in (model.config, *(layer.self_attn for layer in model.model.layers)):
        place.sliding_window = place.sliding_window and place.sliding_window + 1
    return model


WAYS = {
    "right": (lambda model: model, {}, 1.0),
    "scaled": (lambda model: model, {}, 1.02),
    "shifted": (lambda model: model, {"shift": 1}, 1.0),
    "a key more": (one_key_more, {}, 1.0),
}


@pytest.mark.parametrize("way", WAYS)
@torch.inference_mode()
def test_a_fault_is_no_rounding_and_rounding_is_no_fault(way: str) -> None:
    plain, exact, ours = (families.make(FAMILY, torch.bfloat16) for _ in range(3))
    exact = exact.float()
    ours.set_attn_implementation("eager")
    change, how, scale = WAYS[way]
    settings = {"max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    right = tuple(plain.generate(torch.tensor([PROMPT]), **settings)[0, len(PROMPT) :].tolist())
    truth, told = forced(plain, right), forced(change(ours), right, **how) * scale
    index = int(np.argmin(np.diff(np.partition(truth, -2)[:, -2:]).ravel()))  # where plain is least sure, as if ours had parted there
    with ExitStack() as stack:
        judge = Judge(Settings(), FakeSide("cuda:bf16", truth), FakeSide("cuda:bf16", told), stack)
        judge._in_fp32 = FakeSide("cuda:bf16", forced(exact, right))
        fork = judge.fork(Request("x"), right, (*right[:index], (right[index] + 1) % 512, *right[index + 1 :]))
    assert (fork.distance_ours <= MOST_DISTANCE * fork.distance_plain) == (way == "right")
    assert way == "right" or fork.rounding is False
