"""The plain way to hold our lanes against: the snippets' `generate`, brought up to today's API.

`PlainLane` is a lane whose answers come from `generate(do_sample=False)` on the same quantization config, dtypes and
device map as our lane, with torch's default threads, stamped by a bare streamer. Used by `bench` alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LogitsProcessor, LogitsProcessorList
from transformers.generation.streamers import BaseStreamer

from inference.events import Done, Loaded, LoadFigures, Loading, Prefill, Ram, Request, Text
from inference.lane import text
from inference.lane.lane import Lane
from inference.models import loading
from inference.settings import Settings
from inference.timing import Stopwatch


class PlainLane(Lane):
    """A lane that answers by plain `generate`; greedy only. `static`: over transformers' static cache, compiled."""

    def __init__(self, name: str, settings: Settings, import_s: float = 0.0, static: bool = False) -> None:
        super().__init__(name, settings, import_s)
        self._options = {"cache_implementation": "static"} if static else {}

    def load(self, report: Callable[[Loading], None]) -> Loaded:
        """Load as the snippets do; total only, with its warm-up run left to the caller."""
        self.prepare(report)
        assert self.checkpoint is not None and self.tokenizer is not None
        began = time.perf_counter()
        self.model = AutoModelForCausalLM.from_pretrained(self.checkpoint.folder, **loading.model_arguments(self.name))
        if self._options and getattr(self.model, "hf_quantizer", None):
            type(self.model.hf_quantizer).is_compileable = property(lambda _: True)  # without it a 4-bit model is never compiled
        self.end_ids = text.end_ids(self.tokenizer, self.model.generation_config, self.model.config, self.model.config.get_text_config())
        self._synchronize()
        read_s = time.perf_counter() - began
        self.facts = loading.describe(self.model, self.checkpoint, self.name, torch.get_num_threads())
        spans = {"import": self._import_s, "read": read_s}
        return Loaded(self.facts, LoadFigures(sum(spans.values()), spans, peak_ram_bytes=self.ram.peak(), peak_vram=self._vram()))

    @property
    def loaded(self) -> bool:
        """Whether the model is there."""
        return self.model is not None

    def generate(self, run_id: str, request: Request, should_stop: Callable[[], bool]) -> Iterator[Prefill | Text | Done]:
        """The whole answer at once, with the stamps that the streamer took."""
        assert self.model is not None and self.tokenizer is not None
        prompt_ids, used = self.encode(request)
        ids = torch.tensor([prompt_ids], device=self.model.device)
        stamps, forced = _Stamps(), _Forced(request.forced_ids, len(prompt_ids))
        self._synchronize()
        t_start = stamps.watch.start()
        yield Prefill(run_id, tuple(prompt_ids), used, t_start)
        self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=request.max_new_tokens, do_sample=False, streamer=stamps,
            eos_token_id=None if request.forced_ids else sorted(self.end_ids), pad_token_id=0,
            logits_processor=LogitsProcessorList([forced] if request.forced_ids else []), **self._options,
        )  # fmt: skip
        if request.logits_file:
            np.save(request.logits_file, np.stack(forced.logits))
        self._runs += 1
        token_ids = tuple(stamps.ids)
        answer = self.tokenizer.decode(token_ids, skip_special_tokens=True)
        reason = "stop" if token_ids[-1] in self.end_ids else "length"
        yield Text(run_id, answer, len(token_ids), stamps.watch.stamps[-1] - t_start)
        yield Done(
            run_id, reason, answer, token_ids, len(prompt_ids), stamps.watch.timings(len(prompt_ids)), t_start=t_start,
            vram=self._vram(), ram=Ram(self.ram.peak(), self.ram.uss()), path="static cache, compiled" if self._options else "plain", warm=self._runs > 1,
        )  # fmt: skip


class _Stamps(BaseStreamer):
    """Notes when ids arrive on the host; the first call brings the prompt."""

    def __init__(self) -> None:
        self.watch, self.ids, self._prompt_seen = Stopwatch(), list[int](), False

    def put(self, value: torch.Tensor) -> None:
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        self.watch.token()
        self.ids.append(int(value.reshape(-1)[0]))

    def end(self) -> None:
        """Nothing is held back."""


class _Forced(LogitsProcessor):
    """Keeps each step's logits and lets only the given id through (teacher forcing)."""

    def __init__(self, ids: tuple[int, ...], prompt_tokens: int) -> None:
        self._ids, self._prompt_tokens, self.logits = ids, prompt_tokens, list[np.ndarray]()

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        self.logits.append(scores[0].float().cpu().numpy())
        kept = torch.full_like(scores, float("-inf"))
        kept[:, self._ids[input_ids.shape[1] - self._prompt_tokens]] = 0
        return kept  # type: ignore[return-value]
