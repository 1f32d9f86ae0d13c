"""What a lane costs: hours that its machines are awake, dollars, and how many machines it takes.

In: seconds of an answer, answers a day, a price. Out: hours and dollars, by the formulas below; a month is 730 hours. Knows no lane and no limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from inference.decide.model import DAYS_A_MONTH

HOUR_S = 3600.0
DAY_H = 24.0


@dataclass(frozen=True)
class Load:
    """How a machine is used: answers a day, in so many open hours; `sleep_s` is None where it is always on."""

    a_day: float
    open_hours: float
    sleep_s: float | None

    @property
    def per_second(self) -> float:
        """Answers a second while it is open."""
        return self.a_day / (self.open_hours * HOUR_S)

    @property
    def night_s(self) -> float:
        """Seconds a day that it is closed."""
        return (DAY_H - self.open_hours) * HOUR_S


@dataclass(frozen=True)
class Awake:
    """Hours a day that a machine answers, is idle, and loads; and how often it loads."""

    answering: float
    idle: float
    loading: float
    loads: float

    @property
    def hours(self) -> float:
        """All of them, no more than a day has."""
        return min(DAY_H, self.answering + self.idle + self.loading)


@dataclass(frozen=True)
class Curve:
    """What a lane costs over answers a day: its price an hour, what one machine can answer a day, seconds of an answer and of a load."""

    dollars_per_hour: float
    capacity_per_day: float
    total_s: float
    load_s: float
    open_hours: float = DAY_H
    sleep_s: float | None = None

    def machines(self, a_day: float) -> int:
        """How many machines it takes."""
        return machines_for(a_day, self.capacity_per_day)

    def awake(self, a_day: float) -> Awake:
        """A day of one of them."""
        return awake(Load(a_day / self.machines(a_day), self.open_hours, self.sleep_s), self.total_s, self.load_s)

    def hours(self, a_day: float) -> float:
        """Hours a day that they are awake, all together."""
        return self.machines(a_day) * self.awake(a_day).hours

    def month(self, a_day: float) -> float:
        """Dollars a month."""
        return month(self.dollars_per_hour, self.hours(a_day))


def machines_for(a_day: float, capacity_a_day: float) -> int:
    """The fewest machines of which each gets no more than it can answer."""
    return max(1, math.ceil(a_day / capacity_a_day - 1e-9))


def awake(load: Load, total_s: float, load_s: float) -> Awake:
    """A day of one machine; where it never sleeps it is idle for all that is left of 24 hours.

    A spell without work begins when an answer leaves nobody behind it and ends with the next visitor, exponential with mean 1 / rate: it is awake for
    E[min(spell, T)] = (1 - exp(-rate T)) / rate of it, and with probability p = exp(-rate T) it then sleeps, and loads for the next one. A share
    busy = rate total of the visitors finds it at work, and each load brings rate load visitors who wait for it, so there are
    answers (1 - busy) / (1 + p rate load) spells a day. Closed at night, one of them is longer by the night: it is awake for T of it, unless T is longer.
    Few visitors make that total + E[min(gap, T)] + P(gap > T) load for each answer.
    """
    working = load.a_day * total_s / HOUR_S
    if load.sleep_s is None:
        return Awake(working, max(0.0, DAY_H - working), 0.0, 0.0)
    rate, night_s = load.per_second, load.night_s
    p = math.exp(-rate * load.sleep_s)
    spells = load.a_day * max(0.0, 1 - rate * total_s) / (1 + p * rate * load_s)
    by_night = min(1.0, spells)
    left_s = max(0.0, load.sleep_s - night_s)  # of the time until it sleeps, after a night
    p_night = math.exp(-rate * left_s)
    night_idle_s = min(load.sleep_s, night_s) + _idle_s(rate, left_s)
    loads = (spells - by_night) * p + by_night * p_night
    idle_s = (spells - by_night) * _idle_s(rate, load.sleep_s) + by_night * night_idle_s
    return Awake(working, idle_s / HOUR_S, loads * load_s / HOUR_S, loads)


def _idle_s(rate: float, sleep_s: float) -> float:
    """Seconds awake in a spell without work that ends with the next visitor, or with falling asleep."""
    return -math.expm1(-rate * sleep_s) / rate


def month(dollars_per_hour: float, hours_a_day: float) -> float:
    """Dollars a month."""
    return dollars_per_hour * hours_a_day * DAYS_A_MONTH


def of_1000(dollars_a_month: float, answers_per_day: float) -> float:
    """Dollars of 1,000 answers."""
    return dollars_a_month / (answers_per_day * DAYS_A_MONTH) * 1000


def floor_of_1000(dollars_per_hour: float, seconds_an_answer: float) -> float:
    """The same of a machine that is never idle: the least that it can be."""
    return dollars_per_hour * seconds_an_answer / HOUR_S * 1000
