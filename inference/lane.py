"""One lane: loads its model, answers a request, as events. Knows no process, no queue and no page.

`Lane.load()` and `Lane.generate()` are generators of events; faults are raised as InferenceError. The stamps of a
run are taken here, on token ids, and the device is synchronized around load and prefill.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from inference import checkpoints, loading, memory, text
from inference.checkpoints import Checkpoint
from inference.decoding import Decoder, EagerDecoder
from inference.errors import InferenceError
from inference.events import Done, LaneFacts, Loaded, LoadFigures, Loading, Prefill, Ram, Request, Text, Vram
from inference.sampling import Sampler, sampler_for
from inference.settings import Settings
from inference.timing import Stopwatch

log = logging.getLogger(__name__)
WARM_UP_TOKENS = 4


class Lane:
    """One (device, precision) pair with, once loaded, its model."""

    def __init__(self, name: str, settings: Settings, import_s: float = 0.0) -> None:
        self.name, self.settings = name, settings
        self.device = name.split(":")[0]
        self.threads = torch.get_num_threads()
        self.ram = memory.RamWatch()
        self.checkpoint: Checkpoint | None = None
        self.tokenizer: PreTrainedTokenizerBase | None = None
        self.model: PreTrainedModel | None = None
        self.facts: LaneFacts | None = None
        self.decoder: Decoder | None = None
        self._import_s = import_s
        self._runs = 0

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
            torch.cuda.reset_peak_memory_stats()
        self.model, facts = loading.load(self.checkpoint, self.name, self.threads, report)
        self.end_ids = text.end_ids(self.tokenizer, self.model.generation_config, self.model.config, self.model.config.get_text_config())
        clock.end("quantize" if facts.quantization else "read")
        report(Loading("warming up"))
        decoder = EagerDecoder(self.model)
        self._warm_up(decoder)
        clock.end("warm-up")
        self.decoder = decoder
        self.facts = replace(facts, has_chat_template=bool(self.tokenizer.chat_template))
        figures = LoadFigures(sum(spans.values()), spans, peak_ram_bytes=self.ram.peak(), peak_vram=self._vram())
        return Loaded(self.facts, figures)

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
        for token in self._tokens(prompt_ids, request.max_new_tokens, sampler):
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
        if rest:
            yield Text(run_id, rest, len(ids), watch.stamps[-1] - t_start)
        self._runs += 1
        yield Done(
            run_id, reason, stream.text, tuple(ids), len(prompt_ids), watch.timings(len(prompt_ids)), t_start=t_start,
            vram=self._vram(), ram=Ram(self.ram.peak(), self.ram.uss()), path=self.decoder.path, warm=self._runs > 1,
        )  # fmt: skip

    def _tokens(self, prompt_ids: list[int], limit: int, sampler: Sampler) -> Iterator[int]:
        assert self.decoder is not None
        try:
            yield from self.decoder.tokens(prompt_ids, limit, sampler)
        except torch.cuda.OutOfMemoryError:
            raise InferenceError("The GPU ran out of memory in this run. Shorten the prompt or ask for fewer new tokens; the lane is still usable.") from None
        finally:
            if self.device == "cuda" and torch.cuda.memory_reserved() > 1.5 * torch.cuda.memory_allocated() + memory.GIB:
                torch.cuda.empty_cache()

    # ---- figures

    def _synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _vram(self) -> Vram | None:
        if self.device != "cuda":
            return None
        free, total = torch.cuda.mem_get_info()
        return Vram(torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated(), total - free)


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
