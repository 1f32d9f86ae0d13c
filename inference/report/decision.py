"""A decision -> what the report shows of it: what was asked, a column a candidate with each figure's source, and cost a month over answers a day.

In: a `Decision`, and points of cost where they are known. Out: words, and a chart as plain numbers (shares from 0 to 1, y from the top). Decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from inference.decide.figures import number, price_given
from inference.decide.model import Asked, Candidate, Decision, Rule, Turn
from inference.lanes import colour
from inference.report.axes import Place, Tick, across, clear, up
from inference.units import digits, many

MOST_TURNS = 3  # that are told and drawn: machines come whole, so that the cheaper lane may change many times
AROUND = 5.0  # times below the first and above the last number of answers that is marked, the axis goes on
POINTS = 240
FEWEST = 0.001  # answers a day that the axis reaches down to
COST = "Cost"  # how the titles of those figures begin that stand first
OTHERS = "All other figures"
KEEPS = {True: "keeps it", False: "breaks it", None: "can't be said"}


@dataclass(frozen=True)
class CostLine:
    """What a lane costs a month at so many answers a day: (answers, dollars), by answers."""

    lane: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Cell:
    """Words, where they are from, and for a rule how it went: kept, broken, unsure or nothing."""

    words: str
    source: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Row:
    """A figure of each candidate; `source` is where all of them are from, empty where each says its own."""

    title: str
    source: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Line:
    """A lane's line: its name, the class of its colour, and (x, y) of its points."""

    title: str
    colour: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class CostChart:
    """The lines, the ticks of both axes, and where the cheaper one changes and what was asked lie across."""

    lines: tuple[Line, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    turns: tuple[Tick, ...]
    asked: Tick | None


@dataclass(frozen=True)
class Shown:
    """The decision's section."""

    decision: Decision
    colour: str
    asked: tuple[tuple[str, str], ...]
    heads: tuple[tuple[str, str], ...]
    groups: tuple[tuple[str, tuple[Row, ...]], ...]  # of rows, each with its heading, the first without one
    turns: tuple[str, ...]
    chart: CostChart | None


def shown(decision: Decision, costs: Sequence[CostLine] = ()) -> Shown:
    """All that the section shows."""
    lanes = [each.lane for each in decision.candidates]
    heads = tuple((each.title, colour(each.lane, lanes)) for each in decision.candidates)
    return Shown(
        decision, colour(decision.chosen, lanes) if decision.chosen in lanes and decision.chosen else "", tuple(_asked(decision)), heads,
        tuple(group for group in _groups(decision) if group[1]),
        tuple(_turn(decision, turn) for turn in near(decision)), _chart(decision, costs),
    )  # fmt: skip


def _title(decision: Decision, lane: str) -> str:
    return next((each.title for each in decision.candidates if each.lane == lane), lane)


def _asked(decision: Decision) -> Iterator[tuple[str, str]]:
    """What was asked as it was given: a limit is never rounded to another."""
    asked: Asked = decision.asked
    yield "Answers a day", digits(asked.answers_per_day)
    yield "Tokens an answer", str(asked.tokens) if asked.tokens is not None else "as long as those measured"
    for title, limit in (("Longest wait for the first word", asked.max_first_token_s), ("Longest wait for the whole answer", asked.max_total_s)):
        yield title, "no limit" if limit is None else f"{limit:,.10g} s"
    for title, part in (("Least share of equal first choices", asked.min_agreement), ("Most answers lost", asked.max_lost)):
        yield title, "no limit" if part is None else f"{100 * part:.10g} %"
    if asked.open_hours != 24:
        yield "Open hours a day", digits(asked.open_hours)
    yield "Between visits", "always on" if asked.sleep_after_min is None else f"asleep after {digits(asked.sleep_after_min)} min"
    for lane, price in asked.prices.items():
        yield f"Price of {_title(decision, lane)}", f"{price_given(price.dollars_per_hour)} an hour ({price.source})"


def _groups(decision: Decision) -> Iterator[tuple[str, tuple[Row, ...]]]:
    """The verdict with what it costs, then the limits, then all other figures."""
    rules = _rows(decision.candidates, lambda each: {rule.title: _rule(rule) for rule in each.rules})
    figures = tuple(_rows(decision.candidates, lambda each: {traced.title: Cell(traced.words, traced.source) for traced in each.figures}))
    verdict = Row("Verdict", "", tuple(_verdict(decision, each) for each in decision.candidates))
    yield "", (verdict, *(row for row in figures if row.title.startswith(COST)))
    yield "The limits", tuple(rules)
    yield OTHERS, tuple(row for row in figures if not row.title.startswith(COST))


def _verdict(decision: Decision, candidate: Candidate) -> Cell:
    if candidate.out:
        return Cell(f"Out: {candidate.out}", kind="broken")
    if candidate.lane == decision.chosen:
        return Cell("Serve this one", kind="kept")
    return Cell("Possible") if decision.chosen else Cell("Not decided", kind="unsure")


def _rule(rule: Rule) -> Cell:
    words = " ".join(filter(None, [rule.words, f"({rule.margin})" if rule.margin else ""]))
    return Cell(words or KEEPS[rule.keeps], kind={True: "kept", False: "broken", None: "unsure"}[rule.keeps])


def _rows(candidates: Sequence[Candidate], cells: Callable[[Candidate], dict[str, Cell]]) -> Iterator[Row]:
    """A row a title that any of them has, in the order they come in; where all are from the same, that is said once."""
    found = [cells(each) for each in candidates]
    for title in dict.fromkeys(title for each in found for title in each):
        row = [each.get(title) for each in found]
        sources = [cell.source for cell in row if cell]
        alike = sources[0] if len(sources) > 1 and len(set(sources)) == 1 else ""
        yield Row(title, alike, tuple(replace(cell, source="" if alike else cell.source) if cell else Cell("–") for cell in row))


def near(decision: Decision) -> list[Turn]:
    """The turning points nearest to what was asked, in their order."""
    asked = max(decision.asked.answers_per_day, FEWEST)
    nearest = sorted(decision.turns, key=lambda turn: abs(math.log(max(turn.answers_per_day, FEWEST) / asked)))
    return sorted(nearest[:MOST_TURNS], key=lambda turn: turn.answers_per_day)


def _turn(decision: Decision, turn: Turn) -> str:
    after = next((each for each in decision.turns if each.answers_per_day > turn.answers_per_day), None)  # machines come whole: it may turn back
    begin, end = turn.answers_per_day, after.answers_per_day - 1 if after else math.inf
    where = f"From {number(begin)} answers a day on" if after is None else f"From {number(begin)} to {number(end)} answers a day"
    where = where if end > begin else f"At {many(begin, 'answer')} a day"
    return f"{where} {_title(decision, turn.then)} is cheaper than {_title(decision, turn.before)}."


# ---- the chart


def cost_lines(decision: Decision, months: Mapping[str, Callable[[float], float]]) -> tuple[CostLine, ...]:
    """What each lane costs a month, by a function of answers a day, around what was asked and the turning points nearest to it."""
    marked = [max(answers, FEWEST) for answers in (decision.asked.answers_per_day, *(turn.answers_per_day for turn in near(decision)))]
    low, high = min(marked) / AROUND, max(marked) * AROUND
    places = [low * (high / low) ** (n / POINTS) for n in range(POINTS + 1)]
    return tuple(CostLine(lane, tuple((at, month(at)) for at in places)) for lane, month in months.items())


def _chart(decision: Decision, costs: Sequence[CostLine]) -> CostChart | None:
    """None where there are no two points to draw between, or nothing costs anything, or more than a number holds."""
    known = [line for line in costs if len(line.points) > 1]
    numbers = [answers for line in known for answers, _ in line.points if answers > 0]
    most = max((cost for line in known for _, cost in line.points), default=0.0)
    if not numbers or not 0 < most < math.inf or min(numbers) == max(numbers):
        return None
    place, ticks = across(min(numbers), max(numbers))
    lanes = [each.lane for each in decision.candidates]
    lines = tuple(_line(decision, line, lanes, place, most) for line in known)
    asked = place(decision.asked.answers_per_day)
    told = None if asked is None else Tick(asked, f"asked: {number(decision.asked.answers_per_day)}")
    return CostChart(lines, ticks, up(most), _turns(decision, place), told)


def _turns(decision: Decision, place: Place) -> tuple[Tick, ...]:
    """The turning points nearest to what was asked; one whose words have no room beside those of a nearer one is a line without words."""
    asked = place(decision.asked.answers_per_day) or 0.0
    ticks = [Tick(at, number(turn.answers_per_day)) for turn in near(decision) if (at := place(turn.answers_per_day)) is not None]
    told = clear(sorted(ticks, key=lambda tick: abs(tick.at - asked)))
    return tuple(tick if tick in told else replace(tick, words="") for tick in ticks)


def _line(decision: Decision, line: CostLine, lanes: Sequence[str], place: Place, most: float) -> Line:
    points = tuple((at, 1 - cost / most) for answers, cost in line.points if (at := place(answers)) is not None)
    return Line(_title(decision, line.lane), colour(line.lane, lanes), points)
