"""Prefill and decode on the CPU: by the step in C, or eagerly, a prompt in chunks over transformers' own cache.

In: a loaded model of a CPU lane. Out: token ids. A Stop is seen some twenty times a second inside the step, and eagerly before each layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import torch
from transformers import DynamicCache, PreTrainedModel

from inference.cpu.runner import Run, Stepper
from inference.decode.decoder import ShouldStop, never
from inference.decode.eager import EagerDecoder
from inference.decode.sampling import Sampler, checked

Step = TypeVar("Step")
LAYER_FLOP_PER_THREAD = 15e9  # some 0.3 s: a Stop is looked for before each layer
CHUNKS = (16, 256)
KINDS = {"full_attention", "sliding_attention"}
BY_LENGTH = {"dynamic", "longrope"}  # rotary frequencies that a prompt's whole length decides


class CStepDecoder:
    """Decodes by the step in C, a prompt and answer of any length."""

    path = "c-step"

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        self._run: Run | None = None
        self._logits: torch.Tensor | None = None
        self._at = 0

    def why_not(self, prompt_tokens: int, new_tokens: int) -> str | None:
        """It takes what memory takes, as far as its description holds."""
        return self._stepper.parts.why_not(prompt_tokens + new_tokens)

    def prefill(self, prompt_ids: list[int], new_tokens: int, should_stop: ShouldStop) -> Iterator[None]:
        """The whole prompt in one call."""
        self._run = self._logits = None
        run = self._stepper.begin(len(prompt_ids) + new_tokens)
        self._logits, self._at = run.try_run(prompt_ids, 0, lambda _: not should_stop()), len(prompt_ids)
        if self._logits is None:
            yield None
        else:
            self._run = run

    def decode(self, new_tokens: int, sampler: Sampler, should_stop: ShouldStop) -> Iterator[int | None]:
        """One call a token, None where a Stop was seen inside one; nothing where the prompt was not read to its end."""
        run, logits, self._run, self._logits = self._run, self._logits, None, None  # nothing of a run is held after it
        for n in range(new_tokens):
            if run is None or logits is None:
                return
            greedy = sampler.temperature == 0 and not sampler.wants_logits
            token = checked(run.best) if greedy else int(sampler.choose(logits[None]).item())
            yield token
            if n + 1 < new_tokens:
                logits = run.try_run([token], self._at + n, lambda _: not should_stop())
                if logits is None:
                    yield None


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


class ChunkedDecoder(EagerDecoder):
    """The eager way, but a long prompt in chunks, and a Stop is seen before each layer."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        self.hook = StopHook(model)
        self.chunk = chunk_rows(model.num_parameters(), len(self.hook.layers), torch.get_num_threads())

    def prefill(self, prompt_ids: list[int], new_tokens: int, should_stop: ShouldStop) -> Iterator[None]:
        """The prompt chunk by chunk."""
        self._prompt_ids = prompt_ids
        self._cache, self._logits = DynamicCache(config=self._forward.model.config), None
        yield from self._seeing(should_stop, self._chunks(prompt_ids))

    def decode(self, new_tokens: int, sampler: Sampler, should_stop: ShouldStop) -> Iterator[int | None]:
        """One forward a token, None where a Stop was seen inside one; nothing where the prompt was not read to its end."""
        if self._logits is not None:
            yield from self._seeing(should_stop, super().decode(new_tokens, sampler, should_stop))

    def _chunks(self, prompt_ids: list[int]) -> Iterator[None]:
        logits = None
        for start in range(0, len(prompt_ids), self.chunk):
            if start:
                yield None
            logits = self._forward(torch.tensor([prompt_ids[start : start + self.chunk]]), self._cache)
        self._logits = logits

    def _seeing(self, should_stop: ShouldStop, steps: Iterator[Step]) -> Iterator[Step | None]:
        """`steps`, and a None where a Stop ended one inside a forward."""
        self.hook.should_stop = should_stop
        try:
            yield from steps
        except _Stopped:
            yield None
        finally:
            self.hook.should_stop = never
            if self._logits is None:  # the prompt was not read to its end
                self._cache = None


def chunked(model: PreTrainedModel) -> bool:
    """Whether a prompt of this model may be read in chunks: not where layers are of a kind this module doesn't know, or depend on its length."""
    config = model.config.get_text_config()
    parameters = getattr(config, "rope_parameters", None) or {}
    kinds = {str(value.get("rope_type")) for value in [parameters, *parameters.values()] if isinstance(value, dict)}
    known = set(getattr(config, "layer_types", None) or ()) <= KINDS and not getattr(config, "num_kv_shared_layers", 0)
    return known and not kinds & BY_LENGTH


def chunk_rows(parameters: int, layers: int, threads: int) -> int:
    """Rows of a prompt in one forward, a multiple of 8, so that one of `layers` takes some tenths of a second and Stop is seen in time."""
    rows = LAYER_FLOP_PER_THREAD * threads * max(1, layers) / (2 * parameters)
    return min(max(int(rows) // 8 * 8, CHUNKS[0]), CHUNKS[1])
