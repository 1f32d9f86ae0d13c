"""Figures in words: limits that hold as they are told, numbers without exponents, one thing and several."""

from __future__ import annotations

import math
import random

import pytest

from inference.units import digits, exact_seconds, joules, many, percent, rate, seconds, seconds_to, size, two_sizes

PARTS = {" ms": 1e-3, " s": 1.0}


def told(words: str) -> float:
    """The seconds that such words say."""
    if " h " in words:
        hours, minutes = words.removesuffix(" min").split(" h ")
        return 3600 * int(hours) + 60 * int(minutes)
    if " min" in words:
        minutes, rest = words.removesuffix(" s").split(" min ")
        return 60 * int(minutes) + int(rest)
    number, _, unit = words.partition(" ")
    return float(number) * PARTS[f" {unit}"]


def test_a_span_rounded_up_or_down_is_never_on_the_other_side_of_it_and_as_near_as_words_can_be():
    rng = random.Random(5)
    for value in (10 ** rng.uniform(-3, 5) for _ in range(4000)):
        up, down = told(seconds_to(value, math.ceil)), told(seconds_to(value, math.floor))
        assert down <= value * (1 + 1e-6) and up >= value * (1 - 1e-6), value
        assert up - down <= max(0.1 * value, 0.001) and down <= told(seconds(value)) <= up, value
    assert [seconds_to(5.5, way) for way in (math.ceil, math.floor)] == ["5.50 s", "5.50 s"]


def test_a_span_has_two_digits_at_least_so_that_figures_side_by_side_are_equally_exact():
    spans = (0.007, 0.0069, 0.00996, 0.0994, 0.0004, 0.00002, 0.0995, 0.0)
    assert [seconds(span) for span in spans] == ["7.0 ms", "6.9 ms", "10 ms", "99 ms", "0.40 ms", "0.020 ms", "100 ms", "0 ms"]


def test_a_span_that_was_asked_is_told_as_it_was_asked():
    asked = {
        1.6: "1.60 s",
        16.45: "16.45 s",
        2.345: "2.345 s",
        0.05: "50 ms",
        0.0125: "0.0125 s",
        90.0: "90.0 s",
        120.0: "2 min 00 s",
        120.5: "120.5 s",
        5400.0: "1 h 30 min",
        5401.0: "5,401 s",
    }
    assert [exact_seconds(span) for span in asked] == list(asked.values())


@pytest.mark.parametrize(
    ("value", "most", "words"),
    [(20_000, 4, "20,000"), (0.27691, 4, "0.2769"), (1e9, 10, "1,000,000,000"), (0.4, 10, "0.4"), (0, 4, "0"), (-1.5, 3, "-1.5"), (1.25e-5, 3, "0.0000125")],
)
def test_numbers_are_told_without_an_exponent(value, most, words):
    assert digits(value, most) == words


def test_one_is_no_plural():
    assert [many(n, "answer") for n in (1, 1.0, 0.5, 20_000)] == ["1 answer", "1 answer", "0.5 answers", "20,000 answers"]


def test_what_is_slow_or_little_is_told_as_no_zero():
    assert (rate(0.0043), rate(0.43), rate(0.0), joules(0.0061)) == ("0.0043 tok/s", "0.43 tok/s", "0.00 tok/s", "0.0061 J")


def test_no_unit_is_told_full_where_the_next_one_begins():
    spans = (0.99949, 0.9995, 9.9951, 59.99, 99.949, 99.951, 3599.4, 3599.6, 7199.0, 5429.0)
    told = ["999 ms", "1.00 s", "10.0 s", "60.0 s", "99.9 s", "1 min 40 s", "59 min 59 s", "1 h 00 min", "2 h 00 min", "1 h 30 min"]
    assert [seconds(span) for span in spans] == told
    assert [size(value) for value in (1023.4, 1023.6, 1023.96 * 2**20, 1023.4 * 2**20, 99.996 * 2**30)] == [
        "1023 B",
        "1.0 KiB",
        "1.00 GiB",
        "1023 MiB",
        "100 GiB",
    ]
    assert [joules(value) for value in (999.4, 999.6, 9.9951, 99.951)] == ["999 J", "1.00 kJ", "10.0 J", "100 J"]


def test_a_share_is_told_as_none_or_all_only_where_it_is():
    assert [percent(part) for part in (0, 1, 0.982, 0.99996, 0.00004, 0.99994)] == ["0.00 %", "100.00 %", "98.20 %", "99.996 %", "0.004 %", "99.99 %"]


def test_two_sizes_that_are_held_against_each_other_never_read_alike_unless_they_are():
    assert two_sizes(2**30, 2**31) == ("1.00 GiB", "2.00 GiB") and two_sizes(2**30, 2**30) == ("1.00 GiB", "1.00 GiB")
    assert two_sizes(5 * 2**30, 5 * 2**30 - 7) == ("5,368,709,120 B", "5,368,709,113 B")
