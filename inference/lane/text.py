"""Prompt -> token ids, and token ids -> text as they come. Knows the tokenizer and no model.

Text is decoded with context and only an incomplete tail is held back, so that emoji, Korean, indentation and
trailing spaces arrive whole; the pieces together are exactly the one-shot decoding.
"""

from __future__ import annotations

from typing import Any

from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerBase

from inference.errors import InferenceError
from inference.events import Request

TURN_ENDS = ("<|im_end|>", "<end_of_turn>", "<turn|>", "<|eot_id|>", "<|end|>", "<|eom_id|>", "<|endoftext|>", "</s>")
LONGEST_TAIL = 3  # characters that an unfinished one can show as


def encode(tokenizer: PreTrainedTokenizerBase, request: Request) -> tuple[list[int], str]:
    """The prompt's ids and the format really used; raw where the tokenizer has no chat template."""
    if request.format == "raw" or not tokenizer.chat_template:
        text = f"{request.system}\n{request.prompt}" if request.system else request.prompt
        return list(tokenizer(text)["input_ids"]), "raw"
    messages = [{"role": "user", "content": request.prompt}]
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    try:
        encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True)
    except TemplateError as error:
        raise InferenceError(f"This model's chat template refused the prompt ({error}). Leave the system prompt empty, or use the raw format.") from error
    return list(encoded["input_ids"]), "chat"


def check_length(prompt_tokens: int, max_new_tokens: int, context_length: int) -> None:
    """Raise InferenceError when prompt and answer together pass the model's context."""
    room = context_length - max_new_tokens
    if prompt_tokens > room:
        raise InferenceError(
            f"The prompt has {prompt_tokens} tokens; this model takes {context_length} in all, and {max_new_tokens} are kept for the answer. "
            f"Shorten it to {max(0, room)} tokens or ask for fewer new tokens."
        )


def end_ids(tokenizer: PreTrainedTokenizerBase, *configs: Any) -> frozenset[int]:
    """Every id that ends an answer: the tokenizer's, the configs' and the turn-end marks in the vocabulary."""
    found: set[int] = set()
    for source in (tokenizer, *configs):
        value = getattr(source, "eos_token_id", None)
        found.update(value if isinstance(value, list | tuple) else [] if value is None else [value])
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    vocabulary = tokenizer.get_added_vocab()
    found.update(vocabulary[mark] for mark in TURN_ENDS if mark in vocabulary and vocabulary[mark] in special)
    return frozenset(found)


class TextStream:
    """Turns ids into text piece by piece; `add` gives what became certain, `finish` the held-back rest."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._window, self._whole = 0, 0  # where the ids still decoded begin, and up to where they were whole
        self._sent = 0  # characters of the window's text that are out
        self.text = ""

    def add(self, token_id: int) -> str:
        """The text that this id completes; empty while a character is incomplete."""
        self._ids.append(token_id)
        now = self._decode(self._ids[self._window :])
        tail = min(LONGEST_TAIL, len(now) - len(now.rstrip("\ufffd")))
        delta = now[self._sent : len(now) - tail]
        self._sent += len(delta)
        self.text += delta
        if not tail and delta:
            self._window, self._whole = self._whole, len(self._ids)
            self._sent = len(self._decode(self._ids[self._window :]))
        return delta

    def finish(self) -> str:
        """The rest, so that everything together is the one-shot decoding."""
        whole = self._decode(self._ids)
        delta = whole[len(self.text) :] if whole.startswith(self.text) else ""
        self.text = whole
        return delta

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
