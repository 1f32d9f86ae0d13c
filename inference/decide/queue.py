"""A lane that answers one at a time, first come first served, simulated: how long a visitor waits, and how many it can take.

In: the seconds of each measured answer, visitors a second. Out: waits, the largest rate that keeps limits. Arrivals are Poisson, answers are drawn from
the measured ones, each as often. The same draws serve every rate, so that waits only grow with it. An estimate, by a seed of its own: always the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

VISITORS = 2**18
VISITORS_OF_A_SLEEPER = 2**16  # followed one by one
SEED = 18  # its draws come within 5 % of what formulas give for answers that take all the same, and for exponential ones, up to nine tenths of full use
P95 = 95.0
NEARLY = 1e-9  # under full use by this share
FINE = 1e-4  # how exactly the largest rate is found, as a share of full use

Seconds = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Limits:
    """The longest acceptable first token and whole answer, in seconds, the wait for one's turn included; None is no limit."""

    first_s: float | None = None
    total_s: float | None = None


@dataclass(frozen=True)
class Sleep:
    """A machine that sleeps `after_s` seconds without a visitor, and then takes `load_s` to answer again; `night_s` is closed time after each `a_day` visitors."""

    after_s: float
    load_s: float
    night_s: float = 0.0
    a_day: float = 1.0


@dataclass(frozen=True)
class Waits:
    """What visitors of a rate get, in seconds at p95, the wait included; `awake_s`: how long the machine is awake for each, `woke`: the share that woke it."""

    first_s: float
    total_s: float
    wait_s: float
    awake_s: float = 0.0
    woke: float = 0.0

    def keeps(self, limits: Limits) -> bool:
        """Whether both limits are kept."""
        first, total = limits.first_s, limits.total_s
        return (first is None or self.first_s <= first) and (total is None or self.total_s <= total)


@cache
def _draws(count: int) -> tuple[Seconds, np.ndarray[Any, np.dtype[np.int64]]]:
    """Gaps between arrivals in units of their mean, and visitors in a random order; of a generator whose stream no version of numpy changes."""
    random = np.random.RandomState(SEED)
    gaps = random.exponential(size=count)
    return gaps / gaps.mean(), np.argsort(random.random_sample(count), kind="stable")


@dataclass(frozen=True)
class Line:
    """The line before one machine: the seconds of each measured answer, its first token and its total."""

    first_s: tuple[float, ...]
    total_s: tuple[float, ...]

    @property
    def mean_s(self) -> float:
        """The mean of the totals: what an answer takes of the machine."""
        return float(np.mean(self.total_s))

    @cached_property
    def _answers(self) -> tuple[Seconds, Seconds]:
        """First token and total of each visitor's answer: each measured one as often as the others, in a random order."""
        which = _draws(VISITORS)[1] % len(self.total_s)
        return np.asarray(self.first_s)[which], np.asarray(self.total_s)[which]

    def at(self, rate: float) -> Waits:
        """What visitors get at `rate` a second, the machine always on."""
        return _waits(self._waits(rate), *self._answers)

    def _waits(self, rate: float) -> Seconds:
        """Each visitor's wait (Lindley: the one before's and his answer, less the gap between the two, and never less than nothing)."""
        reached = np.empty(VISITORS)
        reached[0] = 0.0
        np.multiply(_draws(VISITORS)[0][1:], -1 / rate, out=reached[1:])  # in one piece of memory: fresh ones cost more than the sums
        reached[1:] += self._answers[1][:-1]
        np.cumsum(reached, out=reached)
        reached -= np.minimum.accumulate(reached)
        return reached

    def _keeps(self, rate: float, limits: Limits) -> bool:
        """Whether 95 of 100 visitors get both in time; the same as of `at`, without putting them in order."""
        waits, least = self._waits(rate), VISITORS * P95 / 100 + 1
        both = zip((limits.first_s, limits.total_s), self._answers, strict=True)
        return all(np.count_nonzero(waits + spans <= limit) >= least for limit, spans in both if limit is not None)

    def asleep_between(self, rate: float, sleep: Sleep) -> Waits:
        """The same of a machine that sleeps between visits: who wakes it waits for its load, and whoever comes by then waits with him."""
        firsts, totals = (each[:VISITORS_OF_A_SLEEPER] for each in self._answers)
        gaps = _draws(VISITORS)[0][: len(totals)] / rate
        gaps[:: max(1, round(sleep.a_day))] += sleep.night_s
        waits, left, awake, woke = [], 0.0, 0.0, 0  # left: seconds of work before a visitor; below 0 how long the machine has been idle
        for gap, total in zip(gaps.tolist(), totals.tolist(), strict=True):
            left -= gap
            asleep = -left > sleep.after_s
            wait = sleep.load_s if asleep else max(left, 0.0)
            awake += min(max(-left, 0.0), sleep.after_s) + total + sleep.load_s * asleep
            woke += asleep
            waits.append(wait)
            left = wait + total
        return _waits(np.array(waits), firsts, totals, awake / len(waits), woke / len(waits))

    def most(self, limits: Limits) -> float:
        """The largest number of visitors a second that keeps the limits; 0 where an idle machine breaks them, and where there is no limit what keeps it just not always busy."""
        low, high = 0.0, 1 / self.mean_s
        if limits == Limits():
            return high * (1 - NEARLY)
        if not self._keeps(high * 1e-6, limits):
            return 0.0
        while high - low > FINE / self.mean_s:
            middle = (low + high) / 2
            low, high = (middle, high) if self._keeps(middle, limits) else (low, middle)
        return low


def _waits(waits: Seconds, firsts: Seconds, totals: Seconds, awake_s: float = 0.0, woke: float = 0.0) -> Waits:
    first, total, wait = (float(np.percentile(each, P95)) for each in (waits + firsts, waits + totals, waits))
    return Waits(first, total, wait, awake_s, woke)
