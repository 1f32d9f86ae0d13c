"""A series of prompts -> its tables: a row a prompt, medians by lane, and how far it came. Text, Markdown or cells.

In: records with their `row`, as `series.py` gives them. Knows no engine.
"""

from __future__ import annotations

from inference import terminal
from inference.record import grid
from inference.record.figures import OF_A_RUN, having
from inference.record.model import Record, RunRecord
from inference.series.expected import is_right
from inference.series.overall import beside, facts, lane_titles
from inference.series.series import LaneMedians, Series, medians
from inference.units import UNKNOWN, count

MOST_WORDS = 60
FIGURE_HEADS = [figure.title.lower() for figure in OF_A_RUN]


def short(text: str, most: int = MOST_WORDS) -> str:
    """A text on one line, cut to `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."


def prompt_heads(record: Record) -> list[str]:
    """The heads of `prompt_cells` of the record's lanes."""
    return ["line", "prompt", *(f"{title}: {word}" for title in lane_titles(record).values() for word in (*FIGURE_HEADS, "answer"))]


def prompt_cells(record: Record) -> list[str]:
    """One prompt's row: its line, its text, and each lane's figures and answer (with whether it is what the file expects, or holds it,
    and "cut" where it ends at the token limit)."""
    row = record.row
    cells = [str(row.line) if row else "", short(record.request.prompt)]
    for lane in record.lanes.values():
        run = lane.shown_run
        if run is None:
            cells += [UNKNOWN] * (len(OF_A_RUN) + 1)
            continue
        measured = lane.median if lane.n else run
        cells += [figure.words(getattr(measured, figure.key)) for figure in OF_A_RUN]
        cells.append(_answer(run, row.expected if row else None))
    return cells


def _answer(run: RunRecord, expected: str | None) -> str:
    if run.error:
        return f"failed: {short(run.error)}"
    if run.finish_reason == "stopped":
        return f"stopped: {short(run.text)}"
    marks = [_judged(run.text, expected)] if expected else []
    marks += ["cut"] if run.finish_reason == "length" else []
    return (f"{', '.join(marks)}: " if marks else "") + short(run.text)


def _judged(answer: str, expected: str) -> str:
    if is_right(answer, expected, "exact"):
        return "as expected"
    return "holds what is expected" if is_right(answer, expected, "contains") else "not as expected"


def median_rows(series: Series) -> list[list[str]]:
    """A row a lane: its name, the medians with min and max, n, failures and how many answers are as expected."""
    rows = []
    for name, found in medians(series.records).items():
        lane = next(record.lanes[name] for record in reversed(series.records) if name in record.lanes)
        cells = [lane.title(name)]
        for figure in OF_A_RUN:
            middle, low, high = (figure.words(getattr(each, figure.key)) for each in (found.median, found.min, found.max))
            some = sum(having(record.lanes[name], figure.key) for record in series.records if name in record.lanes)
            cells.append(f"{middle} ({low} - {high}{f', n {some}' if some < found.n else ''})" if found.n > 1 and middle != UNKNOWN else middle)
        rows.append([*cells, str(found.n), str(found.failed), as_expected(found)])
    return rows


def as_expected(found: LaneMedians) -> str:
    """How many answers are as expected: "3 of 20", and how many only hold it."""
    if not found.expected:
        return UNKNOWN
    more = found.hold_expected - found.as_expected
    return f"{found.as_expected} of {found.expected}" + (f", {more} more hold it" if more else "")


MEDIAN_HEADS = ["lane", *(f"{head}, median" for head in FIGURE_HEADS), "n", "failed", "as expected"]


def verdict_lines(series: Series) -> list[str]:
    """Who won over all prompts, a line a fact; what must be said beside it last, or why nobody won."""
    if not series.records:
        return []
    told = facts(series.records, medians(series.records))
    lines = [f"{fact.title}: {fact.words}{f' ({fact.numbers})' if fact.numbers else ''}" for fact in told]
    return [*lines, *filter(None, [beside(series.records, told)])]


def how_far(series: Series) -> str:
    """One sentence: how many are done, whether it was stopped, what was left out."""
    words = f"{series.done} of {count(len(series.prompts), 'prompt')} done"
    if series.stop.is_set() and series.done < len(series.prompts):
        words += ", then stopped; what was done is kept"
    if left_out := series.skipped.count:
        words += f"; {left_out} line{'s' * (left_out != 1)} left out"
    return words + "."


def text(series: Series, width: int) -> str:
    """The series for a terminal: who won, how far it came, the medians, every prompt's row, in lines of at most `width` columns."""
    told = [*verdict_lines(series), how_far(series)] if series.records else [how_far(series)]
    rows = [[MEDIAN_HEADS, *median_rows(series)], [prompt_heads(series.records[-1]), *map(prompt_cells, series.records)]] if series.records else []
    return "\n\n".join([terminal.wrapped("\n".join(told), width, hang=2), *(grid.fitted(table, width) for table in rows)])


def markdown(series: Series) -> str:
    """The whole series: who won, the medians, how far it came, every prompt's row, the lines left out."""
    parts = [how_far(series)]
    if series.records:
        rows = [prompt_heads(series.records[-1]), *map(prompt_cells, series.records)]
        won = "\n".join(f"- {grid.escape(line)}" for line in verdict_lines(series))
        parts = [won, grid.markdown([MEDIAN_HEADS, *median_rows(series)]), how_far(series), grid.markdown(rows)]
    return "\n\n".join(filter(None, ["## Prompts, measured", *parts, *series.skipped.words()])) + "\n"
