"""A record -> what is drawn of it, as plain numbers: the race on one axis of time, and each figure as bars. Shares are from 0 to 1.

In: a record. Out: bars, marks and ticks, with their words. The page (`ui/comparison/chart.py`) and the report draw them, each in its own way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from inference.lanes import DEVICES, LaneName, plain_title
from inference.record.figures import FIRST_TOKEN, MEMORY, SPEED, TOTAL, WEIGHTS, Figure, having
from inference.record.missing import why
from inference.record.model import LaneRecord, Record, RunRecord
from inference.units import UNKNOWN, count, seconds

FIGURES = ((SPEED, "Writing speed"), (FIRST_TOKEN, "First word"), (TOTAL, "Total"), (MEMORY, "Memory"), (WEIGHTS, "Size"))
MOST_MARKS, MOST_TICKS = 12, 5
SMALLEST = 1e-300  # the length of an axis that has ticks
ROUNDED = 1e-9  # of a step: what a division may lack to the last tick


@dataclass(frozen=True)
class RaceBar:
    """A lane's run on the axis: where it ends and where its first token came, in seconds; `marks` are shares of the bar."""

    lane: str
    end_s: float
    first_s: float
    marks: tuple[float, ...]
    words: str


@dataclass(frozen=True)
class Race:
    """The bars on an axis from 0 to `longest_s`, its ticks in seconds, and what the marks are in a sentence."""

    longest_s: float
    ticks: tuple[float, ...]
    bars: tuple[RaceBar, ...]
    words: str


@dataclass(frozen=True)
class Bar:
    """A lane's value of a figure: its share of the largest, with the range over its runs (shares too) where there is one; None and why where there is none."""

    lane: str
    share: float | None
    words: str
    span: tuple[float, float] | None = None
    range_words: str = ""


def heading(name: str, lane: LaneRecord) -> str:
    """A lane's name with its device, as asked for where it was never loaded: "4-bit (NF4) · GPU"."""
    if lane.server:
        return f"{lane.server} · server"
    asked = LaneName.parse(name)
    device = DEVICES.get(lane.device or asked.device, "")
    return " · ".join(filter(None, [plain_title(lane.precision or asked.precision), device]))


# ---- the race


def race(record: Record) -> Race | None:
    """Every lane's shown run on one axis; None where none got anywhere."""
    runs = {name: run for name, lane in record.lanes.items() if (run := lane.shown_run) and _end(run)}
    if not runs:
        return None
    longest = max(map(_end, runs.values()))
    every = marks_every(max(run.new_tokens or 0 for run in runs.values()))
    marks = f"; a mark every {'token' if every == 1 else count(every)}" if every else ""
    last = " Of several runs it is the last that counts." if any(lane.n > 1 for lane in record.lanes.values()) else ""
    words = f"Time from when a lane begins the prompt to its last token{marks}.{last}"
    return Race(longest, tuple(ticks_of(longest)), tuple(_bar(name, run, every) for name, run in runs.items()), words)


def ticks_of(longest: float) -> list[float]:
    """Round numbers from 0 up to `longest`, however large: three to five of them; 0 alone where that is no length to divide."""
    if not SMALLEST < longest < math.inf:
        return [0.0]
    power = math.floor(math.log10(longest))
    step = next(step for each in (power - 1, power) for digit in (1, 2, 5) if longest / (step := digit * 10.0**each) < MOST_TICKS)
    return [step * i for i in range(int(longest / step + ROUNDED) + 1)]


def marks_every(tokens: int) -> int:
    """Tokens between two marks: a round number that makes at most MOST_MARKS of them; 0 for an answer too short to need any."""
    steps = (step * 10**power for power in range(6) for step in (1, 2, 5))
    return 0 if tokens < 3 else next(step for step in steps if tokens / step <= MOST_MARKS)


def _end(run: RunRecord) -> float:
    return run.total_s or (run.token_times_s[-1] if run.token_times_s else 0.0)


def _bar(name: str, run: RunRecord, every: int) -> RaceBar:
    end = _end(run)
    marks = tuple(run.token_times_s[n - 1] / end for n in range(every, len(run.token_times_s), every)) if every else ()
    words = f"{seconds(end)}{', ' if run.new_tokens is None else ' for '}{run.length}, first after {seconds(run.ttft_s)}" + (
        "" if run.counted else " (not counted)"
    )
    return RaceBar(name, end, min(run.ttft_s or end, end), marks, words)


# ---- the figures as bars


def bars(record: Record, figure: Figure) -> tuple[Bar, ...]:
    """A bar a lane, on an axis from 0 to the largest value or the end of the widest range."""
    values = {name: value(figure, lane) for name, lane in record.lanes.items()}
    ranges = {name: _range(figure, lane) for name, lane in record.lanes.items()}
    largest = max([0.0, *(each for each in values.values() if each), *(span[1] for span in ranges.values() if span)])
    return tuple(_figure_bar(name, lane, figure, values[name], ranges[name], largest) for name, lane in record.lanes.items())


def value(figure: Figure, lane: LaneRecord) -> float | None:
    """The median of the runs that count; where none does, what the last one got to."""
    run = lane.shown_run
    return getattr(run, figure.key, figure.read(lane)) if run and not lane.n else figure.read(lane)


def _range(figure: Figure, lane: LaneRecord) -> tuple[float, float] | None:
    low, high = getattr(lane.min, figure.key, None), getattr(lane.max, figure.key, None)
    return (low, high) if lane.n > 1 and low is not None and high is not None and low < high else None


def _figure_bar(name: str, lane: LaneRecord, figure: Figure, found: float | None, span: tuple[float, float] | None, largest: float) -> Bar:
    if not found:
        return Bar(name, None, f"{UNKNOWN}: {why(lane, figure.key)}")
    kind = f" {lane.memory_kind}" if figure is MEMORY else ""
    words = figure.words(found) + kind + unsure(figure, lane)
    if span is None:
        return Bar(name, found / largest, words)
    low, high = span
    return Bar(name, found / largest, words, (low / largest, high / largest), f"{figure.words(low)} – {figure.words(high)}, n {having(lane, figure.key)}")


def unsure(figure: Figure, lane: LaneRecord) -> str:
    """What stands after a figure of a lane of which no run counts."""
    return "" if lane.n or figure in (MEMORY, WEIGHTS) else " (not counted)"
