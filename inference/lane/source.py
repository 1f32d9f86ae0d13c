"""What a lane needs before its weights: the checkpoint, its configuration and tokenizer; a request's prompt as ids. Knows no model."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from inference.errors import InferenceError
from inference.events import Loading, Report, Request
from inference.fast import first_line
from inference.lane import text
from inference.models import loading
from inference.settings import Settings
from inference.sources import fetching
from inference.sources.at_hand import Checkpoint


class Source:
    """A lane's checkpoint and tokenizer, each had once."""

    def __init__(self, lane: str, settings: Settings) -> None:
        self._name, self._settings = settings.model_for(lane), settings
        self._checkpoint: Checkpoint | None = None
        self._tokenizer: PreTrainedTokenizerBase | None = None
        self.config: Any = None
        self.spans: dict[str, float] = {}  # seconds of the load that pass here, whoever asks first
        self.fetch: fetching.Fetch | None = None  # begun before the heavy imports

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, once found."""
        assert self._checkpoint is not None
        return self._checkpoint

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, once read."""
        assert self._tokenizer is not None
        return self._tokenizer

    def find(self, report: Report) -> None:
        """Have the checkpoint's files on this machine; raises InferenceError."""
        if self._checkpoint is None:
            began = time.perf_counter()
            fetch, self.fetch = self.fetch or fetching.begin(self._name, self._settings), None
            self._checkpoint = fetch.result(report)
            self.spans["download"] = time.perf_counter() - began

    def read(self, report: Report) -> None:
        """Find the checkpoint and read its configuration and tokenizer: enough to refuse a prompt that is too long."""
        self.find(report)
        if self._tokenizer is not None:
            return
        report(Loading("reading the tokenizer"))
        began = time.perf_counter()
        try:
            self.config = AutoConfig.from_pretrained(self.checkpoint.folder)
            self._tokenizer = AutoTokenizer.from_pretrained(self.checkpoint.folder)
        except Exception as error:  # tokenizers raises bare Exceptions, transformers many kinds
            raise InferenceError(
                f"{self.checkpoint.id} has no tokenizer or configuration that can be read ({first_line(error)}). Save both beside the weights (save_pretrained)."
            ) from error
        self.spans["tokenizer"] = time.perf_counter() - began

    def load_sound(self, load: Callable[[Checkpoint], PreTrainedModel], report: Report) -> PreTrainedModel:
        """The model by `load` from the checkpoint; a damaged one of our own cache is made anew and tried once more."""
        self._checkpoint, model = fetching.load_sound(self.checkpoint, self._settings, report, load)
        return model

    @property
    def context_length(self) -> int:
        """Tokens that the model takes in all."""
        return loading.context_length(self.config)

    def encode(self, request: Request) -> tuple[list[int], str]:
        """The prompt's ids and format; raises InferenceError when they don't fit the context."""
        ids, used = text.encode(self.tokenizer, request)
        text.check_length(len(ids), request.max_new_tokens, self.context_length)
        return ids, used

    def end_ids(self, model: PreTrainedModel) -> frozenset[int]:
        """Every id that ends an answer of `model`."""
        return text.end_ids(self.tokenizer, model.generation_config, model.config, model.config.get_text_config())
