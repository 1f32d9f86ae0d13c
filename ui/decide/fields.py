"""What is asked in the form: each field with its unit and what an empty one means, and its values -> an `Asked`.

In: texts as the visitor typed them: numbers, shares in percent, seconds, minutes. Out: what is wanted, or a `Refused` that names the field. Knows no component.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from inference.decide.asked import MOST_PER_DAY, MOST_TOKENS
from inference.decide.costs import DAY_H
from inference.decide.model import Asked, Price
from inference.errors import WrongArguments

PERCENT = 100.0
THOUSANDS = re.compile(r"-?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
TWO_WAYS = re.compile(r"-?[1-9]\d{0,2},\d{3}")  # one comma: thousands, or a decimal comma with three places behind it
DOTTED = re.compile(r"-?[1-9]\d{0,2}(\.\d{3})+")  # of what counts things: a decimal point, or dots after the thousands
MOST_SAID = 40  # characters of what was typed


class Refused(WrongArguments):
    """A value that can't be meant; `field` is the name of where it stands."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


@dataclass(frozen=True)
class Field:
    """A number that is asked for: its name in `Asked`, its label with the unit, what it is called in a sentence, and what is said of it.

    `value` stands there at the start, `empty` is shown where nothing does; `most` may be reached, 0 only where `zero` says so. What `counts` things is
    written with a comma after its thousands; elsewhere one comma may be a decimal one.
    """

    name: str
    label: str
    called: str
    info: str
    value: str = ""
    empty: str = ""
    most: float = math.inf
    zero: bool = False
    whole: bool = False
    counts: bool = False
    unit: str = ""

    def read(self, text: str) -> float | None:
        """The number, None where the field is empty; raises Refused where it can't be meant."""
        value = number(self.name, self.called, text, self.counts)
        if value is None:
            if self.value:
                raise Refused(self.name, f"{self.called} is missing. Fill it in, such as {self.value}.")
            return None
        enough = value >= 0 if self.zero else value > 0
        if not (math.isfinite(value) and enough and value <= self.most):
            raise Refused(self.name, f"{self.called} must be {self._range()}, not {value:,.10g}.")
        if self.whole and value != int(value):
            raise Refused(self.name, f"{self.called} must be a whole number, not {value:,.10g}.")
        return value

    def _range(self) -> str:
        most = f" and {self.most:,.10g}{self.unit} at most" if math.isfinite(self.most) else ""
        return f"{'0' if self.zero else 'more than 0'}{self.unit}{' or more' if self.zero else ''}{most}"


LOAD = (
    Field("answers_per_day", "Answers a day", "The number of answers a day", "How many visitors it answers.", "1000", most=MOST_PER_DAY, counts=True),
    Field(
        "tokens", "Tokens an answer", "The number of tokens an answer", "Empty: as many as were measured.",
        empty="as measured", most=MOST_TOKENS, whole=True, counts=True,
    ),
    Field("open_hours", "Open hours a day", "The number of open hours a day", "The answers come spread over them.", f"{DAY_H:g}", most=DAY_H),
    Field(
        "sleep_after_min", "Asleep after (minutes)", "The time until it sleeps", "Without a visitor. Empty: always on.",
        empty="always on", zero=True, unit=" minutes",
    ),
)  # fmt: skip
LIMITS = (
    Field("max_first_token_s", "First word within (s)", "The limit on the first word", "The longest wait for it.", empty="no limit", unit=" s"),
    Field("max_total_s", "Whole answer within (s)", "The limit on the whole answer", "The longest wait for it.", empty="no limit", unit=" s"),
    Field(
        "min_agreement", "Same first choice at least (%)", "The least share of equal first choices", "Of the tokens, against full precision.",
        empty="no limit", most=PERCENT, zero=True, unit=" %",
    ),
    Field(
        "max_lost", "Answers lost at most (%)", "The largest share of answers lost", "As expected in full precision, and not here.",
        empty="no limit", most=PERCENT, zero=True, unit=" %",
    ),
)  # fmt: skip
FIELDS = (*LOAD, *LIMITS)
SHARES = ("min_agreement", "max_lost")


def number(field: str, called: str, text: str, counts: bool = False) -> float | None:
    """A number as it was typed, its thousands set apart or not; None for an empty text. Raises Refused where it is none, or may be two (`Field.counts`)."""
    plain = "".join(text.split()).removeprefix("$").removesuffix("%")
    if TWO_WAYS.fullmatch(plain) and not counts:
        raise Refused(field, f"{called} can be read in two ways: type {float(plain.replace(',', '.')):g} or {plain.replace(',', '')}, not “{plain}”.")
    if DOTTED.fullmatch(plain) and counts:
        once = f"{float(plain):g} or " if plain.count(".") == 1 else ""
        raise Refused(field, f"{called} can be read in two ways: type {once}{plain.replace('.', '')}, not “{plain}”.")
    if THOUSANDS.fullmatch(plain):
        plain = plain.replace(",", "")
    try:
        return float(plain) if plain else None
    except ValueError as error:
        raise Refused(field, f"{called} must be a number, such as 20 or 0.5, not “{text.strip()[:MOST_SAID]}”.") from error


def asked(values: Mapping[str, str], prices: Mapping[str, Price]) -> Asked:
    """What is wanted, by the fields' values in their own units; raises Refused for the first that can't be meant."""
    read = {field.name: field.read(values.get(field.name, "")) for field in FIELDS}
    first, whole, tokens = read["max_first_token_s"], read["max_total_s"], read["tokens"]
    if first and whole and whole < first:
        raise Refused("max_total_s", "The whole answer may take no less than its first word. Raise this limit, or lower the other.")
    shares = {name: None if (part := read[name]) is None else part / PERCENT for name in SHARES}
    return Asked(
        read["answers_per_day"] or 0.0, prices, None if tokens is None else int(tokens), first, whole, shares["min_agreement"], shares["max_lost"],
        read["open_hours"] or 0.0, read["sleep_after_min"],
    )  # fmt: skip
