"""What a counter's steps leave of a run's energy: a figure within a tenth, or none."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from inference.energy import MOST_ERROR, Energy, of_an_answer


def run(joules: float, seconds: float, since_s: float | None = None, idle: float | None = None, since_joules: float | None = 0.0) -> Energy:
    return Energy(joules, seconds, idle, "nvml", 0.1, since_s, since_joules if since_s is not None else None)


class Stepping:
    """A counter that tells, every `step_s`, what a device of known power has taken: `busy` in runs, `idle` between."""

    def __init__(self, step_s: float, phase: float, spans: list[tuple[float, float]], busy: float, idle: float) -> None:
        self.step_s, self.phase, self.spans, self.busy, self.idle = step_s, phase, spans, busy, idle

    def joules(self, now: float) -> float:
        now = math.floor((now + self.phase) / self.step_s) * self.step_s - self.phase
        at_work = sum(max(0.0, min(now, high) - low) for low, high in self.spans)
        return self.idle * now + (self.busy - self.idle) * at_work


def counted(seconds: float, gap: float, n: int, phase: float, idle: float | None = None) -> list[Energy]:
    """`n` runs at 400 W, `gap` seconds of 100 W between, as a counter of 0.1 s gives them; `idle` is what a rest before them gave."""
    starts = [5 + k * (seconds + gap) for k in range(n)]
    counter = Stepping(0.1, phase, [(start, start + seconds) for start in starts], 400, 100)
    taken = [(counter.joules(start), counter.joules(start + seconds)) for start in starts]
    pauses = [None, *(after[0] - before[1] for before, after in pairwise(taken))]
    return [run(after - before, seconds, gap if k else None, idle, pauses[k]) for k, (before, after) in enumerate(taken)]


@pytest.mark.parametrize(("seconds", "gap", "n"), [(0.077, 0.002, 40), (0.077, 0.012, 100), (0.5, 0.02, 10), (2.0, 3.0, 3), (1.0, 0.0, 1), (0.3, 0.01, 8)])
@pytest.mark.parametrize("idle", [None, 80.0, 100.0])
def test_the_figure_is_within_the_error_it_is_given_with(seconds, gap, n, idle):
    shift = random.Random(7)
    for phase in (shift.uniform(0, 0.1) for _ in range(12)):
        found = of_an_answer(counted(seconds, gap, n, phase, idle))
        assert found and found.error <= MOST_ERROR and found.n == n
        assert found.joules == pytest.approx(400 * seconds, rel=found.error + 1e-9)


@pytest.mark.parametrize(
    ("seconds", "gap", "n"), [(0.077, 0.0, 1), (0.077, 0.002, 10), (0.077, 0.05, 300), (0.077, 0.025, 300), (0.5, 3.0, 100), (0.99, 0.0, 1)]
)
def test_what_may_be_further_off_is_no_figure(seconds, gap, n):
    assert of_an_answer(counted(seconds, gap, n, 0.03)) is None


def test_idle_power_bounds_what_is_not_known_of_the_pauses():
    assert of_an_answer(counted(0.077, 0.016, 100, 0.03, 100.0)).error < MOST_ERROR and of_an_answer(counted(0.077, 0.016, 100, 0.03)) is None


def test_what_the_device_did_in_a_long_pause_is_in_no_answer():
    found = of_an_answer([*[run(200, 0.5, 0.0, 100.0)] * 30, run(200, 0.5, 10.0, 100.0, 9000.0), *[run(200, 0.5, 0.0, 100.0)] * 30])
    assert found.joules == pytest.approx(200) and found.error == pytest.approx(2 * 0.1 / 30.5)


def test_long_runs_give_their_median_and_short_ones_their_mean():
    assert of_an_answer([run(100, 2), run(110, 2, 9), run(500, 2, 9)]).joules == 110
    assert of_an_answer([run(30, 0.5, 0.0), run(50, 0.5, 0.0), run(10, 0.5, 0.0)]).joules == 30


def test_idle_power_stands_beside_it_and_is_the_last_that_was_measured():
    found = of_an_answer([run(100, 2), run(110, 4, 9, 50.0), run(120, 3, 9)])
    assert (found.idle_watts, found.idle_joules) == (50, 150) and of_an_answer([run(100, 2)]).idle_joules is None


def test_idle_power_is_of_the_same_length_as_the_joules_beside_it():
    found = of_an_answer([run(100, 1, idle=80.0), run(100, 1, 9, 80.0), run(900, 10, 9, 80.0)])
    assert (found.joules, found.idle_joules) == (100, 80)


def test_nothing_read_and_a_counter_that_stands_still_are_no_figure():
    assert of_an_answer([]) is of_an_answer([None]) is of_an_answer([run(0, 60)]) is of_an_answer([run(-1, 60), run(5, 60)]) is None
