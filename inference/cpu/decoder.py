"""Prefill in chunks and decode on the CPU: eagerly from the start, by a compiled step once there is one.

In: a model whose layers compute in FP32 (`compact`). Out: token ids, or None between two chunks of a long prompt and after
a layer that saw `should_stop`, where a Stop can be seen to. `path` tells how the latest run decoded; a run keeps the way it began with.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from inference.cpu.row_cache import row_cache
from inference.cpu.step import CompiledStep
from inference.decode.eager import Decoder, EagerDecoder
from inference.decode.sampling import Sampler

log = logging.getLogger(__name__)
LAYER_FLOP_PER_THREAD = 15e9  # some 0.3 s: a Stop is looked for before each layer
CHUNKS = (16, 256)
KINDS = {"full_attention", "sliding_attention"}
CHECK_IDS = 9


class _Stopped(Exception):
    """Raised inside a forward when its answer is not wanted any more."""


def _never() -> bool:
    return False


class CpuDecoder:
    """Decodes on the CPU over one cache for both ways; `on_run(True)` and `on_run(False)` are called around each run."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self.path = model, "eager"
        self.step: CompiledStep | None = None
        self.on_run: Callable[[bool], None] = lambda _: None
        # transformers 5.24 renamed the argument; the old name is gone in 5.40
        self.cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        self.should_stop: Callable[[], bool] = _never
        layers = getattr(model.base_model, "layers", [])
        for layer in layers:
            layer.register_forward_pre_hook(self._look)
        self.chunk = chunk_rows(model.num_parameters(), len(layers), torch.get_num_threads())

    def _look(self, *_: object) -> None:
        if self.should_stop():
            raise _Stopped

    def tokens(self, prompt_ids: list[int], limit: int, sampler: Sampler) -> Iterator[int | None]:
        """At most `limit` ids, and None where a Stop can be seen to; greedy ids are those of plain `generate`."""
        positions = len(prompt_ids) + limit
        step = self.step if positions <= window(self.model) else None
        self.path = "compiled" if step else "eager"
        cache = self.new_cache(positions)
        self.on_run(True)
        try:
            for start in range(0, len(prompt_ids), self.chunk):
                if start:
                    yield None
                logits = self.forward(torch.tensor([prompt_ids[start : start + self.chunk]]), cache)
            for n in range(limit):
                ids = sampler.choose(logits)
                yield int(ids.item())
                if n + 1 < limit:
                    logits = self._next(step, ids, cache)
        except _Stopped:
            yield None
        finally:
            self.should_stop = _never
            self.on_run(False)

    def new_cache(self, positions: int) -> Cache:
        """An empty cache with room for `positions`."""
        return row_cache(self.model.config.get_text_config().num_hidden_layers, positions)

    @torch.inference_mode()
    def forward(self, ids: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Logits (1, vocabulary) after `ids` (1, n), computed eagerly; the cache grows by n."""
        seen = cache.get_seq_length()
        positions = torch.arange(seen, seen + ids.shape[1])[None]
        output = self.model(input_ids=ids, position_ids=positions, use_cache=True, logits_to_keep=1, **{self.cache_name: cache})
        return output.logits[:, -1].float()

    @torch.inference_mode()
    def _next(self, step: CompiledStep | None, ids: torch.Tensor, cache: Cache) -> torch.Tensor:
        return step.logits(ids, cache) if step else self.forward(ids, cache)

    def use(self, path: Path) -> bool:
        """Take the compiled step in `path` if it gives the eager way's logits; the next run decodes by it."""
        try:
            step = CompiledStep(path, self.model)
            difference = self._difference(step)
        except (RuntimeError, KeyError) as error:
            log.warning("the compiled step can't be used (%s); decoding stays eager", str(error).split("\n")[0])
            return False
        if not difference < 1e-3:
            log.warning("the compiled step differs from the eager one by %.2g of the largest logit; decoding stays eager", difference)
            return False
        self.step = step
        return True

    @torch.inference_mode()
    def _difference(self, step: CompiledStep) -> float:
        """The largest difference in a logit between the two ways on the same ids, as a share of the largest logit."""
        ids, worst = torch.arange(3, 3 + CHECK_IDS)[None], 0.0
        caches = self.new_cache(CHECK_IDS), self.new_cache(CHECK_IDS)
        for cache in caches:
            self.forward(ids[:, :-3], cache)
        for i in range(CHECK_IDS - 3, CHECK_IDS):
            eager, fast = self.forward(ids[:, i : i + 1], caches[0]), step.logits(ids[:, i : i + 1], caches[1])
            worst = max(worst, float((eager - fast).abs().max() / eager.abs().max()))
        return worst


def make(model: PreTrainedModel) -> Decoder:
    """The best decoder for a model on the CPU: the plain one where layers are of a kind this module doesn't know."""
    config = model.config.get_text_config()
    known = set(getattr(config, "layer_types", None) or ()) <= KINDS and not getattr(config, "num_kv_shared_layers", 0)
    return CpuDecoder(model) if known else EagerDecoder(model)


def compilable(model: PreTrainedModel) -> bool:
    """Whether a step traced once is right at every position: not where rotary frequencies change with the length."""
    parameters = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    kinds = {str(value.get("rope_type")) for value in [parameters, *parameters.values()] if isinstance(value, dict)}
    return not kinds & {"dynamic", "longrope"}


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
