"""The axes of a drawing of costs: where a number of answers a day or of dollars lies, and ticks whose words stand clear of each other, on a phone too.

In: the ends of an axis. Out: ticks, their places shares from 0 to 1 (dollars from the top). Knows no decision and no HTML.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

from inference.decide.figures import dollars, number, price
from inference.report.charts import ticks_of

WIDE = 10.0  # times from the fewest to the most answers a day: from there on the axis goes by their logarithm
FEW_DECADES = 2.0  # up to there with ticks at 2 and 5 as well
SHORT = 10_000  # from there on a number on an axis is told by a letter
LEAST = 1e-4  # dollars that are told by a power of ten below
CENTS = 0.0995  # dollars, from which on a tick has two places
LETTERS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
PHONE = 260  # pixels: a drawing's width on a phone, of a letter at most, between two words, and beside the drawing
LETTER, BETWEEN, BESIDE = 8, 4, 16
Place = Callable[[float], float | None]


@dataclass(frozen=True)
class Tick:
    """A place on an axis, and its words."""

    at: float
    words: str

    @property
    def anchor(self) -> str:
        """Which of their ends lies there: the middle, unless they would reach out of the drawing."""
        half, beside = len(self.words) * LETTER / PHONE / 2, BESIDE / PHONE
        return "start" if self.at - half < -beside else "end" if self.at + half > 1 + beside else "middle"

    @property
    def span(self) -> tuple[float, float]:
        """From where to where the words reach on a phone."""
        width = len(self.words) * LETTER / PHONE
        begin = self.at - {"start": 0, "middle": width / 2, "end": width}[self.anchor]
        return begin, begin + width


def clear(ticks: Iterable[Tick]) -> tuple[Tick, ...]:
    """Those whose words stand clear of the ones before them, in their order."""
    kept: list[Tick] = []
    for tick in ticks:
        (begin, end), between = tick.span, BETWEEN / PHONE
        if all(end + between < other.span[0] or begin - between > other.span[1] for other in kept):
            kept.append(tick)
    return tuple(kept)


def across(low: float, high: float) -> tuple[Place, tuple[Tick, ...]]:
    """Where a number of answers lies between both ends (None outside), and the axis's ticks."""
    if high / low > WIDE:
        reach = math.log10(high / low)

        def by_powers(answers: float) -> float | None:
            return math.log10(answers / low) / reach if low <= answers <= high else None

        return by_powers, _placed(by_powers, _powers(low, high), (1,) if reach > FEW_DECADES else (1, 2, 5))

    def evenly(answers: float) -> float | None:
        return (answers - low) / (high - low) if low <= answers <= high else None

    return evenly, _placed(evenly, ticks_of(high), (1,))


def _powers(low: float, high: float) -> list[float]:
    """The powers of ten around both ends."""
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def _placed(place: Place, numbers: list[float], digits: tuple[int, ...]) -> tuple[Tick, ...]:
    """Ticks at the numbers times each digit: of the first digit's every one, or every second or third as they stand clear; of the others those with room."""
    ticks = [[Tick(at, many(digit * each)) for each in numbers if (at := place(digit * each)) is not None] for digit in digits]
    first = next(found for step in count(1) if len(clear(found := ticks[0][::step])) == len(found))
    return tuple(sorted(clear([*first, *(tick for others in ticks[1:] for tick in others)]), key=lambda tick: tick.at))


def up(most: float) -> tuple[Tick, ...]:
    """The ticks of dollars, without cents where none of them has any."""
    ticks = ticks_of(most)
    whole = all(at == round(at) for at in ticks)
    return tuple(Tick(1 - at / most, _money(at, whole)) for at in ticks)


def _money(value: float, whole: bool) -> str:
    if not value:
        return "$0"
    if value < LEAST:
        return f"${value:.2g}"
    if value < CENTS:
        return price(value)
    return f"${_short(value)}" if value >= SHORT else dollars(value).removesuffix(".00") if whole else dollars(value)


def many(answers: float) -> str:
    """A number of answers, short enough for an axis on a phone: "0.2", "2,500", "40k"."""
    return number(answers) if answers < SHORT else _short(answers)


def _short(value: float) -> str:
    """A large number in three letters or four: "40k", "1.5M", "25B", "2T"."""
    size, letter = next((size, letter) for size, letter in LETTERS if value >= size)
    return f"{value / size:.4g}{letter}"
