"""A series of prompts -> what its tab shows of it: who won, the medians, and a page of rows with each prompt's answers side by side.

In: a series, which may be going on. Out: HTML. Knows no component.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inference.record.model import Record
from inference.record.scoreboard import answers as compared
from inference.series import overall, table
from inference.series.expected import is_right
from inference.series.series import Series, medians
from inference.units import UNKNOWN
from ui.answers import asked, facts, hoped, parting, sides
from ui.answers import table as html_table
from ui.badge import escape

PAGE = 25  # rows
ONLY = [("All", "all"), ("Answers differ", "differ"), ("Not as expected", "wrong")]
HEADS = ["Median over all prompts", "First word", "Writing speed", "Whole answer", "Counted", "Failed", "As expected"]


@dataclass(frozen=True)
class Rows:
    """A page of rows, which page it is (from 0) of how many, and where it stands among them in words."""

    html: str
    page: int
    pages: int
    words: str


def rows(series: Series, page: int | None, only: str = "all") -> Rows:
    """A page of the rows that `only` lets through; the one of the newest where none is named."""
    records = [record for record in list(series.records) if _shown(record, only)]
    pages = max(1, -(-len(records) // PAGE))
    page = pages - 1 if page is None else max(0, min(page, pages - 1))
    shown = records[page * PAGE : (page + 1) * PAGE]
    words = f"Rows {page * PAGE + 1}–{page * PAGE + len(shown)} of {len(records)}" if shown else "No such row"
    return Rows(_rows(shown) if shown else "", page, pages, words)


def _shown(record: Record, only: str) -> bool:
    if only == "differ":
        return record.verdict.identical is False
    return only == "all" or _wrong(record)


def _wrong(record: Record) -> bool:
    """Whether a lane's answer does not hold what is expected, or there is none."""
    expected = record.row.expected if record.row else None
    runs = [lane.shown_run for lane in record.lanes.values()]
    return bool(expected) and not all(run and run.counted and is_right(run.text, expected or "", "contains") for run in runs)


def _rows(records: Sequence[Record]) -> str:
    titles = overall.lane_titles(records[-1])
    return f'<ol class="rows" aria-label="Prompts and their answers">{"".join(_row(record, titles) for record in records)}</ol>'


def _row(record: Record, titles: dict[str, str]) -> str:
    line = f'<span class="place">Line {record.row.line}</span>' if record.row else ""
    pairs = record.verdict.pairs
    told = compared(record, pairs[0]) if len(pairs) == 1 else ""
    kind = "same" if record.verdict.identical else "differ"
    mark = f'<span class="{kind}">{"=" if kind == "same" else "≠"} {escape(told)}</span>' if told else ""
    expected = hoped(record.row.expected if record.row else None)
    return f'<li><div class="head">{line}{mark}</div>{asked(record.request.prompt)}{expected}{sides(record, titles, parting(record))}</li>'


def summary(series: Series) -> str:
    """Who won over all prompts, the medians by lane, and the lines left out."""
    left_out = "".join(f"<li>{escape(words)}</li>" for words in series.skipped.words())
    notes = f'<ul class="left-out">{left_out}</ul>' if left_out else ""
    records = list(series.records)
    if not records:
        return notes
    found = medians(records)
    told = overall.facts(records, found)
    won = facts(told, found, overall.beside(records, told))
    return won + _medians(series, records) + notes


def _medians(series: Series, records: Sequence[Record]) -> str:
    titles = overall.lane_titles(records[-1])
    lines = [[title, *cells[1:]] for title, cells in zip(titles.values(), table.median_rows(series), strict=True)]
    judged = any(line[-1] != UNKNOWN for line in lines)
    return html_table(HEADS if judged else HEADS[:-1], lines if judged else [line[:-1] for line in lines], "medians")
