"""A loaded 4-bit model's fast path: prompt ids in, generated ids out, every step a captured CUDA graph of our own kernels.

Measured on one H100, 4B Gemma shape: 513 ids a second (bitsandbytes' kernels captured: 108, with compiled norms and fused
projections 214), first id of 16 after 2.7 ms, ready in 3.3 s. What helped, in order: kernels of our own for the whole step, 16-byte
loads, kernels whose start overlaps the end of the one before (`overlap`, a fifth).

Greedy, or sampled with one uniform number a step that the caller supplies. Ids are read one or two steps late, so that the device
never waits for the host; the first one at once. Nothing is captured or compiled between prompts. Knows no text, no end marks and
no clock: the caller stops iterating. Raises NotFusable or NoDeviceCode where this path can't be had; the model itself is left as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

import torch
from transformers import DynamicCache, PreTrainedModel

from inference.cuda.device_code import DeviceCode
from inference.cuda.parts import NotFusable, read_parts
from inference.cuda.step import MOST_NARROW_ROWS, FusedStep, kernel_macros, kernel_source
from inference.decode.decoder import ShouldStop
from inference.decode.eager import Forward
from inference.decode.sampling import Sampler

log = logging.getLogger(__name__)
BUCKETS = (16, MOST_NARROW_ROWS)
WIDE_ROWS = 512
LEAST_WIDE_ROWS = 512  # a narrow chunk of 32 takes 2.7 ms on a 4B model, a wide one 28 ms and more: it is not captured, the host sets its pace
STEPS_AHEAD = 2
OLDEST_CAPABILITY = (8, 0)
MOST_CONTEXT = 2304
_CHECK_IDS = 12


class GraphDecoder:
    """Decodes one prompt at a time on the model's device."""

    path = "cuda-graph"

    def __init__(self, model: PreTrainedModel, context_length: int = MOST_CONTEXT) -> None:
        """Reads the model's parts and compiles the kernels; the cache holds `context_length` positions, `MOST_CONTEXT` at most.

        Raises NotFusable for a model or device that this path doesn't know, NoDeviceCode where nothing can be compiled.
        """
        parts = read_parts(model)
        device = parts.head.device
        if device.type != "cuda" or torch.cuda.get_device_capability(device) < OLDEST_CAPABILITY:
            raise NotFusable("it is not on a CUDA device of compute capability 8.0 or newer")
        self.model, self.most = model, min(MOST_CONTEXT, context_length)
        code = DeviceCode(kernel_source(), kernel_macros(parts), device)
        self.step = FusedStep(parts, code, self.most + MOST_NARROW_ROWS)
        self._graphs: dict[str, torch.cuda.CUDAGraph] = {}
        self._last = torch.zeros(parts.hidden, dtype=torch.bfloat16, device=device)
        self._ids = {bucket: torch.zeros(bucket, dtype=torch.int64, device=device) for bucket in BUCKETS}
        self._prompt_tokens = 0
        self._history = torch.zeros(self.step.rows + 1, dtype=torch.int64, pin_memory=True)
        self._uniform = torch.zeros(1, dtype=torch.float64, device=device)
        self._temperature = torch.ones(1, dtype=torch.float32, device=device)

    def why_not(self, prompt_tokens: int, new_tokens: int) -> str | None:
        """A prompt and answer that the captured cache has no room for."""
        wanted = prompt_tokens + new_tokens
        return None if wanted <= self.most else f"{wanted:,} tokens (prompt, and answer at most) pass the {self.most:,} that its cache holds"

    @torch.no_grad()
    def make_ready(self) -> None:
        """Compare our step with the model's own, then capture every graph; raises NotFusable if they differ."""
        self._check()
        step = self.step
        work: dict[str, Callable[[], object]] = {f"prefill-{size}": partial(step.hidden, self._ids[size]) for size in BUCKETS}
        for kind, take in (("greedy", self._take_best), ("sampled", self._take_sample)):
            work[f"first-{kind}"] = partial(self._first, take)
            work[f"next-{kind}"] = partial(self._next, take)
        side, pool = torch.cuda.Stream(step.device), None
        for name, run in work.items():
            side.wait_stream(torch.cuda.current_stream(step.device))
            with torch.cuda.stream(side):
                step.position.zero_()
                run()
            torch.cuda.current_stream(step.device).wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            # "global" would let any other thread's call on the card spoil the capture
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                run()
            pool = pool or graph.pool()
            self._graphs[name] = graph
        torch.cuda.synchronize(step.device)

    def prefill(self, prompt_ids: list[int], new_tokens: int, should_stop: ShouldStop) -> Iterator[None]:
        """Fill the cache with the prompt, its last hidden row into `_last`; position is that of the last id."""
        if not prompt_ids or self.why_not(len(prompt_ids), new_tokens):
            raise ValueError(f"{len(prompt_ids)} + {new_tokens} ids don't fit into {self.most}")
        self._prompt_tokens = len(prompt_ids)
        ids = torch.tensor(prompt_ids, dtype=torch.int64).pin_memory()
        for start, size in chunks_of(len(prompt_ids)):
            if start:
                yield None
            self._chunk(ids[start : start + size], start)
        self.step.position.fill_(len(prompt_ids) - 1)

    @torch.no_grad()
    def _chunk(self, ids: torch.Tensor, start: int) -> None:
        size = len(ids)
        self.step.position.fill_(start)
        if size > MOST_NARROW_ROWS:
            row = self.step.hidden(ids.to(self.step.device, non_blocking=True), start)[-1]
        else:
            bucket = next(bucket for bucket in BUCKETS if size <= bucket)
            self._ids[bucket][:size].copy_(ids, non_blocking=True)
            self._graphs[f"prefill-{bucket}"].replay()
            row = self.step.narrow_rows[size - 1]
        self._last.copy_(row)

    def decode(self, new_tokens: int, sampler: Sampler, should_stop: ShouldStop) -> Iterator[int]:
        """Up to `new_tokens` ids, chosen on the device where the sampler doesn't want the logits. Stop iterating to stop."""
        if sampler.wants_logits:
            return self._chosen(new_tokens, sampler)
        return self._replayed(self._prompt_tokens, new_tokens, sampler)

    def _replayed(self, prompt_len: int, limit: int, sampler: Sampler) -> Iterator[int]:
        kind = "sampled" if sampler.temperature else "greedy"
        self._temperature.fill_(sampler.temperature or 1.0)
        events = [torch.cuda.Event() for _ in range(STEPS_AHEAD + 1)]
        launched = 0
        for n in range(limit):
            while launched < min(limit, n + STEPS_AHEAD if n else 1):  # nothing is queued before the first id is out
                if sampler.temperature:
                    self._uniform.fill_(sampler.uniform())
                self._graphs[f"next-{kind}" if launched else f"first-{kind}"].replay()
                events[launched % len(events)].record()
                launched += 1
            events[n % len(events)].synchronize()
            yield int(self._history[prompt_len + n])

    @torch.no_grad()
    def _chosen(self, limit: int, sampler: Sampler) -> Iterator[int]:
        """The same steps one by one, for a sampler that looks at the logits itself."""
        for n in range(limit):
            self.step.head(self.step.hidden(self.step.token)[0] if n else self._last)
            chosen = sampler.choose(self.step.logits[None]).view(1)
            self.step.take_given(chosen, self._history)
            yield int(chosen)

    def _first(self, take: Callable[[], None]) -> None:
        self.step.head(self._last)
        take()

    def _next(self, take: Callable[[], None]) -> None:
        self.step.head(self.step.hidden(self.step.token)[0])
        take()

    def _take_best(self) -> None:
        self.step.take_best(self._history)

    def _take_sample(self) -> None:
        sums = torch.softmax(self.step.logits / self._temperature, -1).cumsum(-1, dtype=torch.float64)
        chosen = torch.searchsorted(sums, self._uniform * sums[-1:]).clamp(max=sums.shape[0] - 1)
        self.step.take_given(chosen, self._history)

    def _check(self) -> None:
        """Our logits after a few ids against the model's, allowing for what rounding alone moves this model's logits.

        That is measured: many rows against one row at a time, and an embedding moved by half a bfloat16 step, once, where a
        model rounds ten times a layer. A different formula moves logits by about their own size.
        """
        ids = torch.randint(self.step.parts.head.shape[0] // 2, (_CHECK_IDS,), generator=torch.Generator().manual_seed(1)).to(self.step.device)
        embedded = self.step.parts.embed(ids[None])
        moved = embedded * (1 + torch.randn(embedded.shape, generator=torch.Generator().manual_seed(2)).to(embedded) / 512)
        many, shaken = self.model(ids[None]).logits[0, -1].float(), self.model(inputs_embeds=moved).logits[0, -1].float()
        steps, cache = Forward(self.model), DynamicCache(config=self.model.config)
        steps(ids[None, :-1], cache)
        one = steps(ids[None, -1:], cache)[0]
        self.step.position.zero_()
        self.step.hidden(ids[:-1])
        self.step.position.fill_(_CHECK_IDS - 1)
        self.step.head(self.step.hidden(ids[-1:])[0])
        error, ways, noise = (float((other - many).norm() / many.norm()) for other in (self.step.logits, one, shaken))
        log.info("our logits differ from the model's by %.4f, its own two ways by %.4f, one rounding moves them by %.4f", error, ways, noise)
        if not error < min(0.5, max(0.05, 3 * ways, 10 * noise)):
            raise NotFusable(
                f"our step's logits differ from the model's by {error:.3f}, its own two ways by {ways:.3f}, one rounding moves them by {noise:.3f}"
            )


def chunks_of(length: int) -> list[tuple[int, int]]:
    """(start, size) of the pieces in which a prompt is run: wide ones while they pay, then narrow ones."""
    pieces, start = [], 0
    while start < length:
        left = length - start
        size = min(left, WIDE_ROWS) if left >= LEAST_WIDE_ROWS else min(left, MOST_NARROW_ROWS)
        pieces.append((start, size))
        start += size
    return pieces
