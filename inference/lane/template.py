"""A request -> its conversation as the chat template writes it, proved to hold the texts. Knows the template, no ids.

A template may want a text in parts, leave it out (system prompts, say) or change it; each is found out by writing the conversation once
more with stand-ins in the texts' places.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2.exceptions import TemplateError
from transformers import AddedToken, PreTrainedTokenizerBase

from inference.errors import InferenceError
from inference.events import Request
from inference.fast import first_line
from inference.lane import budget

FAULTS = (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError)  # what a template's own code raises
DATE = "strftime_now"  # what a template asks for the date by
Turns = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Conversation:
    """A conversation as its template writes it.

    `outline` is the same with other texts: its pieces are the template's and, at odd places, the asker's (None where these can't be told apart).
    `ordinary`: plain code's usual call writes the same, on any day.
    """

    text: str
    outline: str
    pieces: tuple[str, ...] | None
    ordinary: bool


def write(tokenizer: PreTrainedTokenizerBase, request: Request) -> Conversation:
    """The request's conversation; raises InferenceError where the template refuses it, leaves a text out or changes one."""
    turns = [*([("system", request.system)] if request.system else []), ("user", request.prompt)]
    stand_ins = [f"text{secrets.token_hex(8)}" for _ in turns]
    outline, in_parts = _outline(tokenizer, turns, stand_ins)
    try:
        text = render(tokenizer, turns, in_parts)
    except FAULTS as error:
        raise _refused(error) from error
    pieces = _pieces(text, outline, stand_ins, [content for _, content in turns])
    if pieces is None:
        for role, content in turns:
            if content.strip() not in text:
                raise InferenceError(f"This model's chat template changes the {_name(role)}, so the model would be asked something else. Use the raw format.")
    dated = DATE in tokenizer.get_chat_template()
    return Conversation(text, outline, pieces, not (in_parts or dated))


def render(tokenizer: PreTrainedTokenizerBase, turns: Turns, in_parts: bool = False, answer_next: bool = True) -> str:
    """The turns (role, text) as the template writes them; raises what the template raises."""
    messages = [{"role": role, "content": [{"type": "text", "text": text}] if in_parts else text} for role, text in turns]
    with budget.bounded():
        return str(tokenizer.apply_chat_template(messages, add_generation_prompt=answer_next, tokenize=False))


def _outline(tokenizer: PreTrainedTokenizerBase, turns: Turns, stand_ins: list[str]) -> tuple[str, bool]:
    """The conversation with the stand-ins as texts, and whether they must be given in parts; raises InferenceError where one is left out."""
    faults: list[Exception] = []
    left_out: list[str] = []
    for in_parts in (False, True):
        try:
            outline = render(tokenizer, [(role, text) for (role, _), text in zip(turns, stand_ins, strict=True)], in_parts)
        except budget.TooMuch as error:  # nor would it in parts
            raise _refused(error) from error
        except FAULTS as error:
            faults.append(error)
            continue
        missing = [role for (role, _), text in zip(turns, stand_ins, strict=True) if text not in outline or _as_data(text, outline)]
        if not missing:
            return outline, in_parts
        left_out = left_out or missing
    if not left_out:
        raise _refused(faults[0]) from faults[0]
    advice = "Leave the system prompt empty, or use the raw format." if left_out == ["system"] else "Use the raw format."
    raise InferenceError(f"This model's chat template leaves out the {_name(left_out[0])}, so the model would be asked something else. {advice}")


def _as_data(text: str, outline: str) -> bool:
    """Whether a template that knows no parts has written a part as the data that it is: {'type': 'text', 'text': ...}."""
    return re.search(rf"""['"]text['"]: ?['"]{re.escape(text)}['"]""", outline) is not None


def _pieces(text: str, outline: str, stand_ins: list[str], contents: list[str]) -> tuple[str, ...] | None:
    """`text` in pieces, the template's and the askers' in turn, where it is the outline filled with the texts, trimmed at either end or not."""
    parts = re.split(f"({'|'.join(stand_ins)})", outline)
    for filling in itertools.product(*(dict.fromkeys((one, one.strip(), one.rstrip(), one.lstrip())) for one in contents)):
        meant = dict(zip(stand_ins, filling, strict=True))
        pieces = [meant.get(part, part) for part in parts]
        if "".join(pieces) == text:
            return tuple(pieces)
    return None


def turn_marks(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The ids of the marks that the template sets at every turn: those of which a longer conversation has more."""
    if not tokenizer.chat_template:
        return frozenset()
    for in_parts in (False, True):
        try:
            one, three = (render(tokenizer, turns, in_parts) for turns in ([("user", "a")], [("user", "a"), ("assistant", "b"), ("user", "c")]))
        except budget.TooMuch:
            break
        except FAULTS:
            continue  # `write` says of a request what is wrong
        few, many = (Counter(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (one, three))
        added = tokenizer.added_tokens_decoder
        return frozenset(token for token in added if many[token] > few[token] and _is_mark(added[token]))
    return frozenset()


def _is_mark(token: AddedToken) -> bool:
    """Whether an added token that comes with every turn is a mark of it, and no line break or word that was only added to the vocabulary."""
    return any(map(str.isalnum, token.content)) and (token.special or not token.content.strip().isalnum())


def _name(role: str) -> str:
    return "system prompt" if role == "system" else "prompt"


def _refused(error: Exception) -> InferenceError:
    return InferenceError(f"This model's chat template refused the prompt ({first_line(error)}). Leave the system prompt empty, or use the raw format.")
