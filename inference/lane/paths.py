"""What a lane does about the ways to decode: which there are, which is ready, which a run takes, and why not a faster one.

In: the loaded model, before that its configuration. Out: a decoder for each run. The eager one always is there; whatever goes wrong in
another, it answers. Knows no request, no text and no clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from transformers import PreTrainedModel

from inference.cpu import decoder as cpu
from inference.cpu import install
from inference.cpu.library import Library
from inference.decode.decoder import Decoder, Growing
from inference.decode.eager import EagerDecoder
from inference.decode.sampling import NotFinite
from inference.errors import DeviceLost, short_of_memory
from inference.events import Report
from inference.fast import FastWays, first_line
from inference.parts.check import as_record

log = logging.getLogger(__name__)
Changed = TypeVar("Changed")
GRAPH, STEP = "cuda-graph", install.STEP
KERNELS = {GRAPH: "own CUDA kernels, captured", STEP: "own C, a step a call"}


class DecodePaths:
    """The decoders of one lane: `eager` once the model is loaded, `fast` where a faster one is ready."""

    def __init__(self, ways: FastWays) -> None:
        self.ways = ways
        self.name = next((name for name in KERNELS if name in ways.names), "")
        self.eager: Decoder | None = None
        self.fast: Decoder | None = None

    # ---- in the load

    def begin(self, config: Any, bits: int) -> None:
        """Before the weights are read: what can be made ready from the configuration, and the `bits` of a weight, goes on meanwhile."""
        if self.ways.may(GRAPH):
            from inference.cuda import prefetch

            prefetch.begin(config, torch.device("cuda"), bits)

    def take(self, model: PreTrainedModel) -> Decoder:
        """The model is loaded: the eager way to decode it."""
        self.eager = cpu.ChunkedDecoder(model) if model.device.type == "cpu" and cpu.chunked(model) else EagerDecoder(model)
        return self.eager

    def make_ready(self, model: PreTrainedModel, library: Library | None, context_length: int, report: Report) -> None:
        """The captured path, or the step in C."""
        if self.ways.may(GRAPH):
            self.fast = self.ways.attempt(GRAPH, lambda: self._captured(model, context_length), report)
        elif library is not None:
            self.fast = self.ways.attempt(STEP, lambda: install.step(model, library, self.ways), report)

    def _captured(self, model: PreTrainedModel, context_length: int) -> Decoder:
        from inference.cuda.decoder import GraphDecoder

        decoder = GraphDecoder(model, context_length)
        decoder.choose()
        self.ways.checked = as_record(decoder.check())
        decoder.make_ready()
        return decoder

    @property
    def kernel(self) -> str | None:
        """What the products are called where a path brings its own."""
        return KERNELS[self.name] if self.fast else None

    # ---- between runs

    @property
    def positions(self) -> int | None:
        """How many a fast path's own cache holds; None where it has none."""
        return self.fast.positions if isinstance(self.fast, Growing) else None

    def must_grow(self, prompt_tokens: int, new_tokens: int) -> bool:
        """Whether the fast path's cache has to grow for so long a run, and can."""
        return isinstance(self.fast, Growing) and self.fast.must_grow(prompt_tokens, new_tokens)

    def grow(self, prompt_tokens: int, new_tokens: int) -> None:
        """Make room for it; whatever goes wrong there, the eager way answers."""
        if isinstance(self.fast, Growing):
            fast = self.fast
            self._changed(lambda: fast.grow(prompt_tokens, new_tokens))

    def shrink(self) -> bool:
        """Give back what the cache grew by; whether it had."""
        return isinstance(self.fast, Growing) and bool(self._changed(self.fast.shrink))

    def _changed(self, work: Callable[[], Changed]) -> Changed | None:
        """A change of the fast path's cache; without it the path is given up."""
        assert self.fast is not None
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - as in a run
            self.give_up(self.fast, error)
            return None

    # ---- for a run

    def choose(self, prompt_tokens: int, new_tokens: int) -> tuple[Decoder, str | None]:
        """The fastest decoder that takes so long a prompt and answer, and why it is not the lane's faster path."""
        assert self.eager is not None
        if self.fast is None:
            return self.eager, self._reason(None)
        reason = self.fast.why_not(prompt_tokens, new_tokens)
        return (self.eager, self._reason(reason)) if reason else (self.fast, None)

    def give_up(self, failed: Decoder, error: Exception) -> tuple[Decoder, str | None]:
        """`failed` raised `error` in a run: the eager way, from now on or for logits that are not finite in this run, and why. Raises `error` where that was the eager one.

        Raises DeviceLost where nothing in this process can answer any more.
        """
        if device_lost():
            raise DeviceLost(f"The GPU stopped working in this run ({first_line(error)}).") from error
        if failed is not self.fast or self.eager is None:
            raise error
        if isinstance(error, NotFinite):  # the path stays: the eager way tells whether it is the model that has no finite logits here
            return self.eager, self._reason(f"in this run {first_line(error)}")
        log.warning("%s failed in a run", self.name, exc_info=error)
        self.fast = None
        self.ways.refuse(self.name, f"it failed in a run: {first_line(error)}")
        return self.eager, self._reason(None)

    def _reason(self, now: str | None) -> str | None:
        why = self.ways.why_not.get(self.name) or now
        return f"{self.name}: {why}" if self.name and why else None


def device_lost() -> bool:
    """Whether this process's CUDA context is past use: after a fault in a kernel every call fails until the process ends."""
    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").item()
    except RuntimeError as error:
        return not short_of_memory(error)
    return False
