"""Prefill and decode on a loaded model: prompt ids in, token ids out, one at a time.

A decoder is anything with `path` and `tokens(...)`; faster ones stand beside `EagerDecoder` and nothing above
knows how they work. The caller checks for end marks and Stop between two ids, and just stops iterating.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Protocol

import torch
from transformers import DynamicCache, PreTrainedModel

from inference.decode.sampling import Sampler


class Decoder(Protocol):
    """Gives the ids of an answer; `path` is eager, compiled or cuda-graph."""

    path: str

    def tokens(self, prompt_ids: list[int], limit: int, sampler: Sampler) -> Iterator[int | None]:
        """At most `limit` ids, each on the host when it is yielded; before the first, None where a Stop can be seen to."""
        ...


class EagerDecoder:
    """The plain way: one forward of the prompt, then one forward a token over a growing cache."""

    path = "eager"

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        # transformers 5.24 renamed the argument; the old name is gone in 5.40
        self._cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"

    def tokens(self, prompt_ids: list[int], limit: int, sampler: Sampler) -> Iterator[int]:
        """The ids that `generate(do_sample=False)` gives, when the sampler is greedy; ends after `limit`."""
        cache = DynamicCache(config=self.model.config)
        ids = torch.tensor([prompt_ids], device=self.model.device)
        for _ in range(limit):
            ids = sampler.choose(self._forward(ids, cache))
            yield int(ids.item())

    @torch.inference_mode()
    def _forward(self, ids: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
        seen = cache.get_seq_length()
        positions = torch.arange(seen, seen + ids.shape[1], device=ids.device)[None]
        output = self.model(input_ids=ids, position_ids=positions, use_cache=True, logits_to_keep=1, **{self._cache_name: cache})
        return output.logits[:, -1].float()
