"""What a lane needs before its weights: the checkpoint, its configuration and tokenizer; a request's prompt as ids. Knows no model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from inference.errors import InferenceError
from inference.events import LaneFacts, Loading, Report, Request
from inference.fast import first_line
from inference.lane import config, text, tokens
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
        self._encoder: text.Encoder | None = None
        self._tokenizer_note: str | None = None
        self._rows = 0  # of the embedding: what the configuration says, then what was loaded
        self.end_ids: frozenset[int] = frozenset()
        self.hidden_ids: frozenset[int] = frozenset()
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
        self.config = config.read_config(self.checkpoint)
        config.check_files(self.checkpoint, *config.SMALL)
        self._rows = int(getattr(self.config.get_text_config(), "vocab_size", 0) or 0)
        try:
            tokenizer, self._tokenizer_note = tokens.read(self.checkpoint.folder)
            encoder = text.Encoder(tokenizer)  # uses it, and so finds what reading lets pass
        except Exception as error:  # tokenizers raises bare Exceptions, transformers many kinds
            config.check_files(self.checkpoint, config.TOKENIZER)
            if lacking := tokens.lacking(self.checkpoint.folder):
                raise InferenceError(
                    f"{self.checkpoint.id} has its tokenizer as tokenizer.model only, and {' and '.join(lacking)} to read it can't be found. "
                    f"Install what is missing (pip install {' '.join(lacking)}), or save the tokenizer as tokenizer.json (save_pretrained)."
                ) from error
            raise InferenceError(
                f"{self.checkpoint.id} has no tokenizer that can be read ({first_line(error)}). Save it beside the weights (save_pretrained)."
            ) from error
        self._encoder, self._tokenizer = encoder, tokenizer
        self.spans["tokenizer"] = time.perf_counter() - began

    def load_sound(self, load: Callable[[Checkpoint], PreTrainedModel], report: Report) -> PreTrainedModel:
        """The model by `load` from the checkpoint; a damaged one of our own cache is made anew and tried once more."""
        self._checkpoint, model = fetching.load_sound(self.checkpoint, self._settings, report, load)
        return model

    @property
    def context_length(self) -> int:
        """Tokens that the model takes in all."""
        return loading.context_length(self.config)

    @property
    def encoder(self) -> text.Encoder:
        """What turns texts into ids, once the tokenizer is read."""
        assert self._encoder is not None
        return self._encoder

    def encode(self, request: Request) -> text.Prompt:
        """The prompt's ids and format; raises InferenceError when they don't fit the context or the embedding."""
        prompt = self.encoder.encode(request)
        text.check_length(len(prompt.ids), request.max_new_tokens, self.context_length)
        self.check_rows(prompt.ids)
        return prompt._replace(ordinary=prompt.ordinary and not tokens.lent_names(self.tokenizer, self._tokenizer_note))

    def warm_up_ids(self, new_tokens: int) -> list[int]:
        """The ids of a short prompt that any model can take, a chat where the template allows one."""
        request = Request("Hello", max_new_tokens=new_tokens)
        try:
            return self.encode(request).ids
        except InferenceError:  # told to whoever asks in a chat
            readable = self.tokenizer(request.prompt)["input_ids"]  # a vocabulary of other letters has no token for it
            return self.encode(replace(request, format="raw")).ids if readable else [0]

    def check_rows(self, ids: Sequence[int]) -> None:
        """Raise InferenceError for an id that the model's embedding has no row for."""
        if self._rows:
            text.check_rows(self.tokenizer, ids, self._rows)

    def complete(self, facts: LaneFacts, model: PreTrainedModel | None) -> LaneFacts:
        """The facts of a loaded lane with those of its tokenizer and its generation settings; from now on the ends are known."""
        found = [facts.note, self._tokenizer_note]
        if model is not None:
            self._rows = model.get_input_embeddings().weight.shape[0]
            self.end_ids = tokens.end_ids(self.tokenizer, model.generation_config, model.config, model.config.get_text_config())
            found += [config.ignored(model.config, model.generation_config), *config.otherwise(self.checkpoint.folder, self.config, model)]
        self.hidden_ids = tokens.hidden_ids(self.tokenizer, self.end_ids, self.encoder.turn_marks)
        return replace(
            facts, has_chat_template=bool(self.tokenizer.chat_template), note="; ".join(filter(None, found)) or None,
            tokenizer=tokens.rebuilt(self._tokenizer_note), end_ids=tuple(sorted(self.end_ids)), hidden_ids=tuple(sorted(self.hidden_ids)),
        )  # fmt: skip

    def shown(self, ids: Sequence[int]) -> str:
        """The text of an answer's ids, in one go."""
        return text.TextStream(self.tokenizer, self.hidden_ids).whole(ids)
