"""A loaded model's fast path on a GPU: prompt ids in, generated ids out, every step a captured CUDA graph of our own kernels.

Measured on one H200, 4B Gemma shape: 697 ids a second in 4 bits, 398 in bfloat16. What helped, in order: kernels of our own for the whole
step, 16-byte loads, one kernel for all of a step, whose weights are fetched ahead of its barriers.

Greedy, or sampled with one uniform number a step that the caller supplies. Ids are read one or two steps late, so that the device
never waits for the host; the first one at once. Nothing is captured or compiled between prompts; the cache grows there, and shrinks. Knows no
text, no end marks and no clock: the caller stops iterating. Raises NotUnderstood or NoDeviceCode where this path can't be had; the model
itself is left as it was.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

from inference.cuda import kernels
from inference.cuda.device_code import DeviceCode, NoDeviceCode, compile_in_a_thread
from inference.cuda.packed import pack
from inference.cuda.prefill import chunks_of
from inference.cuda.program import Kernel, Layout, Program, layout, program_source
from inference.cuda.room import CacheRoom
from inference.cuda.runner import Runner
from inference.cuda.step import MOST_NARROW_ROWS
from inference.decode.decoder import ShouldStop
from inference.decode.sampling import Sampler, checked
from inference.parts.check import Tried, let_in
from inference.parts.description import ModelParts, NotUnderstood
from inference.parts.reader import read_parts

log = logging.getLogger(__name__)
BUCKETS = (16, MOST_NARROW_ROWS)
MOST_NARROW_IDS = 2 * MOST_NARROW_ROWS  # a longer prompt is read the wide way, which costs as much as two narrow passes, but leans on the host
STEPS_AHEAD = 2
OLDEST_CAPABILITY = (7, 5)
OLDEST_BF16 = (8, 0)  # before it bfloat16 is emulated


class GraphDecoder:
    """Decodes one prompt at a time on the model's device."""

    path = "cuda-graph"

    def __init__(self, model: PreTrainedModel, context_length: int) -> None:
        """Reads the model's parts and compiles the kernels; prompt and answer may come to `context_length` ids.

        Raises NotUnderstood for a model or device that this path doesn't know, NoDeviceCode where nothing can be compiled.
        """
        packed = pack(read_parts(model))
        parts = packed.parts
        device = parts.device
        check_device(device, packed.wide)
        self.model, self.parts = model, parts
        macros = kernels.macros(parts, packed.bits, packed.wide, packed.head_bits)
        one_kernel = None if packed.wide else self._layout()
        if one_kernel:  # where it was compiled beforehand, this ends at once
            compile_in_a_thread((program_source(), one_kernel.macros), device=device)
        self._code = DeviceCode(kernels.source(macros), macros, device)
        self.room = CacheRoom(parts, context_length)
        self._kernel = self._one_kernel(one_kernel)
        self.runner = Runner(packed, self._code, self.room.rows, self._kernel)
        self.step, self._memory = self.runner.step, self.runner.memory
        self._graphs: dict[str, torch.cuda.CUDAGraph] = {}
        self._pool: Any = None
        self._last = torch.zeros(parts.hidden, dtype=parts.final_norm.dtype, device=device)
        self._ids = {bucket: torch.zeros(bucket, dtype=torch.int64, device=device) for bucket in BUCKETS}
        self._prompt_tokens = 0

    # ---- in the load

    def _layout(self) -> Layout | None:
        """Of the one-kernel step, where it has a form for this model and device."""
        properties = torch.cuda.get_device_properties(self.parts.device)
        try:
            return layout(self.parts, properties.multi_processor_count, properties.shared_memory_per_block_optin)
        except NotUnderstood as reason:
            log.info("a row goes through separate kernels: %s", reason)
            return None

    def _one_kernel(self, found: Layout | None) -> Kernel | None:
        if found is None or not self._code.cooperative:  # without it a device can't start all blocks together
            return None
        try:
            return Kernel(DeviceCode(program_source(), found.macros, self._code.device), found)
        except NoDeviceCode as reason:
            log.info("a row goes through separate kernels: %s", reason)
            return None

    def check(self) -> tuple[Tried, ...]:
        """Our step beside the model's own; raises NotUnderstood where they differ by more than the model's own two ways."""

        def build(parts: ModelParts, positions: int) -> Runner:
            return self.runner if parts is self.parts else Runner(pack(parts), self._code, positions, self._kernel if self.runner.program else None)

        return let_in(self.model, self.parts, build)

    @torch.no_grad()
    def choose(self) -> None:
        """Keep the one-kernel step only where it is the faster one: that depends on the card."""
        program = self.runner.program
        if program is None:
            return
        self._memory.position.zero_()
        whole, several = (self._time_of(candidate) for candidate in (program, None))
        self.runner.program = program if whole <= several else None
        log.info("a step takes %.2f ms in one kernel, %.2f ms in several", 1e3 * whole, 1e3 * several)

    def _time_of(self, program: Program | None) -> float:
        """Seconds of a step that goes so; infinite where it does not start: all blocks of one kernel must be there at once, and others may have a
        part of the card (MPS).
        """
        self.runner.program = program
        try:
            graph = self._captured(partial(self.runner.next, commit=False))
        except NoDeviceCode:
            log.info("a step that does not start", exc_info=True)
            return math.inf
        return min(_seconds(graph, self.step.device) for _ in range(4))

    @torch.no_grad()
    def make_ready(self) -> None:
        """Capture every graph."""
        step = self.step
        work: dict[str, Callable[[], object]] = {f"prefill-{size}": partial(step.hidden, self._ids[size]) for size in BUCKETS}
        work |= {"first-greedy": self._first_best, "first-sampled": self._first_sample}
        work |= {"next-greedy": partial(self.runner.next, commit=True), "next-sampled": self._next_sample}
        for name, run in work.items():
            self._graphs[name] = self._captured(run)
        torch.cuda.synchronize(step.device)

    def _captured(self, run: Callable[[], object]) -> torch.cuda.CUDAGraph:
        device = self.step.device
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            self._memory.position.zero_()
            run()
        torch.cuda.current_stream(device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # "global" would let any other thread's call on the card spoil the capture
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            run()
        self._pool = self._pool or graph.pool()
        return graph

    # ---- between runs

    def why_not(self, prompt_tokens: int, new_tokens: int) -> str | None:
        """A prompt and answer that the cache has no room for, nor the card for a larger one."""
        return self.room.why_not(prompt_tokens + new_tokens)

    def must_grow(self, prompt_tokens: int, new_tokens: int) -> bool:
        """Whether `grow` has to come before this run; False where it can't have the room anyway."""
        return self.room.must_grow(prompt_tokens + new_tokens)

    def grow(self, prompt_tokens: int, new_tokens: int) -> None:
        """Make room for so long a run; where the card can't after all, `why_not` says so from then on."""
        self.room.grow(self._memory, prompt_tokens + new_tokens)

    def shrink(self) -> bool:
        """Give back what the cache grew by; False where it had not."""
        return self.room.shrink(self._memory)

    @property
    def positions(self) -> int:
        """How many the cache holds."""
        return self.room.rows

    # ---- in a run

    def prefill(self, prompt_ids: list[int], new_tokens: int, should_stop: ShouldStop) -> Iterator[None]:
        """Fill the cache with the prompt, its last hidden row into `_last`; position is that of the last id."""
        if not prompt_ids or len(prompt_ids) + new_tokens > self.positions:
            raise ValueError(f"{len(prompt_ids)} + {new_tokens} ids don't fit into {self.positions}")
        self._prompt_tokens = len(prompt_ids)
        ids = torch.tensor(prompt_ids, dtype=torch.int64).pin_memory()
        for start, size in chunks_of(len(prompt_ids), MOST_NARROW_IDS, MOST_NARROW_ROWS):
            if start:
                yield None
            self._chunk(ids[start : start + size], start)
        self._memory.position.fill_(len(prompt_ids) - 1)

    @torch.no_grad()
    def _chunk(self, ids: torch.Tensor, start: int) -> None:
        size = len(ids)
        if size > MOST_NARROW_ROWS:
            row = self.runner.wide.row(ids.to(self.step.device, non_blocking=True), start)
        else:
            self._memory.position.fill_(start)
            bucket = next(bucket for bucket in BUCKETS if size <= bucket)
            self._ids[bucket][:size].copy_(ids, non_blocking=True)
            self._graphs[f"prefill-{bucket}"].replay()
            row = self.step.narrow_rows[size - 1]
        self._last.copy_(row)

    def decode(self, new_tokens: int, sampler: Sampler, should_stop: ShouldStop) -> Iterator[int]:
        """Up to `new_tokens` ids, chosen on the device where the sampler doesn't want the logits. Stop iterating to stop.

        Raises InferenceError where no id follows from the logits.
        """
        if sampler.wants_logits:
            return self._chosen(new_tokens, sampler)
        return self._replayed(self._prompt_tokens, new_tokens, sampler)

    def _replayed(self, prompt_len: int, limit: int, sampler: Sampler) -> Iterator[int]:
        kind = "sampled" if sampler.temperature else "greedy"
        self.runner.temperature.fill_(sampler.temperature or 1.0)
        events = [torch.cuda.Event() for _ in range(STEPS_AHEAD + 1)]
        launched = 0
        for n in range(limit):
            while launched < min(limit, n + STEPS_AHEAD if n else 1):  # nothing is queued before the first id is out
                if sampler.temperature:
                    self.runner.uniform.fill_(sampler.uniform())
                self._graphs[f"next-{kind}" if launched else f"first-{kind}"].replay()
                events[launched % len(events)].record()
                launched += 1
            events[n % len(events)].synchronize()
            yield checked(int(self._memory.history[prompt_len + n]))

    @torch.no_grad()
    def _chosen(self, limit: int, sampler: Sampler) -> Iterator[int]:
        """The same steps one by one, for a sampler that looks at the logits itself."""
        for n in range(limit):
            if n:
                self.runner.next(commit=False)
            else:
                self.step.head(self._last)
            chosen = sampler.choose(self.step.logits[None]).view(1)
            self.step.take_given(chosen)
            yield int(chosen)

    def _first_best(self) -> None:
        self.step.head(self._last)
        self.step.take_best()

    def _first_sample(self) -> None:
        self.step.head(self._last)
        self.step.take_given(self.runner.choose())

    def _next_sample(self) -> None:
        self.runner.next(commit=False)
        self.step.take_given(self.runner.choose())


def _seconds(graph: torch.cuda.CUDAGraph, device: torch.device) -> float:
    """A replay's time, over a few of them."""
    torch.cuda.synchronize(device)
    began = time.perf_counter()
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize(device)
    return (time.perf_counter() - began) / 5


def check_device(device: torch.device, wide: bool) -> None:
    """Raise NotUnderstood for a device that the kernels can't run on; `wide`: in float32."""
    oldest = OLDEST_CAPABILITY if wide else OLDEST_BF16
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < oldest:
        raise NotUnderstood(f"it is not on a CUDA device of compute capability {oldest[0]}.{oldest[1]} or newer")
