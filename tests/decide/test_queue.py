"""The simulated line: held against the formulas of queues, grows with the rate, and gives the same each time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from inference.decide import queue
from inference.decide.queue import Limits, Line, Sleep

ONE = Line((1.0,), (1.0,))
CLOSE = 0.05


def exponential() -> Line:
    """A lane whose answers are exponential with mean 1: 4,000 of them, at even steps of the distribution."""
    spans = -np.log(1 - (np.arange(4000) + 0.5) / 4000)
    each = tuple((spans / spans.mean()).tolist())
    return Line(each, each)


def wait_of_equal_answers(busy: float) -> float:
    """The p95 wait of M/D/1, service 1 (Erlang): P(W <= t) = (1 - busy) sum over k <= t of (busy (k - t))^k / k! exp(-busy (k - t))."""

    def share(t: float) -> float:
        return (1 - busy) * math.fsum((busy * (k - t)) ** k / math.factorial(k) * math.exp(-busy * (k - t)) for k in range(int(t) + 1))

    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if share(middle) < 0.95 else (low, middle)
    return low


@pytest.mark.parametrize("busy", [0.3, 0.5, 0.7, 0.8, 0.9])
def test_the_wait_is_that_of_the_formula_for_equal_answers(busy):
    assert ONE.at(busy).wait_s == pytest.approx(wait_of_equal_answers(busy), rel=CLOSE)


@pytest.mark.parametrize("busy", [0.3, 0.5, 0.7, 0.8, 0.9])
def test_the_wait_is_that_of_the_formula_for_exponential_answers(busy):
    assert exponential().at(busy).wait_s == pytest.approx(math.log(busy / 0.05) / (1 - busy), rel=CLOSE)  # M/M/1: P(W > t) = busy exp(-(1 - busy) t)


def test_the_most_visitors_are_those_of_the_formula():
    limit = 1 + wait_of_equal_answers(0.8)
    assert ONE.most(Limits(total_s=limit)) == pytest.approx(0.8, rel=0.01)
    assert ONE.at(ONE.most(Limits(total_s=limit))).keeps(Limits(total_s=limit))


def test_waits_only_grow_with_the_rate_and_the_most_only_with_the_limit():
    line = Line((0.2, 0.3, 0.9), (1.0, 1.5, 4.0))
    waits = [line.at(rate / 100).total_s for rate in range(1, 45, 4)]
    assert waits == sorted(waits)
    most = [line.most(Limits(first, total)) for first, total in ((0.9, 4.0), (0.9, 8.0), (2.0, 8.0), (20.0, 80.0))]
    assert most == sorted(most) and most[0] > 0


def test_the_first_token_and_the_answer_each_have_their_limit():
    line = Line((0.2, 0.3), (1.0, 2.0))
    both = line.most(Limits(1.0, 5.0))
    assert 0 < both == min(line.most(Limits(first_s=1.0)), line.most(Limits(total_s=5.0)))


def test_an_answer_that_breaks_the_limit_alone_leaves_nothing_and_no_limit_leaves_what_is_just_not_always_busy():
    assert ONE.most(Limits(total_s=0.99)) == 0
    assert 0.999 < ONE.most(Limits()) < 1


def test_it_is_the_same_each_time():
    once = Line((0.2,), (1.0,)).at(0.7)
    queue._draws.cache_clear()
    assert Line((0.2,), (1.0,)).at(0.7) == once


def test_who_wakes_a_sleeper_waits_for_its_load():
    rarely = ONE.asleep_between(1e-4, Sleep(60, 40))
    assert rarely.wait_s == 40 and rarely.woke == pytest.approx(math.exp(-60e-4), rel=0.01)
    often = ONE.asleep_between(0.5, Sleep(600, 40))
    assert often.woke == 0 and often.wait_s == pytest.approx(ONE.at(0.5).wait_s, rel=CLOSE)
