"""One lane: loads its model, answers a request, as events. Knows no process, no queue and no page.

`Lane.load()` reports its progress, `Lane.generate()` is a generator of events; faults are raised as InferenceError. The
stamps of a run are taken here, on token ids, and the device is synchronized around load and prefill.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Collection, Iterator
from dataclasses import replace

import torch
from transformers import DynamicCache, PreTrainedModel

from inference.cache import cache
from inference.cpu import install
from inference.cpu.library import Library
from inference.decode.decoder import Decoder, ShouldStop, answer
from inference.decode.eager import Forward, check_state
from inference.decode.sampling import Sampler, sampler_for
from inference.errors import IN_A_RUN, InferenceError, memory_told, short_of_memory
from inference.events import Done, LaneFacts, Loaded, LoadFigures, Loading, Prefill, Ram, Report, Request, Text
from inference.fast import FastWays, first_line
from inference.host import machine
from inference.lane import energy, measured, vram
from inference.lane.paths import DecodePaths, device_lost
from inference.lane.source import Source
from inference.lane.text import TextStream
from inference.lanes import LaneName
from inference.models import exact, loading, quantized_copy, was_four_bit
from inference.settings import Settings
from inference.sources.at_hand import Checkpoint
from inference.timing import WARM_UP_TOKENS, Stopwatch

LOOK_S = 0.1
IDLE_S = 60.0  # after so long without a run, what a long prompt's cache took goes back to the card


class Lane:
    """One (device, precision) pair with, once loaded, its model."""

    def __init__(self, name: str, settings: Settings, import_s: float = 0.0) -> None:
        self.name, self.settings = name, settings
        self.device = name.split(":")[0]
        self.threads = torch.get_num_threads()
        self.ram = machine.RamWatch()
        self.source = Source(name, settings)
        self._forget()
        self.facts: LaneFacts | None = None
        self._kernel = ""
        self._figures = LoadFigures(0.0)
        self._import_s = import_s
        self._runs = 0
        self._last_run = time.perf_counter()
        self._held = False
        self.meter = energy.Meter()

    def _forget(self) -> None:
        """Hold no model, and try every way anew."""
        self.model: PreTrainedModel | None = None
        self.ways = FastWays(self.name, self.settings.fast, self.settings.fast_lost, device_lost)
        self.paths = DecodePaths(self.ways)
        self._copy: quantized_copy.Writer | None = None
        self._grown = False

    # ---- load

    @property
    def end_ids(self) -> frozenset[int]:
        """Every id that ends an answer."""
        return self.source.end_ids

    @property
    def loaded(self) -> bool:
        """Whether the model is on its device and usable."""
        return self.facts is not None

    def load(self, report: Report) -> Loaded:
        """Put the model on its device, its fastest path included, and warm it up; raises InferenceError or Refused."""
        try:
            name = self.settings.model_for(self.name)
            with machine.freed_at_once(), memory_told(self.device, f"while loading {name}", "Free some, or set MODEL_ID to a smaller model."):
                self._load(report)
        except BaseException:
            self._forget()  # what was read must not count against the next try
            gc.collect()
            if self.device == "cuda":
                torch.cuda.empty_cache()
            raise
        return self.now()

    def _load(self, report: Report) -> None:
        spans = {"import": self._import_s} if self._import_s else {}
        self._import_s = 0.0
        clock = Spans(spans, self.device)
        self.source.read(report)
        spans |= self.source.spans
        self.source.spans = {}  # as of the import: of the load after one that failed they are no part
        clock.skip()
        self.paths.begin(self.source.config, 4 if LaneName.parse(self.name).four_bit else 16)
        report(Loading("reading weights"))
        vram.begin(self.device)
        self.model = self.source.load_sound(lambda checkpoint: self._read(checkpoint, report), report)
        library = self._library()
        kernel = install.use_kernels(self.model, self.name, library, self.ways, report) if self.device == "cpu" else None
        clock.end("quantize" if LaneName.parse(self.name).four_bit else "read")
        report(Loading("warming up"))
        self._try(self.model)
        clock.end("warm-up")
        facts = self._described(self.model)
        clock.end("values")
        self._warm_up(self.paths.take(self.model))
        clock.end("warm-up")
        self._make_fast(self.model, facts, report, library)
        machine.give_back_freed()
        clock.end("fast path")
        self._figures = LoadFigures(sum(spans.values()), spans, peak_ram_bytes=self.ram.peak(), peak_vram=vram.held(self.device, self.paths.positions))
        self.meter, why_not = energy.meter_of(self.device, vram.gpu_uuid(self.device))
        self.facts = replace(facts, unmeasured={**facts.unmeasured, **({"energy": why_not} if why_not else {})})
        measured.note(self.settings, self.source.checkpoint.folder, self.name, facts, self._figures)
        self._kernel = kernel or facts.kernel

    def _described(self, model: PreTrainedModel) -> LaneFacts:
        facts = self.source.complete(loading.describe(model, self.source.checkpoint, self.name, self.threads), model)
        return replace(facts, note=was_four_bit.note(self.source.checkpoint.folder, facts.note))

    def _make_fast(self, model: PreTrainedModel, facts: LaneFacts, report: Report, library: Library | None = None) -> None:
        self.paths.make_ready(model, library, facts.context_length, report)
        if self.paths.fast is None:  # a fast path is let in by a comparison that would have seen it
            check_state(model, self.source.warm_up_ids(WARM_UP_TOKENS))

    def _library(self) -> Library | None:
        if self.device != "cpu":
            return None
        return install.library(self.settings.cache_path() / "kernels", self.settings.cpu_isa, self.ways)

    def _read(self, checkpoint: Checkpoint, report: Report) -> PreTrainedModel:
        def load(found: Checkpoint) -> PreTrainedModel:
            return loading.load(found, self.name, report, self.ways)

        if self.name != "cuda:nf4":
            return load(checkpoint)
        arguments = loading.model_arguments(self.name)
        model, self._copy = quantized_copy.load_through(checkpoint, arguments, cache.of(self.settings), load, report)
        return model

    def _try(self, model: PreTrainedModel) -> None:
        """One forward: raises InferenceError for a model that can't be computed with here."""
        if not torch.isfinite(self._first_logits(model, self.source.warm_up_ids(WARM_UP_TOKENS))).all():
            raise InferenceError(
                "The model gives no finite numbers in this precision, so its answers would be empty. Check the checkpoint, or use another lane."
            )

    def _warm_up(self, decoder: Decoder) -> None:
        try:
            for _ in answer(decoder, self.source.warm_up_ids(WARM_UP_TOKENS), WARM_UP_TOKENS, Sampler()):
                pass
        except Exception as error:  # of a model that reads its cache in a way of its own (XLM)
            raise _not_here(self.model, error) from error

    @torch.inference_mode()
    def _first_logits(self, model: PreTrainedModel, ids: list[int]) -> torch.Tensor:
        """Those after `ids`; where its own code takes a matrix, or its dtype, past the layer that holds it (Mamba's), none is stored compactly any more."""
        try:
            return Forward(model)(torch.tensor([ids]), DynamicCache(config=model.config))
        except Exception as error:  # a model's own code: of products that don't fit, of a cache that it doesn't take
            not_here = _not_here(model, error)
            if "compact" not in self.ways.used or not exact.widen(model):
                raise not_here from error
            self.ways.refuse("compact", first_line(error))
            return self._first_logits(model, ids)

    def now(self) -> Loaded:
        """The loaded lane as it is."""
        assert self.facts is not None
        kernel = self.paths.kernel or self._kernel
        self.facts = replace(self.facts, kernel=kernel, fast_used=tuple(self.ways.used), fast_why_not=dict(self.ways.why_not), fast_checked=self.ways.checked)
        return Loaded(self.facts, self._figures)

    # ---- beside the runs

    def hold(self, devices: Collection[str]) -> None:
        """The devices of the lanes whose runs are measured now: while there are any, what goes on beside the runs keeps still."""
        self._held = bool(devices)
        self.meter.beside(devices)

    def between_runs(self) -> float | None:
        """A piece of what is done while nothing is asked: in how many seconds there is more, None where never."""
        if self._copy and not self._held and not self._copy.step():
            self._copy = None
        waits = (LOOK_S if self._copy else self.meter.look(), self._shrink_when_idle())  # while a copy is written it is no rest
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)

    def _shrink_when_idle(self) -> float | None:
        """In how many seconds the cache is to shrink; None once it has, or had not grown."""
        if not self._grown:
            return None
        if (left := self._last_run + IDLE_S - time.perf_counter()) > 0:
            return left
        self._grown = False
        self.paths.shrink()
        return None

    # ---- generate

    def generate(self, run_id: str, request: Request, should_stop: ShouldStop) -> Iterator[Loading | Prefill | Text | Done]:
        """Answer one request on the loaded model; the last event is Done, or InferenceError is raised. Loading comes first where the cache grows."""
        prompt_ids, used, ordinary = self.source.encode(request)
        if self.paths.must_grow(len(prompt_ids), request.max_new_tokens):
            yield Loading("making room for a longer context")
            self.paths.grow(len(prompt_ids), request.max_new_tokens)
            self._grown = True
        run = _Answer(self, request, prompt_ids, should_stop)
        vram.begin_run(self.device)
        yield Prefill(run_id, tuple(prompt_ids), used, time.perf_counter(), run.decoder.path, ordinary)
        watch, stream, ids, reason = Stopwatch(), TextStream(self.source.tokenizer, self.source.hidden_ids), list[int](), "length"
        vram.synchronize(self.device)
        self.meter.begin()
        t_start = watch.start()
        for token in run.tokens(ids):
            if token is None:
                if should_stop():
                    reason = "stopped"
                    break
                continue
            t_s = watch.token()
            ids.append(token)
            if token in self.source.end_ids:
                reason = "stop"
                break
            yield Text(run_id, stream.add(token), len(ids), t_s)
            if should_stop():
                reason = "stopped"
                break
        taken = self.meter.end()
        rest = stream.finish()
        if rest and ids:
            yield Text(run_id, rest, len(ids), watch.stamps[-1] - t_start)
        self._runs += 1
        self._last_run = time.perf_counter()
        yield Done(
            run_id, reason, stream.text, tuple(ids), len(prompt_ids), watch.timings(len(prompt_ids)), t_start=t_start,
            vram=vram.held(self.device, self.paths.positions), ram=Ram(self.ram.peak(), self.ram.uss()),
            path=run.decoder.path, path_reason=run.reason, warm=self._runs > 1, energy=taken,
        )  # fmt: skip


def _not_here(model: object, error: Exception) -> InferenceError:
    """The sentence for a model whose own code fails by `error`, which is raised where it is no fault of that code."""
    if isinstance(error, InferenceError) or short_of_memory(error) or device_lost():
        raise error
    return InferenceError(f"{type(model).__name__} can't be computed with in this lane ({first_line(error)}). Choose another model.")


class _Answer:
    """The ids of one answer by the fastest path that can give them; a path that fails on the way is followed by the eager one."""

    def __init__(self, lane: Lane, request: Request, prompt_ids: list[int], should_stop: ShouldStop) -> None:
        self._lane, self._request, self._prompt_ids, self._should_stop = lane, request, prompt_ids, should_stop
        self.decoder, self.reason = lane.paths.choose(len(prompt_ids), request.max_new_tokens)

    def tokens(self, done: list[int]) -> Iterator[int | None]:
        """The ids one after the other, None where a Stop can be seen to; `done` are those that the caller has taken."""
        limit = self._request.max_new_tokens
        try:
            with memory_told(self._lane.device, *IN_A_RUN):
                while len(done) < limit:
                    sampler = sampler_for(self._request, len(done))
                    try:
                        yield from answer(self.decoder, self._prompt_ids + done, limit - len(done), sampler, self._should_stop)
                        return
                    except Exception as error:  # whatever a faster path raises, the lane answers; the eager one's is raised again
                        if short_of_memory(error):  # in this run, and no fault of its path
                            raise
                        self.decoder, self.reason = self._lane.paths.give_up(self.decoder, error)
        finally:
            if self._lane.device == "cuda":
                vram.give_back()


class Spans:
    """Splits a stretch of time into named spans, the device synchronized at each end."""

    def __init__(self, spans: dict[str, float], device: str) -> None:
        self._spans, self._device = spans, device
        self._last = time.perf_counter()

    def skip(self) -> None:
        """Leave out what came since the last end: it has spans of its own."""
        self._last = time.perf_counter()

    def end(self, name: str) -> None:
        """Close the span that began at the last end; several of one name are one."""
        vram.synchronize(self._device)
        now = time.perf_counter()
        self._spans[name] = self._spans.get(name, 0.0) + now - self._last
        self._last = now
