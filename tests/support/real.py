"""What the tests on real weights share: lanes in this process, and the plain way to hold them against."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from inference.events import Done, Request
from inference.lane.lane import Lane
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


def plain_ids(lane_name: str, folder: str, prompt_ids: tuple[int, ...], max_new_tokens: int, end_ids: frozenset[int]) -> list[int]:
    """The snippets' way with today's API, on the lane's own load arguments."""
    model = AutoModelForCausalLM.from_pretrained(folder, **model_arguments(lane_name))
    ids = torch.tensor([prompt_ids], device=model.device)
    pad = AutoTokenizer.from_pretrained(folder).pad_token_id or 0
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_new_tokens, do_sample=False, eos_token_id=sorted(end_ids), pad_token_id=pad
    )
    return out[0, ids.shape[1] :].tolist()
