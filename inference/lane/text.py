"""Prompt -> token ids, and token ids -> text as they come. Knows the tokenizer and no model.

What a person types is text: in a chat the only marks are the template's own. Raw is the expert's format, in which marks are marks, the start
mark once. Text is decoded with context and only an incomplete tail is held back, so that emoji, Korean, indentation and trailing spaces
arrive whole; the pieces together are exactly the one-shot decoding, unless that takes back a character that is out: of bytes in a row that end in none.
"""

from __future__ import annotations

import functools
import json
import re
import secrets
from collections.abc import Sequence
from typing import NamedTuple

import tokenizers
from transformers import PreTrainedTokenizerBase

from inference.errors import InferenceError
from inference.events import Request
from inference.lane import template
from inference.lane.tokens import special_ids

LONGEST_TAIL = 3  # characters that an unfinished one can show as
MOST_LOOKED_AT = 1000  # characters of a prompt, before all of it is read only to see whether it has a token
MOST_DECODED = 64  # tokens looked back at while none of them is whole


class Prompt(NamedTuple):
    """A request's ids and the format really used; `ordinary`: the ids are those that plain code's usual call gives."""

    ids: list[int]
    format: str
    ordinary: bool


class Encoder:
    """Turns requests into ids with one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self.turn_marks = template.turn_marks(tokenizer)
        self._unknown = frozenset({tokenizer.unk_token_id}) - {
            None,
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
        }  # not told by its id: any unknown character has it
        self._marks = (special_ids(tokenizer) | self.turn_marks) - self._unknown
        self._without = functools.lru_cache(maxsize=2)(self._make_without)

    def encode(self, request: Request) -> Prompt:
        """The prompt's ids; raw where the tokenizer has no chat template. Raises InferenceError where the template or a mark stands in the way."""
        if not (self._ids(request.prompt[:MOST_LOOKED_AT]) or self._ids(request.prompt)):
            raise InferenceError(
                "This model's tokenizer has no token for anything in the prompt, so the model would be asked nothing. Write it in other letters."
            )
        if request.format == "raw" or not self._tokenizer.chat_template:
            text = f"{request.system}\n{request.prompt}" if request.system else request.prompt
            return self._raw(text)
        return self._chat(request)

    def plain_text(self, text: str) -> list[int]:
        """The ids of a text to be scored: marks are marks, and no start mark stands before it."""
        ids = self._start_once(text, self._ids(text))
        return ids[1:] if ids[:1] == [self._tokenizer.bos_token_id] else ids

    def _chat(self, request: Request) -> Prompt:
        written = template.write(self._tokenizer, request)
        ids, meant = self._ids(written.text), self._marks_of(self._ids(written.outline))
        unknown = any(name in request.prompt + request.system for name in self._names(self._unknown))
        if self._marks_of(ids) == meant and not unknown:
            return Prompt(ids, "chat", written.ordinary)
        if written.pieces is None:
            typed = [mark for mark in self._names(self._marks) if mark in request.prompt + request.system]
            if not typed:  # the template itself sets other marks for this text
                return Prompt(ids, "chat", written.ordinary)
            raise InferenceError(f"The prompt holds the mark {typed[0]}, and this model's chat template changes the text around it. Take the mark out.")
        ids = self._as_text(written.pieces, self._marks | self._unknown)
        if self._marks_of(ids) != meant:
            raise InferenceError("The prompt holds a mark that this tokenizer can't read as text. Take it out, or use the raw format.")
        return Prompt(ids, "chat", False)

    def _raw(self, text: str) -> Prompt:
        plain = list(self._tokenizer(text, verbose=False)["input_ids"])
        ids = self._start_once(text, plain)
        return Prompt(ids, "raw", ids == plain)

    def _start_once(self, text: str, ids: list[int]) -> list[int]:
        """`ids` of `text` with the start mark at the beginning, if at all; one that opens every turn stays where it was typed."""
        start = self._tokenizer.bos_token_id
        first = next((n for n, token in enumerate(ids) if token != start), len(ids))
        ids = ids[max(0, first - 1) :]
        if start in ids[1:] and start not in self.turn_marks and start != self._tokenizer.eos_token_id:
            return self._one_start(text, ids, start)
        return ids

    def _one_start(self, text: str, ids: list[int], start: int) -> list[int]:
        """`ids` with the start marks that are typed further on read as text."""
        mark = self._tokenizer.convert_ids_to_tokens(start)
        typed = re.match(f"(?:{re.escape(mark)})*", text).group()  # type: ignore[union-attr]
        first = [mark] if ids[0] == start and typed else []
        inner = self._as_text(("".join(first), text[len(typed) :]), frozenset({start}))
        end = ids[-1:] if ids[-1] == self._tokenizer.eos_token_id and inner[-1] != ids[-1] else []
        return [*([start] if ids[0] == start and not first else []), *inner, *end]

    def _as_text(self, pieces: Sequence[str], marks: frozenset[int]) -> list[int]:
        """The ids of all pieces as one text, in which `marks` are marks in every other piece only, beginning with the first."""
        tokenizer, stand_ins, ids = self._without(marks)
        longest_first = "|".join(re.escape(mark) for mark in sorted(stand_ins, key=len, reverse=True))
        own = [re.sub(longest_first, lambda found: stand_ins[found.group()], piece) for piece in pieces[::2]]
        text = "".join(own[n // 2] if n % 2 == 0 else piece for n, piece in enumerate(pieces))
        return [ids.get(token, token) for token in tokenizer.encode(text, add_special_tokens=False).ids]

    def _make_without(self, marks: frozenset[int]) -> tuple[tokenizers.Tokenizer, dict[str, str], dict[int, int]]:
        """The tokenizer with other names for `marks`, the name of each, and which ids of its are which of ours."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise InferenceError("The prompt holds a mark, and this model's tokenizer has no tokenizer.json by which it could be read as text. Take it out.")
        rules = json.loads(backend.to_str()) | {"post_processor": None, "truncation": None, "padding": None}
        names = self._names(marks)
        stand_ins = dict(zip(names, (f"\ue000{secrets.token_hex(8)}\ue001" for _ in names), strict=True))
        added = {token["content"]: token["id"] for token in rules["added_tokens"]}
        for token in rules["added_tokens"]:
            token["content"] = stand_ins.get(token["content"], token["content"])
        if isinstance(rules["model"].get("vocab"), list):  # Unigram finds a mark among its pieces too
            rules["model"]["vocab"] = [[stand_ins.get(name, name), score] for name, score in rules["model"]["vocab"]]
        other = tokenizers.Tokenizer.from_str(json.dumps(rules))
        return other, stand_ins, {int(other.token_to_id(stand_ins.get(name, name)) or 0): token_id for name, token_id in added.items()}

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _marks_of(self, ids: Sequence[int]) -> list[int]:
        return [token for token in ids if token in self._marks]

    def _names(self, marks: frozenset[int]) -> list[str]:
        return [token.content for token_id, token in self._tokenizer.added_tokens_decoder.items() if token_id in marks]


def check_length(prompt_tokens: int, max_new_tokens: int, context_length: int) -> None:
    """Raise InferenceError when prompt and answer together pass the model's context."""
    room = context_length - max_new_tokens
    if prompt_tokens > room:
        raise InferenceError(
            f"The prompt has {prompt_tokens} tokens; this model takes {context_length} in all, and {max_new_tokens} are kept for the answer. "
            f"Shorten it to {max(0, room)} tokens or ask for fewer new tokens."
        )


def check_rows(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], rows: int) -> None:
    """Raise InferenceError for an id that the model's embedding has no row for."""
    if beyond := [token for token in ids if token >= rows]:
        name = tokenizer.convert_ids_to_tokens(beyond[0])
        raise InferenceError(
            f"The prompt holds the token {name} (id {beyond[0]}), and this model's embedding has {rows} rows: the tokenizer is larger than the model. "
            "Leave the token out, or save the model again after resize_token_embeddings."
        )


class TextStream:
    """Turns ids into text piece by piece; `add` gives what became certain, `finish` the held-back rest."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, hidden: frozenset[int] = frozenset()) -> None:
        """`hidden`: ids that are no text (`tokens.hidden_ids`); any other mark is text, as its name."""
        self._tokenizer, self._hidden = tokenizer, hidden
        self._ids: list[int] = []
        self._window, self._whole = 0, 0  # where the ids still decoded begin, and up to where they were whole
        self._sent = ""  # of the window's text, what is out
        self.text = ""

    def add(self, token_id: int) -> str:
        """The text that this id completes; empty while a character is incomplete."""
        if token_id in self._hidden:
            return ""
        self._ids.append(token_id)
        now = self._decode(self._ids[self._window :])
        if not now.startswith(self._sent):  # bytes in a row are no text while the last character of them is unfinished
            self._window, self._sent = self._whole, ""
            now = self._decode(self._ids[self._window :])
        tail = _tail(now)
        delta = now[len(self._sent) : len(now) - tail]
        self._sent += delta
        self.text += delta
        if not tail and delta:
            self._look_from(self._whole, 0)
            self._whole = len(self._ids)
        elif tail and len(self._ids) - self._window > MOST_DECODED:
            self._look_from(len(self._ids) - MOST_DECODED // 2, tail)
            self._whole = max(self._whole, self._window)
        return delta

    def _look_from(self, window: int, tail: int) -> None:
        """Decode from the id at `window` on, if all of its text but the same unfinished tail is out."""
        text = self._decode(self._ids[window:])
        if tail == _tail(text):
            self._window, self._sent = window, text[: len(text) - tail]

    def whole(self, ids: Sequence[int]) -> str:
        """The text of `ids` at once, whatever was added before."""
        return self._decode([token for token in ids if token not in self._hidden])

    def finish(self) -> str:
        """The rest, so that everything together is the one-shot decoding, which `text` is from now on; empty where that is another than what is out."""
        whole = self._decode(self._ids)
        delta = whole[len(self.text) :] if whole.startswith(self.text) else ""
        self.text = whole
        return delta

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _tail(text: str) -> int:
    """How many characters at the end may be an unfinished one."""
    return min(LONGEST_TAIL, len(text) - len(text.rstrip("\ufffd")))
