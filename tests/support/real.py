"""What the tests on real weights share: lanes in this process, and the plain way to hold them against."""

from __future__ import annotations

import functools
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from inference.events import Done, Request
from inference.lane.lane import Lane
from inference.models import private
from inference.models.loading import model_arguments
from inference.settings import Settings


def loaded_lane(name: str, folder: str, cache: Path | None = None) -> Lane:
    lane = Lane(name, Settings(model_id=folder, cache_dir=str(cache or "")))
    lane.load(lambda _: None)
    return lane


def answer(lane: Lane, request: Request) -> Done:
    done = list(lane.generate("r", request, lambda: False))[-1]
    assert isinstance(done, Done)
    return done


@functools.lru_cache(maxsize=2)
def plain_model(lane_name: str, folder: str) -> PreTrainedModel:
    """The checkpoint as the snippets load it, on the lane's own load arguments; one of each lane is kept for the next who asks."""
    model = AutoModelForCausalLM.from_pretrained(folder, **model_arguments(lane_name)).eval()
    for module in model.modules():
        if private.is_four_bit(module):
            module.support_avx512bf16_for_cpu = False  # else bitsandbytes computes in bfloat16 whatever was asked
    return model


@functools.cache
def plain_ids(lane_name: str, folder: str, prompt_ids: tuple[int, ...], max_new_tokens: int, end_ids: frozenset[int]) -> list[int]:
    """The snippets' way with today's API."""
    model = plain_model(lane_name, folder)
    ids = torch.tensor([prompt_ids], device=model.device)
    pad = AutoTokenizer.from_pretrained(folder).pad_token_id or 0
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_new_tokens, do_sample=False, eos_token_id=sorted(end_ids), pad_token_id=pad
    )
    return out[0, ids.shape[1] :].tolist()
