"""What a counter of energy says of a run, and what several runs come to for one answer, with how far off that may be.

Joules, seconds, watts; shares from 0 to 1. A counter moves in steps: what it says of a span may be off by what is taken in one.
Standard library only; knows no counter (`lane/energy.py` reads them) and no lane.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

MOST_ERROR = 0.1  # a figure that may be further off is not shown
COVERS = {"nvml": "the whole card", "rapl": "the whole processor package"}  # by source, other work on it included


@dataclass(frozen=True)
class Energy:
    """What a counter moved on between a reading just before a run and one just after it, `seconds` apart.

    `source` is nvml or rapl, and `COVERS` says of what. The counter moves every `step_s` or sooner, so `joules` may be off by what was taken in that
    time. `idle_watts`: in the lane's last rest of a second or more, its model loaded; None before there was one. `since_s`: from the end of the lane's
    run before to the start of this one.
    """

    joules: float
    seconds: float
    idle_watts: float | None
    source: str
    step_s: float
    since_s: float | None = None

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
    """The median where each run is long enough for its counter, else the mean where all together are; None where neither is, or none was read.

    Of runs that follow each other at once, what the counter is late with at one's end it counts in the next: only what falls between two is lost.
    """
    known = [run for run in runs if run]
    if not known or not all(run.joules >= 0 for run in known) or not any(run.joules for run in known):
        return None
    last, seconds = known[-1], sum(run.seconds for run in known)
    if all(run.long_enough for run in known):
        joules, error = statistics.median(run.joules for run in known), max(run.step_s / run.seconds for run in known)
    else:
        between = (run.step_s if run.since_s is None else min(run.since_s, run.step_s) for run in known[1:])
        joules, error = sum(run.joules for run in known) / len(known), (known[0].step_s + sum(between)) / seconds if seconds else 1.0
    if error > MOST_ERROR:
        return None
    idle = next((run.idle_watts for run in reversed(known) if run.idle_watts is not None), None)
    return AnswerEnergy(joules, error, len(known), last.source, idle, None if idle is None else idle * seconds / len(known))
