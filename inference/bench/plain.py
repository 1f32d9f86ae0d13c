"""The plain way to hold our lanes against: the snippets' `generate`, brought up to today's API.

`generate(do_sample=False)` on the same quantization config, dtypes and device map as our lane (4 bits on a processor: computed in what
bitsandbytes is fastest in there), with torch's default threads, stamped by a bare streamer; or, as a peer, over transformers' static
cache, compiled. Its cache is on and the checkpoint's own generation settings are left out, as in our lanes: both give the likeliest
token each time.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, GenerationConfig, LogitsProcessor, LogitsProcessorList, PretrainedConfig, PreTrainedModel
from transformers.generation.streamers import BaseStreamer

from inference.bench.baseline import Answer
from inference.events import ForcedRequest, LaneFacts, Report, Request
from inference.lane import vram
from inference.lane.source import Source
from inference.models import loading, private
from inference.timing import Stopwatch


class Generate:
    """Plain `generate`; greedy only. `static`: over transformers' static cache, compiled."""

    def __init__(self, lane: str, static: bool = False) -> None:
        self.path = "static cache, compiled" if static else "plain"
        self._lane = lane
        self._options = {"cache_implementation": "static"} if static else {}
        self.model: PreTrainedModel | None = None

    def load(self, source: Source, report: Report) -> tuple[LaneFacts, float]:
        """Load as the snippets do."""
        began = time.perf_counter()
        model = AutoModelForCausalLM.from_pretrained(source.checkpoint.folder, trust_remote_code=False, **arguments(self._lane), config=config_of(source))
        if self._options:
            private.compile_also_quantized(model)
        vram.synchronize(model.device.type)
        read_s = time.perf_counter() - began
        self.model = model
        return loading.describe(model, source.checkpoint, self._lane, torch.get_num_threads()), read_s

    def answer(self, source: Source, request: Request, prompt_ids: list[int], watch: Stopwatch) -> Answer:
        """The answer by `generate`; a forced request's ids in the place of its own choice."""
        assert self.model is not None
        ids = torch.tensor([prompt_ids], device=self.model.device)
        forced = _Forced(request, len(prompt_ids)) if isinstance(request, ForcedRequest) else None
        stamps = _Stamps(watch)
        settings = GenerationConfig(
            max_new_tokens=request.max_new_tokens, do_sample=False, use_cache=True, pad_token_id=0,
            eos_token_id=None if forced else sorted(source.end_ids), **self._options,
        )  # fmt: skip
        self.model.generation_config = settings  # what one of ours leaves open, generate takes from there
        processors = LogitsProcessorList([forced] if forced else [])
        self.model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings, streamer=stamps, logits_processor=processors)
        if forced:
            forced.save()
        token_ids = tuple(stamps.ids)
        reason = "stop" if token_ids[-1] in source.end_ids else "length"
        return Answer(source.shown(token_ids), token_ids, reason)


def config_of(source: Source) -> PretrainedConfig:
    """The checkpoint's configuration; an attention that needs a package of its own is transformers' usual one here too."""
    config = copy.deepcopy(source.config)
    private.own_attention(config)
    return config


def arguments(lane: str, on_cpu: torch.dtype | None = None) -> dict[str, Any]:
    """The keywords of `from_pretrained`: the lane's own, but that 4 bits on a processor compute in `on_cpu`, or by itself in what bitsandbytes has products for there."""
    found = loading.model_arguments(lane)
    if lane == "cpu:nf4":
        from bitsandbytes.functional import has_avx512bf16

        dtype = on_cpu or (torch.bfloat16 if has_avx512bf16() else torch.float32)
        quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
        found |= {"dtype": dtype, "quantization_config": quantization}
    return found


class _Stamps(BaseStreamer):
    """Notes when ids arrive on the host; the first call brings the prompt."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch, self.ids, self._prompt_seen = watch, list[int](), False

    def put(self, value: torch.Tensor) -> None:
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        self._watch.token()
        self.ids.append(int(value.reshape(-1)[0]))

    def end(self) -> None:
        """Nothing is held back."""


class _Forced(LogitsProcessor):
    """Keeps each step's logits and lets only the given id through (teacher forcing)."""

    def __init__(self, request: ForcedRequest, prompt_tokens: int) -> None:
        self._request, self._prompt_tokens, self._logits = request, prompt_tokens, list[np.ndarray]()

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        self._logits.append(scores[0].float().cpu().numpy())
        kept = torch.full_like(scores, float("-inf"))
        kept[:, self._request.ids[input_ids.shape[1] - self._prompt_tokens]] = 0
        return kept  # type: ignore[return-value]

    def save(self) -> None:
        """Write the logits where the request wants them."""
        np.save(self._request.logits_file, np.stack(self._logits))
