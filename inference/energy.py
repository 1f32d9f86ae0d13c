"""What a counter of energy says of a run, and what several runs come to for one answer, with how far off that may be.

Joules, seconds, watts; shares from 0 to 1. A counter moves in steps: what it says of a span may be off by what is taken in one.
Standard library only; knows no counter (`lane/energy.py` reads them) and no lane.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_ERROR = 0.1  # a figure that may be further off is not shown
COVERS = {"nvml": "the whole card", "rapl": "the whole processor package"}  # by source, other work on it included


@dataclass(frozen=True)
class Energy:
    """What a counter moved on between a reading just before a run and one just after it, `seconds` apart.

    `source` is nvml or rapl, and `COVERS` says of what. The counter moves every `step_s` or sooner, so `joules` may be off by what was taken in that
    time. `idle_watts`: in the lane's last rest of a second or more, its model loaded; None before there was one. `since_s` and `since_joules`: the pause
    between the lane's run before and this one, and what the counter moved on in it.
    """

    joules: float
    seconds: float
    idle_watts: float | None
    source: str
    step_s: float
    since_s: float | None = None
    since_joules: float | None = None

    @property
    def long_enough(self) -> bool:
        """Whether this run alone is long enough for its counter."""
        return self.joules > 0 and self.step_s <= MOST_ERROR * self.seconds


@dataclass(frozen=True)
class AnswerEnergy:
    """The joules of one answer of `n`, off by at most a share of `error`; `idle_joules` is what the idle power comes to in the same time."""

    joules: float
    error: float
    n: int
    source: str
    idle_watts: float | None = None
    idle_joules: float | None = None


def of_an_answer(runs: Iterable[Energy | None]) -> AnswerEnergy | None:
    """The median where each run is long enough for its counter, else the mean where all together are; None where neither is, or none was read."""
    known = [run for run in runs if run]
    if not known or not all(run.joules >= 0 for run in known) or not any(run.joules for run in known):
        return None
    n, seconds = len(known), sum(run.seconds for run in known)
    idle = next((run.idle_watts for run in reversed(known) if run.idle_watts is not None), None)
    if all(run.long_enough for run in known):
        joules, error = statistics.median(run.joules for run in known), max(run.step_s / run.seconds for run in known)
        length_s = statistics.median(run.seconds for run in known)  # of what the joules are of
    else:
        total, error = _together(known, seconds, idle or 0.0)
        joules, length_s = total / n, seconds / n
    if error > MOST_ERROR:
        return None
    return AnswerEnergy(joules, error, n, known[-1].source, idle, None if idle is None else idle * length_s)


def _together(runs: Sequence[Energy], seconds: float, idle_watts: float) -> tuple[float, float]:
    """The joules of all of them, and by what share they may be off.

    Over runs with pauses shorter than a step the counter is late only at the two ends, but what it moved on in a run and in a pause can't be told apart:
    in the pauses the device took no less than at rest, and no more than on the average of all.
    """
    rows = list[list[Energy]]()
    for run in runs:
        if rows and run.since_joules is not None and run.since_s is not None and run.since_s <= run.step_s:
            rows[-1].append(run)
        else:
            rows.append([run])
    low = high = 0.0
    for row in rows:
        pauses_s, run_s = sum(run.since_s or 0.0 for run in row[1:]), sum(run.seconds for run in row)
        total = sum(run.joules for run in row) + sum(run.since_joules or 0.0 for run in row[1:])
        least = total * run_s / (run_s + pauses_s) if run_s else 0.0
        low, high = low + least, high + max(least, total - idle_watts * pauses_s)
    middle = (low + high) / 2
    return middle, (high - low) / 2 / middle + len(rows) * runs[0].step_s / seconds if middle and seconds else 1.0
