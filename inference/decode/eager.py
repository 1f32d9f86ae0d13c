"""The plain way to decode: one forward of the prompt, then one forward a token over a growing cache, as transformers does it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from inference.decode.decoder import ShouldStop
from inference.decode.sampling import Sampler
from inference.errors import InferenceError
from inference.models.private import cache_argument, read_again_after, state_keepers


class EagerDecoder:
    """Decodes with the model's own code; greedy ids are those of `generate(do_sample=False)`."""

    path = "eager"

    def __init__(self, model: PreTrainedModel) -> None:
        self._forward = Forward(model)
        self._again_after = read_again_after(model)
        self._prompt_ids: list[int] = []
        self._cache: Any = None
        self._logits: torch.Tensor | None = None

    def why_not(self, prompt_tokens: int, new_tokens: int) -> str | None:
        """It takes what the model takes."""
        return None

    def prefill(self, prompt_ids: list[int], new_tokens: int, should_stop: ShouldStop) -> Iterator[None]:
        """The whole prompt in one forward."""
        self._prompt_ids = prompt_ids
        self._cache = None  # of a run that was stopped before its first token: the two never lie in memory together
        cache = DynamicCache(config=self._forward.model.config)
        self._logits = self._forward(torch.tensor([prompt_ids]), cache)
        self._cache = cache  # not before: where memory runs out in the forward, nothing of the run is held
        yield from ()

    def decode(self, new_tokens: int, sampler: Sampler, should_stop: ShouldStop) -> Iterator[int | None]:
        """One forward a token, of all ids where `generate` reads them again."""
        assert self._logits is not None
        logits, cache, known = self._logits, self._cache, list(self._prompt_ids)
        self._logits = self._cache = None  # nothing of a run is held after it
        for n in range(new_tokens):
            ids = sampler.choose(logits)
            known.append(int(ids.item()))
            yield known[-1]
            if n + 1 < new_tokens:
                if len(known) - 1 == self._again_after:
                    ids, cache = torch.tensor([known]), DynamicCache(config=self._forward.model.config)
                logits = self._forward(ids, cache)


class Forward:
    """A model's forward over a cache: ids (1, n) in, logits (1, vocabulary) FP32 after the last of them out; the cache grows by n."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.cache_name = cache_argument(model)
        self._keepers = state_keepers(model)

    @torch.inference_mode()
    def __call__(self, ids: torch.Tensor, cache: Any) -> torch.Tensor:
        """Logits after `ids`, computed with the model's own code."""
        ids = ids.to(self.model.device)
        seen = _positions(cache)
        for module in () if seen else self._keepers:
            module.conv1d_state = None  # its code makes all of it anew
        positions = torch.arange(seen, seen + ids.shape[1], device=ids.device)[None]
        output = self.model(input_ids=ids, position_ids=positions, use_cache=True, logits_to_keep=1, **{self.cache_name: cache})
        return output.logits[:, -1].float()


def _positions(cache: Any) -> int:
    """The positions in a cache; one of states alone (Mamba) counts none, and its models read none."""
    try:
        return int(cache.get_seq_length())
    except ValueError:
        return 0


@torch.inference_mode()
def check_state(model: PreTrainedModel, ids: list[int]) -> None:
    """Raise InferenceError where a token after a cache is computed as if the cache were not there: a model that keeps its state elsewhere.

    Three forwards of a few `ids`: all at once, the last after a cache of the others, and the last alone.
    """
    forward = Forward(model)
    ids = ids if len(ids) > 1 else ids * 2

    def after(*pieces: list[int]) -> torch.Tensor:
        cache = DynamicCache(config=model.config)
        return [forward(torch.tensor([piece]), cache) for piece in pieces][-1]

    truth, cached, alone = after(ids), after(ids[:-1], ids[-1:]), after(ids[-1:])
    if not (cached - truth).norm() <= (alone - truth).norm() / 2:
        raise InferenceError(f"{type(model).__name__} keeps its state where this lane doesn't find it, so its answers would be wrong. Choose another model.")
