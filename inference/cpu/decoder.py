"""Prefill in chunks and decode on the CPU over one cache: eagerly, or by a compiled step.

In: a loaded model of a CPU lane, in whatever it computes in. Out: token ids; a Stop is seen between two chunks of a long prompt
and before each layer. A run keeps the way it began with.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from inference.cpu.row_cache import row_cache
from inference.cpu.step import CompiledStep
from inference.decode.decoder import ShouldStop, never
from inference.decode.eager import Forward
from inference.decode.sampling import Sampler
from inference.errors import InferenceError
from inference.models.private import CacheLayer

LAYER_FLOP_PER_THREAD = 15e9  # some 0.3 s: a Stop is looked for before each layer
CHUNKS = (16, 256)
KINDS = {"full_attention", "sliding_attention"}
CHECK_IDS = 9
MOST_DIFFERENCE = 1e-3


class _Stopped(Exception):
    """Raised inside a forward when its answer is not wanted any more."""


class StopHook:
    """Ends a forward of `model` before its next layer once the run at hand is to stop."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.should_stop: ShouldStop = never
        self.layers = list(getattr(model.get_decoder(), "layers", []))
        for layer in self.layers:
            layer.register_forward_pre_hook(self._look)

    def _look(self, *_: object) -> None:
        if self.should_stop():
            raise _Stopped


class CpuDecoder:
    """Decodes on the CPU with the model's own code, or its steps by a compiled `step`."""

    def __init__(self, model: PreTrainedModel, step: CompiledStep | None = None, hook: StopHook | None = None) -> None:
        self.model, self.step = model, step
        self.path = "compiled" if step else "eager"
        self.forward = Forward(model)
        self.hook = hook or StopHook(model)
        self.chunk = chunk_rows(model.num_parameters(), len(self.hook.layers), torch.get_num_threads())
        self._cache: Cache | None = None
        self._logits: torch.Tensor | None = None

    def with_step(self, file: Path) -> CpuDecoder:
        """The decoder of the same model by the compiled step in `file`.

        Raises InferenceError where it gives other logits than the eager way, RuntimeError or KeyError where it doesn't fit the model.
        """
        fast = CpuDecoder(self.model, CompiledStep(file, self.model), self.hook)
        difference = fast.difference()
        if not difference < MOST_DIFFERENCE:
            raise InferenceError(f"the compiled step differs from the eager one by {difference:.2g} of the largest logit")
        return fast

    def why_not(self, prompt_tokens: int, new_tokens: int) -> str | None:
        """Past the sliding window, where the step, which has no mask, would look at too much."""
        most = window(self.model)
        return None if self.step is None or prompt_tokens + new_tokens <= most else f"prompt and answer pass the sliding window of {most} tokens"

    def prefill(self, prompt_ids: list[int], new_tokens: int, should_stop: ShouldStop) -> Iterator[None]:
        """The prompt chunk by chunk."""
        cache = self.new_cache(len(prompt_ids) + new_tokens)
        self._cache, self._logits = cache, None
        self.hook.should_stop = should_stop
        try:
            logits = None
            for start in range(0, len(prompt_ids), self.chunk):
                if start:
                    yield None
                logits = self.forward(torch.tensor([prompt_ids[start : start + self.chunk]]), cache)
            self._logits = logits
        except _Stopped:
            yield None
        finally:
            self.hook.should_stop = never

    def decode(self, new_tokens: int, sampler: Sampler, should_stop: ShouldStop) -> Iterator[int | None]:
        """One step a token, None where a Stop was seen inside one; nothing where the prompt was not read to its end."""
        logits, cache, self._logits, self._cache = self._logits, self._cache, None, None
        if logits is None or cache is None:
            return
        self.hook.should_stop = should_stop
        try:
            for n in range(new_tokens):
                ids = sampler.choose(logits)
                yield int(ids.item())
                if n + 1 < new_tokens:
                    logits = self._next(ids, cache)
        except _Stopped:
            yield None
        finally:
            self.hook.should_stop = never

    def new_cache(self, positions: int) -> Cache:
        """An empty cache with room for `positions`."""
        return row_cache(self.model.config.get_text_config().num_hidden_layers, positions)

    @torch.inference_mode()
    def _next(self, ids: torch.Tensor, cache: Cache) -> torch.Tensor:
        return self.step.logits(ids, cache) if self.step else self.forward(ids, cache)

    @torch.inference_mode()
    def difference(self) -> float:
        """The largest difference in a logit between the step and the eager way on the same ids, as a share of the largest logit."""
        ids, worst = torch.arange(3, 3 + CHECK_IDS)[None], 0.0
        caches = self.new_cache(CHECK_IDS), self.new_cache(CHECK_IDS)
        for cache in caches:
            self.forward(ids[:, :-3], cache)
        for i in range(CHECK_IDS - 3, CHECK_IDS):
            eager, fast = self.forward(ids[:, i : i + 1], caches[0]), self._next(ids[:, i : i + 1], caches[1])
            worst = max(worst, float((eager - fast).abs().max() / eager.abs().max()))
        return worst


def chunked(model: PreTrainedModel) -> bool:
    """Whether a prompt of this model may be read in chunks over our cache: not where layers are of a kind this module doesn't know,
    or where transformers' cache has no layers of ours.
    """
    config = model.config.get_text_config()
    known = set(getattr(config, "layer_types", None) or ()) <= KINDS and not getattr(config, "num_kv_shared_layers", 0)
    return known and CacheLayer is not None


def compilable(model: PreTrainedModel) -> bool:
    """Whether a step traced once is right at every position: not where rotary frequencies change with the length."""
    parameters = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    kinds = {str(value.get("rope_type")) for value in [parameters, *parameters.values()] if isinstance(value, dict)}
    return not kinds & {"dynamic", "longrope"}


def check_form(model: PreTrainedModel) -> None:
    """Raise InferenceError for a model whose steps are not compiled, as far as one without weights can tell."""
    if not chunked(model):
        raise InferenceError("this model has layers of a kind that is not compiled here")
    if not compilable(model):
        raise InferenceError("its rotary embedding depends on the length")


def window(model: PreTrainedModel) -> int:
    """Positions up to which every layer sees all of them, so that the step, which has no mask, is exact."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    if kinds and "sliding_attention" not in kinds:
        return 2**31
    return int(getattr(config, "sliding_window", None) or 2**31)


def chunk_rows(parameters: int, layers: int, threads: int) -> int:
    """Rows of a prompt in one forward, a multiple of 8, so that one of `layers` takes some tenths of a second and Stop is seen in time."""
    rows = LAYER_FLOP_PER_THREAD * threads * max(1, layers) / (2 * parameters)
    return min(max(int(rows) // 8 * 8, CHUNKS[0]), CHUNKS[1])
