"""One lane, serving what is asked: the line before it, what one machine can answer a day, and what that costs.

In: a lane's evidence, and what is asked. Out: capacity, machines, waits, the curve of its cost, and the same of quicker and of slower answers. All of
it is estimated from measured answers, but where a load was measured and the lane batches. Judges nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from inference.decide.costs import HOUR_S, Curve, Load
from inference.decide.model import Asked, Clients, Evidence
from inference.decide.queue import Limits, Line, Sleep, Waits
from inference.lanes import LaneName
from inference.units import count, digits, two_sizes

ENOUGH_FOR_P95 = 20  # runs
ERRORS = 2  # standard errors
MANY_RUNS = 20  # from so many on their mean is known better than between the quickest and the slowest
PARTS = (1.0, 0.97, 0.93, 0.87, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)  # of what an always-on machine can answer, tried in turn
NEAR = 0.005  # how exactly the most is found, as a share of that
LEAST = 1e-6  # answers a day: every visitor wakes the machine
FINE = 1.02  # how exactly the fewest is found, as a factor
GROWS = 1.2  # from so many times the tokens a minute of the fewest clients on, a server is taken to answer several at once


@dataclass(frozen=True)
class Serving:
    """A lane that was measured, for what is asked; `line` is of answers of the length that is asked."""

    lane: Evidence
    asked: Asked
    line: Line
    scaled: bool = False  # whether the totals are worked out for another length than was measured

    @property
    def limits(self) -> Limits:
        """The limits on time."""
        return Limits(self.asked.max_first_token_s, self.asked.max_total_s)

    @property
    def batches(self) -> bool:
        """Whether it answers several at once: a server for which a measured load showed it. Lanes of ours answer one at a time, whatever a load's prompts make of it."""
        rates = [each.answers_per_min * (each.new_tokens or 1.0) for each in self.lane.clients if each.n]
        return LaneName.parse(self.lane.lane).elsewhere and len(rates) > 1 and max(rates) >= GROWS * rates[0]

    @property
    def most_clients(self) -> Clients | None:
        """The largest measured number of clients at once that keeps the limits, none of them failing."""
        return next((each for each in reversed(self.lane.clients) if not each.failed and _as_waits(each).keeps(self.limits)), None)

    @cached_property
    def capacity_per_day(self) -> float | None:
        """Answers a day of one machine that keep the limits; None where not even an idle one keeps them."""
        if self.batches:
            best = self.most_clients
            return best.answers_per_min * 60 * self.asked.open_hours if best else None
        return self._most(self.limits)

    def _most(self, limits: Limits) -> float | None:
        """Answers a day that keep them, one after the other; of a machine that sleeps no more than keep them with who wakes it."""
        awake = self.line.most(limits) * self.asked.open_hours * HOUR_S
        if not awake or self.asked.sleep_after_min is None or limits == Limits():
            return awake or None
        low, high = 0.0, awake
        for part in PARTS:
            if self._asleep(part * awake).keeps(limits):
                low = part * awake
                break
            high = part * awake
        else:
            return awake  # it is waking that breaks them: with fewer visitors a machine only sleeps more
        while high - low > NEAR * awake:
            middle = (low + high) / 2
            low, high = (middle, high) if self._asleep(middle).keeps(limits) else (low, middle)
        return low

    @cached_property
    def fewest_per_day(self) -> float | None:
        """Answers a day of one machine under which so many visitors wake it that the limits break, though with more they are kept; None where there is no such number."""
        most, limits = self.capacity_per_day, self.limits
        if self.asked.sleep_after_min is None or limits == Limits() or self.batches or not most or self._asleep(LEAST).keeps(limits):
            return None
        low, high = LEAST, most
        if not self._asleep(high).keeps(limits):
            return None
        while high / low > FINE:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if self._asleep(middle).keeps(limits) else (middle, high)
        return high

    def _asleep(self, a_day: float) -> Waits:
        """What visitors of one machine get that sleeps between visits."""
        load = Load(a_day, self.asked.open_hours, 60 * (self.asked.sleep_after_min or 0.0))
        return self.line.asleep_between(load.per_second, Sleep(load.sleep_s or 0.0, self.lane.load_s or 0.0, load.night_s, load.a_day))

    @cached_property
    def at_best_per_day(self) -> float | None:
        """The same where each limit inside the spread of the runs were just one that they keep; None where a limit is under that."""
        both = ((self.limits.first_s, self.line.first_s), (self.limits.total_s, self.line.total_s))
        if self.batches or any(limit and limit < spread(values)[0] for limit, values in both):
            return None
        eased = Limits(*(limit and max(limit, spread(values)[1]) for limit, values in both))
        return self.capacity_per_day if eased == self.limits else self._most(eased)

    @cached_property
    def curve(self) -> Curve:
        """Its cost over answers a day; where it can't keep the limits at all, with as many machines as have time for the answers."""
        full = (1 / self.line.mean_s) * self.asked.open_hours * HOUR_S
        sleep = None if self.asked.sleep_after_min is None else 60 * self.asked.sleep_after_min
        price = self.asked.prices.get(self.lane.lane)
        most = self.capacity_per_day or self.at_best_per_day or full
        return Curve(price.dollars_per_hour if price else 0.0, most, self.line.mean_s, self.lane.load_s or 0.0, self.asked.open_hours, sleep)

    @property
    def curve_at_best(self) -> Curve:
        """The same with as few machines as the runs do not rule out."""
        return replace(self.curve, capacity_per_day=max(self.curve.capacity_per_day, self.at_best_per_day or 0.0))

    @property
    def machines(self) -> int:
        """How many machines it takes."""
        return self.curve.machines(self.asked.answers_per_day)

    @cached_property
    def waits(self) -> Waits:
        """What visitors get at the answers a day that are asked, spread evenly over its machines."""
        a_day = self.asked.answers_per_day / self.machines
        if self.batches and (best := self.most_clients):
            return _as_waits(best)
        return self.line.at(Load(a_day, self.asked.open_hours, None).per_second) if self.asked.sleep_after_min is None else self._asleep(a_day)

    def at_ends(self) -> tuple[Serving, Serving]:
        """The same if answers took less, and if they took more: all as the quickest, and as the slowest; of many runs their mean two standard errors off."""
        line, n = self.line, len(self.line.total_s)
        if n < MANY_RUNS:
            quickest, slowest = (Line((way(line.first_s),), (way(line.total_s),)) for way in (min, max))
            return replace(self, line=quickest), replace(self, line=slowest)
        off = ERRORS * statistics.stdev(line.total_s) / math.sqrt(n) / line.mean_s
        least = min(line.total_s) / line.mean_s  # of answers that lie far apart two errors may be more than the mean itself
        return self._times(max(1 - off, least)), self._times(1 + off)

    def _times(self, factor: float) -> Serving:
        """The same with answers that take so many times as long."""
        first, total = (tuple(factor * each for each in spans) for spans in (self.line.first_s, self.line.total_s))
        return replace(self, line=Line(first, total))

    @property
    def seconds_at_full_use(self) -> float:
        """Of the machine, for an answer, where it is never idle."""
        return 60 / max(each.answers_per_min for each in self.lane.clients) if self.batches else self.line.mean_s


def at_most(a_day: float) -> str:
    """Answers a day that can be given, in words: rounded down, for one more would be too many."""
    return digits(math.floor(a_day)) if a_day >= 1 else digits(a_day, 3)


def _as_waits(each: Clients) -> Waits:
    return Waits(each.first_token_p95_s, each.total_p95_s, 0.0)


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Between what the time of 95 of 100 answers lies: all that was measured; from 20 runs on two standard errors about the p95, by ranks.

    So many of n runs are under a p95 as a binomial of n and 0.95 says: 0.95 n, with a standard error of sqrt(0.0475 n).
    """
    ordered, n = sorted(values), len(values)
    if n < ENOUGH_FOR_P95:
        return ordered[0], ordered[-1]
    error = ERRORS * math.sqrt(0.95 * 0.05 * n)
    return ordered[max(1, math.floor(0.95 * n - error)) - 1], ordered[min(n, math.ceil(0.95 * n + error)) - 1]


def serving(lane: Evidence, asked: Asked) -> Serving | str:
    """The lane for what is asked, or why it can be no candidate."""
    if lane.why_not:
        return lane.why_not
    tokens, price = asked.tokens, asked.prices.get(lane.lane)
    if price and price.memory_bytes and lane.memory_bytes and lane.memory_bytes > price.memory_bytes:
        holds, has = two_sizes(lane.memory_bytes, price.memory_bytes)
        return f"it does not fit: it holds {holds}, and {price.hardware} has {has}."
    if asked.sleep_after_min is not None and lane.load_s is None:
        return "how long it takes to wake was not measured, and it is to sleep between visits."
    if tokens is None or (len(lane.new_tokens) == len(lane.total_s) and set(lane.new_tokens) == {tokens}):
        return Serving(lane, asked, Line(lane.ttft_s, lane.total_s))
    if not lane.tpot_s:
        return f"how long an answer of {count(tokens)} takes is not known: no run tells the time of a token."
    each = lane.tpot_s if len(lane.tpot_s) == len(lane.ttft_s) else (statistics.median(lane.tpot_s),) * len(lane.ttft_s)
    totals = tuple(first + (tokens - 1) * token for first, token in zip(lane.ttft_s, each, strict=True))
    return Serving(lane, asked, Line(lane.ttft_s, totals), scaled=True)
