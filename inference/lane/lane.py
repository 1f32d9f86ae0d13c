"""One lane: loads its model, answers a request, as events. Knows no process, no queue and no page.

`Lane.load()` reports its progress, `Lane.generate()` is a generator of events; faults are raised as InferenceError. The
stamps of a run are taken here, on token ids, and the device is synchronized around load and prefill.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from inference import machine
from inference.cpu import decoder as cpu_decoder
from inference.cpu import install
from inference.cpu import step as compiled_step
from inference.cpu.compiling import Compiler
from inference.cpu.decoder import CpuDecoder
from inference.decode.eager import Decoder, EagerDecoder
from inference.decode.sampling import Sampler, sampler_for
from inference.errors import InferenceError
from inference.events import Done, LaneFacts, Loaded, LoadFigures, Loading, Prefill, Ram, Request, Text, Vram
from inference.lane import text, vram
from inference.models import checkpoints, loading, quantized_copy
from inference.models.checkpoints import Checkpoint
from inference.settings import Settings
from inference.timing import Stopwatch

if TYPE_CHECKING:
    from inference.cuda.background import FastPath

log = logging.getLogger(__name__)
WARM_UP_TOKENS = 4


class Lane:
    """One (device, precision) pair with, once loaded, its model."""

    def __init__(self, name: str, settings: Settings, import_s: float = 0.0) -> None:
        self.name, self.settings = name, settings
        self.device = name.split(":")[0]
        self.threads = torch.get_num_threads()
        self.ram = machine.RamWatch()
        self.checkpoint: Checkpoint | None = None
        self.tokenizer: PreTrainedTokenizerBase | None = None
        self.model: PreTrainedModel | None = None
        self.facts: LaneFacts | None = None
        self.decoder: Decoder | None = None
        self._import_s = import_s
        self._runs = 0
        self._step_file: Path | None = None
        self.compiler: Compiler | None = None
        self._held = False
        self.fast: FastPath | None = None

    # ---- before the weights

    def prepare(self, report: Callable[[Loading], None]) -> None:
        """Find the checkpoint and read its tokenizer; enough to refuse a prompt that is too long."""
        self._find(report)
        if self.tokenizer is not None:
            return
        assert self.checkpoint is not None
        report(Loading("reading the tokenizer"))
        try:
            self.config = AutoConfig.from_pretrained(self.checkpoint.folder)
            self.tokenizer = AutoTokenizer.from_pretrained(self.checkpoint.folder)
        except (OSError, ValueError, KeyError) as error:
            raise InferenceError(
                f"{self.checkpoint.id} has no tokenizer or configuration that can be read. Save both beside the weights (save_pretrained)."
            ) from error

    def _find(self, report: Callable[[Loading], None]) -> None:
        if self.checkpoint is None:
            self.checkpoint = checkpoints.find(self.settings.model_for(self.name), self.settings, report)

    def encode(self, request: Request) -> tuple[list[int], str]:
        """The prompt's ids and format; raises InferenceError when they don't fit the context."""
        assert self.tokenizer is not None
        ids, used = text.encode(self.tokenizer, request)
        context = int(getattr(self.config.get_text_config(), "max_position_embeddings", 0) or 2048)
        text.check_length(len(ids), request.max_new_tokens, context)
        return ids, used

    # ---- load

    @property
    def loaded(self) -> bool:
        """Whether the model is on its device and usable."""
        return self.decoder is not None

    def load(self, report: Callable[[Loading], None]) -> Loaded:
        """Put the model on its device and warm it up; raises InferenceError or Refused."""
        spans = {"import": self._import_s} if self._import_s else {}
        self._import_s = 0.0
        clock = _Spans(spans, self._synchronize)
        self._find(report)
        clock.end("download")
        self.prepare(report)
        assert self.checkpoint is not None and self.tokenizer is not None
        report(Loading("reading weights"))
        if self.device == "cuda":
            torch.cuda.empty_cache()  # a shape's random weights may have been made on the card just now
            torch.cuda.reset_peak_memory_stats()
        self.model = self._read(report)
        kernel = install.use_kernels(self.model, self.name, self.settings.cache_path() / "kernels") if self.device == "cpu" else None
        facts = loading.describe(self.model, self.checkpoint, self.name, self.threads)
        self.end_ids = text.end_ids(self.tokenizer, self.model.generation_config, self.model.config, self.model.config.get_text_config())
        clock.end("quantize" if facts.quantization else "read")
        report(Loading("warming up"))
        decoder = cpu_decoder.make(self.model) if self.device == "cpu" else EagerDecoder(self.model)
        self._warm_up(decoder)
        self._use_compiled(decoder)
        machine.give_back_freed()
        clock.end("warm-up")
        self.decoder = decoder
        self.facts = replace(facts, kernel=kernel or facts.kernel, has_chat_template=bool(self.tokenizer.chat_template))
        self._spans = spans
        self._measure_load()
        if self.name == "cuda:nf4":
            from inference.cuda.background import FastPath

            self.fast = FastPath(self.model, self.facts.context_length)
            self.fast.start()
        return self._loaded()

    def _read(self, report: Callable[[Loading], None]) -> PreTrainedModel:
        def load(checkpoint: Checkpoint) -> PreTrainedModel:
            return loading.load(checkpoint, self.name, report, self.settings)

        assert self.checkpoint is not None
        if self.name != "cuda:nf4":
            return load(self.checkpoint)
        return quantized_copy.load_through(self.checkpoint, loading.model_arguments(self.name), self.settings.cache_path(), load)

    def _loaded(self) -> Loaded:
        assert self.facts is not None
        return Loaded(self.facts, self._figures, self.path_pending)

    def _measure_load(self) -> None:
        """The load's figures as it ends; what runs need later is not the load's."""
        self._figures = LoadFigures(sum(self._spans.values()), self._spans, peak_ram_bytes=self.ram.peak(), peak_vram=self._vram())

    def change_over(self, report: Callable[[Loading], None]) -> Loaded | None:
        """The lane anew once the faster path has come, or is known not to; None until then. Call it between runs."""
        if self._capture_pending and not self.fast.building:  # type: ignore[union-attr]
            self._finish_fast(report)
        return None if self.path_pending else self._loaded()

    def _finish_fast(self, report: Callable[[Loading], None]) -> None:
        """Change over to the captured path, which has been compiled meanwhile; its time counts as load."""
        assert self.fast is not None and self.facts is not None
        if not self.fast.reason:
            report(Loading("capturing the fast path"))
            self.fast.finish()
        self._spans["fast path"] = self.fast.seconds
        kernel = "own CUDA kernels, captured" if self.fast.decoder else f"bitsandbytes (no captured path: {self.fast.reason})"
        self.facts = replace(self.facts, kernel=kernel)
        self._measure_load()

    def _decoder_for(self, prompt_tokens: int, limit: int) -> Decoder:
        assert self.decoder is not None
        fast = self.fast.decoder if self.fast else None
        return fast if fast and fast.supports(prompt_tokens, limit) else self.decoder

    def _warm_up(self, decoder: Decoder) -> None:
        ids = self.encode(Request("Hello", max_new_tokens=WARM_UP_TOKENS))[0]
        with torch.inference_mode():
            logits = self.model(input_ids=torch.tensor([ids], device=self.model.device), logits_to_keep=1).logits  # type: ignore[misc, union-attr]
        if not torch.isfinite(logits).all():
            raise InferenceError(
                "The model gives no finite numbers in this precision, so its answers would be empty. Check the checkpoint, or use another lane."
            )
        for _ in decoder.tokens(ids, WARM_UP_TOKENS, Sampler()):
            pass

    def _use_compiled(self, decoder: Decoder) -> None:
        """Take the compiled decode step of an earlier start, if there is one."""
        if self.settings.compile and self.name == "cpu:fp32" and isinstance(decoder, CpuDecoder) and cpu_decoder.compilable(decoder.model):
            self._step_file = compiled_step.file_for(decoder.model, self.settings.cache_path() / "inductor", self.threads)
            if self._step_file.exists():
                decoder.use(self._step_file)

    def compile_beside(self) -> None:
        """Begin to compile the decode step in a process of its own, if this lane can use one and has none; runs go on meanwhile."""
        if not isinstance(self.decoder, CpuDecoder) or self._step_file is None or self.decoder.step:
            return
        assert self.checkpoint is not None
        self.compiler = Compiler(self.checkpoint.folder, self._step_file, self.settings.compact, self.threads)
        self.decoder.on_run = lambda still: self.hold(self._held, still)
        self.compiler.start(self.decoder.use)

    def hold(self, still: bool, own_run: bool = False) -> None:
        """Keep the compiler still while any lane's run is measured (`still`), or this lane's own: it would slow it manyfold."""
        self._held = still
        if self.compiler:
            self.compiler.hold(still or own_run)

    @property
    def path_pending(self) -> bool:
        """Whether a faster path than the one in use is being made ready."""
        return self._capture_pending or bool(self.compiler and self.compiler.pending)

    @property
    def _capture_pending(self) -> bool:
        return self.fast is not None and "fast path" not in self._spans

    # ---- generate

    def generate(self, run_id: str, request: Request, should_stop: Callable[[], bool]) -> Iterator[Prefill | Text | Done]:
        """Answer one request on the loaded model; the last event is Done, or InferenceError is raised."""
        assert self.tokenizer is not None and self.decoder is not None
        prompt_ids, used = self.encode(request)
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        watch, stream, ids = Stopwatch(), text.TextStream(self.tokenizer), []
        self._synchronize()
        t_start = watch.start()
        yield Prefill(run_id, tuple(prompt_ids), used, t_start)
        reason = "length"
        sampler = sampler_for(request)
        decoder = self._decoder_for(len(prompt_ids), request.max_new_tokens)
        if isinstance(decoder, CpuDecoder):
            decoder.should_stop = should_stop
        for token in self._tokens(decoder, prompt_ids, request.max_new_tokens, sampler):
            if token is None:
                if should_stop():
                    reason = "stopped"
                    break
                continue
            t_s = watch.token()
            ids.append(token)
            if token in self.end_ids:
                reason = "stop"
                break
            delta = stream.add(token)
            yield Text(run_id, delta, len(ids), t_s)
            if should_stop():
                reason = "stopped"
                break
        rest = stream.finish()
        if rest and ids:
            yield Text(run_id, rest, len(ids), watch.stamps[-1] - t_start)
        self._runs += 1
        yield Done(
            run_id, reason, stream.text, tuple(ids), len(prompt_ids), watch.timings(len(prompt_ids)), t_start=t_start,
            vram=self._vram(), ram=Ram(self.ram.peak(), self.ram.uss()), path=decoder.path, warm=self._runs > 1,
        )  # fmt: skip

    def _tokens(self, decoder: Decoder, prompt_ids: list[int], limit: int, sampler: Sampler) -> Iterator[int | None]:
        try:
            yield from decoder.tokens(prompt_ids, limit, sampler)
        except torch.cuda.OutOfMemoryError:
            raise InferenceError("The GPU ran out of memory in this run. Shorten the prompt or ask for fewer new tokens; the lane is still usable.") from None
        finally:
            if self.device == "cuda" and torch.cuda.memory_reserved() > 1.5 * torch.cuda.memory_allocated() + machine.GIB:
                torch.cuda.empty_cache()

    # ---- figures

    def _synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _vram(self) -> Vram | None:
        if self.device != "cuda":
            return None
        device = vram.held_by_this_process(str(torch.cuda.get_device_properties(0).uuid))
        return Vram(torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated(), device)


class _Spans:
    """Splits a stretch of time into named spans, the device synchronized at each end."""

    def __init__(self, spans: dict[str, float], synchronize: Callable[[], None]) -> None:
        self._spans, self._synchronize = spans, synchronize
        self._last = time.perf_counter()

    def end(self, name: str) -> None:
        """Close the span that began at the last end."""
        self._synchronize()
        now = time.perf_counter()
        self._spans[name] = now - self._last
        self._last = now
