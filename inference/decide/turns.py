"""Where the cheapest lane changes as answers a day grow: machines come whole, so that it may change back and forth.

In: each lane's `Curve`. Out: every turn, in its order. Knows no limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from inference.decide.costs import Curve
from inference.decide.model import Turn

MOST_PER_DAY = 1e7
MOST_MACHINES = 5000  # of the lane that takes the most: beyond, nobody serves it so
POINTS_A_DECADE = 100
NEXT = 1e-9  # as a share: how near after a whole number of machines the next one is looked at
HALVINGS = 60
CENT = 0.01  # dollars a month: no difference
Curves = Mapping[str, Curve]


def turns(curves: Curves) -> tuple[Turn, ...]:
    """Each number of answers a day, from 1 on, from which on another lane is cheaper."""
    found: list[Turn] = []
    points = _points(curves)
    if len(curves) < 2:
        return ()
    before, now = points[0], cheapest(curves, points[0])
    for point in points[1:]:
        if (then := cheapest(curves, point, now)) != now:
            found.append(Turn(_between(curves, before, point, now), now, then))
            now = then
        before = point
    return tuple(found)


def cheapest(curves: Curves, a_day: float, now: str | None = None) -> str:
    """The cheapest lane; of equal ones `now` if it is among them, else the first."""
    months = {lane: curve.month(a_day) for lane, curve in curves.items()}
    least = min(months.values())
    best = [lane for lane, dollars in months.items() if dollars < least + CENT]
    return now if now in best else best[0]


def _points(curves: Curves) -> list[float]:
    """Where to look: on both sides of each step to one more machine, and closely between."""
    end = min(MOST_PER_DAY, MOST_MACHINES * min((curve.capacity_per_day for curve in curves.values()), default=1.0))
    found = {10 ** (n / POINTS_A_DECADE) for n in range(1 + math.floor(POINTS_A_DECADE * math.log10(max(1.0, end))))}
    for curve in curves.values():
        steps = [n * curve.capacity_per_day for n in range(1, 1 + math.floor(end / curve.capacity_per_day))]
        found.update(step for step in steps if step >= 1)
        found.update(step * (1 + 2 * NEXT) for step in steps if step >= 1)
    return sorted(found)


def _between(curves: Curves, low: float, high: float, now: str) -> float:
    """The first whole number of answers a day, between two, at which `now` is not the cheapest any more."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if cheapest(curves, middle, now) == now else (low, middle)
    whole = max(1.0, math.floor(high))
    return whole if cheapest(curves, whole, now) != now else whole + 1
