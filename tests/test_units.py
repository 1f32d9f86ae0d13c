"""Figures in words: limits that hold as they are told, numbers without exponents, one thing and several."""

from __future__ import annotations

import math
import random

import pytest

from inference.units import digits, many, seconds, seconds_to

PARTS = {" ms": 1e-3, " s": 1.0}


def told(words: str) -> float:
    """The seconds that such words say."""
    if " min" in words:
        minutes, rest = words.removesuffix(" s").split(" min ")
        return 60 * int(minutes) + int(rest)
    number, _, unit = words.partition(" ")
    return float(number) * PARTS[f" {unit}"]


def test_a_span_rounded_up_or_down_is_never_on_the_other_side_of_it_and_as_near_as_words_can_be():
    rng = random.Random(5)
    for value in (10 ** rng.uniform(-3, 3) for _ in range(3000)):
        up, down = told(seconds_to(value, math.ceil)), told(seconds_to(value, math.floor))
        assert down <= value * (1 + 1e-6) and up >= value * (1 - 1e-6), value
        assert up - down <= max(0.1 * value, 0.001) and down <= told(seconds(value)) <= up, value
    assert [seconds_to(5.5, way) for way in (math.ceil, math.floor)] == ["5.50 s", "5.50 s"]


@pytest.mark.parametrize(
    ("value", "most", "words"),
    [(20_000, 4, "20,000"), (0.27691, 4, "0.2769"), (1e9, 10, "1,000,000,000"), (0.4, 10, "0.4"), (0, 4, "0"), (-1.5, 3, "-1.5"), (1.25e-5, 3, "0.0000125")],
)
def test_numbers_are_told_without_an_exponent(value, most, words):
    assert digits(value, most) == words


def test_one_is_no_plural():
    assert [many(n, "answer") for n in (1, 1.0, 0.5, 20_000)] == ["1 answer", "1 answer", "0.5 answers", "20,000 answers"]
