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

    def hours(self, a_day: float) -> float:
        """Hours a day that they are awake, all together."""
        machines = self.machines(a_day)
        return machines * hours_awake(Load(a_day / machines, self.open_hours, self.sleep_s), self.total_s, self.load_s)

    def month(self, a_day: float) -> float:
        """Dollars a month."""
        return month(self.dollars_per_hour, self.hours(a_day))


def machines_for(a_day: float, capacity_a_day: float) -> int:
    """The fewest machines of which each gets no more than it can answer."""
    return max(1, math.ceil(a_day / capacity_a_day - 1e-9))


def hours_awake(load: Load, total_s: float, load_s: float) -> float:
    """Hours a day that one machine is awake; 24 where it never sleeps.

    A spell without work begins when an answer leaves nobody behind it and ends with the next visitor, exponential with mean 1 / rate: it is awake for
    E[min(spell, T)] = (1 - exp(-rate T)) / rate of it, and with probability p = exp(-rate T) it then sleeps, and loads for the next one. A share
    busy = rate total of the visitors finds it at work, and each load brings rate load visitors who wait for it, so there are
    answers (1 - busy) / (1 + p rate load) spells a day. Closed at night, one of them is longer by the night: it is awake for T of it, unless T is longer.
    Few visitors make that total + E[min(gap, T)] + P(gap > T) load for each answer.
    """
    if load.sleep_s is None:
        return DAY_H
    rate = load.per_second
    p = math.exp(-rate * load.sleep_s)
    spells = load.a_day * max(0.0, 1 - rate * total_s) / (1 + p * rate * load_s)
    by_night = min(1.0, spells)
    awake_s = load.a_day * total_s + (spells - by_night) * _spell_s(rate, load.sleep_s, load_s) + by_night * _over_night_s(load, load_s)
    return min(DAY_H, awake_s / HOUR_S)


def _spell_s(rate: float, sleep_s: float, load_s: float) -> float:
    """Seconds awake in a spell without work, the load after it included."""
    return -math.expm1(-rate * sleep_s) / rate + math.exp(-rate * sleep_s) * load_s


def _over_night_s(load: Load, load_s: float) -> float:
    """The same in the spell that holds the night."""
    sleep_s, night_s = load.sleep_s or 0.0, load.night_s
    return sleep_s + load_s if night_s >= sleep_s else night_s + _spell_s(load.per_second, sleep_s - night_s, load_s)


def month(dollars_per_hour: float, hours_a_day: float) -> float:
    """Dollars a month."""
    return dollars_per_hour * hours_a_day * DAYS_A_MONTH


def of_1000(dollars_a_month: float, answers_per_day: float) -> float:
    """Dollars of 1,000 answers."""
    return dollars_a_month / (answers_per_day * DAYS_A_MONTH) * 1000


def floor_of_1000(dollars_per_hour: float, seconds_an_answer: float) -> float:
    """The same of a machine that is never idle: the least that it can be."""
    return dollars_per_hour * seconds_an_answer / HOUR_S * 1000
