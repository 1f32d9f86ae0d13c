"""What a lane does about the ways to decode: which there are, which is ready, which a run takes, and why not a faster one.

In: the loaded model, before that its configuration. Out: a decoder for each run. The eager one always is there; whatever goes wrong in
another, it answers. Knows no request, no text and no clock.
"""

from __future__ import annotations

import contextlib
import logging
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from inference.cpu import decoder as cpu
from inference.cpu import step as compiled_step
from inference.cpu.compiling import Compiler, NotCompiled
from inference.decode.decoder import Decoder, Growing
from inference.decode.eager import EagerDecoder
from inference.errors import DeviceLost
from inference.events import Report
from inference.fast import FastWays, first_line
from inference.models import facts
from inference.parts.check import as_record

log = logging.getLogger(__name__)
GRAPH, COMPILED = "cuda-graph", "compiled"
BEING_MADE = "it is being made ready"


class DecodePaths:
    """The decoders of one lane: `eager` once the model is loaded, `fast` once a faster one is ready."""

    def __init__(self, ways: FastWays, cache: Path, threads: int) -> None:
        self.ways, self._cache, self._threads = ways, cache, threads
        self.name = next((name for name in (GRAPH, COMPILED) if name in ways.names), "")
        self.eager: Decoder | None = None
        self.fast: Decoder | None = None
        self.compiler: Compiler | None = None
        self._step_file: Path | None = None
        self._held = False

    # ---- in the load

    def begin(self, config: Any, bits: int) -> None:
        """Before the weights are read: what can be made ready from the configuration, and the `bits` of a weight, goes on meanwhile."""
        if self.ways.may(GRAPH):
            from inference.cuda import prefetch

            prefetch.begin(config, torch.device("cuda"), bits)

    def take(self, model: PreTrainedModel) -> Decoder:
        """The model is loaded: the eager way to decode it."""
        self.eager = cpu.CpuDecoder(model) if model.device.type == "cpu" and cpu.chunked(model) else EagerDecoder(model)
        return self.eager

    def make_ready(self, model: PreTrainedModel, context_length: int, report: Report) -> None:
        """What belongs to the load: the captured path, or a step compiled at an earlier start."""
        if self.ways.may(GRAPH):
            self.fast = self.ways.attempt(GRAPH, lambda: self._captured(model, context_length), report)
        elif self.ways.may(COMPILED):
            self.ways.attempt(COMPILED, lambda: self._plan_step(model), ready=False)
            if self.ways.may(COMPILED) and self._step_file is not None and self._step_file.exists():
                self._take_step(self._step_file, report)

    def _captured(self, model: PreTrainedModel, context_length: int) -> Decoder:
        from inference.cuda.decoder import GraphDecoder

        decoder = GraphDecoder(model, context_length)
        decoder.choose()
        self.ways.checked = as_record(decoder.check())
        decoder.make_ready()
        return decoder

    def _plan_step(self, model: PreTrainedModel) -> None:
        cpu.check_form(model)
        self._step_file = compiled_step.file_for(model, self._cache / "inductor", self._threads)

    def _take_step(self, file: Path, report: Report | None = None) -> None:
        assert isinstance(self.eager, cpu.CpuDecoder)
        eager = self.eager
        self.fast = self.ways.attempt(COMPILED, lambda: eager.with_step(file), report)
        if self.fast is None and ("differs" in self.ways.why_not.get(COMPILED, "") or not _whole(file)):
            with contextlib.suppress(OSError):
                file.unlink()  # so that the next start makes it anew

    # ---- beside the runs

    def compile_beside(self, folder: Path) -> None:
        """Begin to compile the decode step of the checkpoint in `folder` in a process of its own, if this lane can use one and has none."""
        if not self.ways.may(COMPILED) or self.fast or self.compiler or self._step_file is None:
            return
        assert isinstance(self.eager, cpu.CpuDecoder)
        compiler = Compiler(folder, self._step_file, "compact" in self.ways.used, self._threads, facts.own_bytes(self.eager.model))
        self.ways.attempt(COMPILED, compiler.start, ready=False)
        if self.ways.may(COMPILED):
            self.compiler = compiler
            compiler.hold(self._held)

    @property
    def kernel(self) -> str | None:
        """What the products are called where a path brings its own."""
        return "own CUDA kernels, captured" if self.fast and self.name == GRAPH else None

    @property
    def pending(self) -> bool:
        """Whether a faster path than the one in use is being made ready, or waits to be taken."""
        return self.compiler is not None

    def change_over(self) -> bool:
        """Take the compiled step once its process has ended; whether anything changed. Call it between runs."""
        if self.compiler is None or (outcome := self.compiler.outcome) is None:
            return False
        self.compiler = None
        if isinstance(outcome, NotCompiled):
            self.ways.refuse(COMPILED, str(outcome))
        else:
            self._take_step(outcome)
        return True

    def hold(self, still: bool) -> None:
        """Keep the compiler still while any lane's run is measured: it would slow it manyfold."""
        self._held = still
        if compiler := self.compiler:  # the main thread may take it away meanwhile
            compiler.hold(still)

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """While open, the compiler is held for a run of this lane's own."""
        if self.compiler:
            self.compiler.hold(True)
        try:
            yield
        finally:
            if self.compiler:
                self.compiler.hold(self._held)

    # ---- between runs

    @property
    def positions(self) -> int | None:
        """How many a fast path's own cache holds; None where it has none."""
        return self.fast.positions if isinstance(self.fast, Growing) else None

    def must_grow(self, prompt_tokens: int, new_tokens: int) -> bool:
        """Whether the fast path's cache has to grow for so long a run, and can."""
        return isinstance(self.fast, Growing) and self.fast.must_grow(prompt_tokens, new_tokens)

    def grow(self, prompt_tokens: int, new_tokens: int) -> None:
        """Make room for it."""
        if isinstance(self.fast, Growing):
            self.fast.grow(prompt_tokens, new_tokens)

    def shrink(self) -> bool:
        """Give back what the cache grew by; whether it had."""
        return isinstance(self.fast, Growing) and self.fast.shrink()

    # ---- for a run

    def choose(self, prompt_tokens: int, new_tokens: int) -> tuple[Decoder, str | None]:
        """The fastest decoder that takes so long a prompt and answer, and why it is not the lane's faster path."""
        assert self.eager is not None
        if self.fast is None:
            return self.eager, self._reason(BEING_MADE if self.pending else None)
        reason = self.fast.why_not(prompt_tokens, new_tokens)
        return (self.eager, self._reason(reason)) if reason else (self.fast, None)

    def give_up(self, failed: Decoder, error: Exception) -> tuple[Decoder, str | None]:
        """`failed` raised `error` in a run: the eager way, from now on, and why. Raises `error` where that was the eager one.

        Raises DeviceLost where nothing in this process can answer any more.
        """
        if device_lost():
            raise DeviceLost(f"The GPU stopped working in this run ({first_line(error)}).") from error
        if failed is not self.fast or self.eager is None:
            raise error
        log.warning("%s failed in a run", self.name, exc_info=error)
        self.fast = None
        self.ways.refuse(self.name, f"it failed in a run: {first_line(error)}")
        return self.eager, self._reason(None)

    def _reason(self, now: str | None) -> str | None:
        why = self.ways.why_not.get(self.name) or now
        return f"{self.name}: {why}" if self.name and why else None


def _whole(file: Path) -> bool:
    """Whether a compiled step's file is all there: what failed with it then may pass (no memory, no room to unpack it)."""
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def device_lost() -> bool:
    """Whether this process's CUDA context is past use: after a fault in a kernel every call fails until the process ends."""
    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").item()
    except torch.cuda.OutOfMemoryError:
        return False
    except RuntimeError:
        return True
    return False
