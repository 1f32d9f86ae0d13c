"""A lane's answer as a piece of HTML: its name, the text as it was written, its figures, and how it ended; and facts as a row of tiles.

In: records and runs. Out: HTML that is safe inside `gr.HTML`. A text keeps its white space and its own direction. Knows no component.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from inference.record import scoreboard
from inference.record.figures import FIRST_TOKEN, SPEED, TOTAL
from inference.record.model import LaneRecord, Record, RunFigures, RunRecord
from inference.record.scoreboard import Fact
from inference.series.expected import is_right
from inference.units import UNKNOWN
from ui.badge import colour, escape

MOST_PROMPT = 600  # characters of a prompt, and of what is expected, shown beside the answers


def side(title: str, css: str, lane: LaneRecord, text: str = "", expected: str | None = None) -> str:
    """A lane's answer; `text` is its HTML where something is marked in it."""
    run = lane.shown_run
    name = f'<p class="lane-name">{escape(title)}</p>'
    if run is None:
        return f'<div class="side {css}">{name}<p class="fault">Not run.</p></div>'
    said = f'<div class="said" dir="auto">{text or escape(run.text)}</div>' if run.text.strip() else ""
    fault = f'<p class="fault">Failed: {escape(run.error)}</p>' if run.error else ""
    return f'<div class="side {css}">{name}{said}{fault}<p class="figures">{figures(lane, run)}</p>{_marks(run, expected)}</div>'


def figures(lane: LaneRecord, run: RunRecord) -> str:
    """Speed, first word and total of a run (of its lane's runs, where several count), those that are known."""
    measured: RunRecord | RunFigures = lane.median if lane.n else run
    speed, first, total = (figure.words(getattr(measured, figure.key)) for figure in (SPEED, FIRST_TOKEN, TOTAL))
    parts = [f"<b>{escape(speed)}</b>"] * (speed != UNKNOWN) + [f"first word {escape(first)}"] * (first != UNKNOWN)
    return " · ".join([*parts, *[f"{run.length}{', total' if run.new_tokens is None else ' in'} {escape(total)}"] * (total != UNKNOWN)])


def _marks(run: RunRecord, expected: str | None) -> str:
    marks = [("cut", "Cut at the token limit" if run.new_tokens is None else f"Cut at {run.length}")] if run.finish_reason == "length" else []
    marks += [("cut", "Stopped here")] if run.finish_reason == "stopped" else []
    if expected and run.counted:
        marks.append(_judged(run.text, expected))
    items = "".join(f'<li class="{kind}">{escape(words)}</li>' for kind, words in marks)
    return f'<ul class="marks">{items}</ul>' if items else ""


def _judged(text: str, expected: str) -> tuple[str, str]:
    if is_right(text, expected, "exact"):
        return "right", "✓ As expected"
    return ("right", "✓ Holds what is expected") if is_right(text, expected, "contains") else ("wrong", "✗ Not as expected")


def sides(record: Record, titles: Mapping[str, str], texts: Mapping[str, str] | None = None) -> str:
    """All lanes' answers to one prompt, beside each other."""
    expected = record.row.expected if record.row else None
    each = (side(titles[name], colour(name, record.lanes), lane, (texts or {}).get(name, ""), expected) for name, lane in record.lanes.items())
    return f'<div class="sides">{"".join(each)}</div>'


def parting(record: Record) -> dict[str, str]:
    """Of two lanes whose answers part at a word, each text as HTML with that word marked; empty where there is none to mark."""
    return {name: _marked(record.lanes[name].ended_runs[-1].text, *span) for name, span in scoreboard.parting(record).items()}


def _marked(text: str, begin: int, end: int) -> str:
    return f"{escape(text[:begin])}<mark>{escape(text[begin:end]) or '(ends here)'}</mark>{escape(text[end:])}"


def asked(prompt: str) -> str:
    """A prompt, cut where it is very long."""
    return f'<div class="question" dir="auto">{escape(_cut(prompt))}</div>'


def hoped(expected: str | None) -> str:
    """What is expected, cut like a prompt; empty where the file says nothing."""
    return f'<p class="hoped"><span>Expected:</span> <bdi>{escape(_cut(expected))}</bdi></p>' if expected else ""


def _cut(text: str) -> str:
    return text if len(text) <= MOST_PROMPT else f"{text[:MOST_PROMPT]} … ({len(text):,} characters)"


def facts(told: Iterable[Fact], lanes: Iterable[str], caveat: str = "") -> str:
    """Facts as tiles, each with its winner's colour, and what must be said beside them."""
    known = list(lanes)
    tiles = "".join(
        f'<div class="{colour(fact.winner, known) if fact.winner else "tied"}"><dt>{escape(fact.title)}</dt><dd>{escape(fact.words)}</dd>'
        f"{f'<dd class=numbers>{escape(fact.numbers)}</dd>' if fact.numbers else ''}</div>"
        for fact in told
    )
    note = f'<p class="note">{escape(caveat)}</p>' if caveat else ""
    return (f'<dl class="winners">{tiles}</dl>' if tiles else "") + note


def table(heads: list[str], rows: Iterable[list[str]], css: str = "") -> str:
    """A table of plain texts that a narrow screen shows block by block; a row's first cell is its head, and every cell knows its own."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' if text else "<td></td>" for text in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f'<td data-head="{escape(head)}">{escape(cell)}</td>' for head, cell in zip(heads[1:], row[1:], strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<table class="stacks {css}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def opened(what: str, inside: str) -> str:
    """A part of the page that changes as a whole; a screen reader is told what it is now, and not all that is in it."""
    return f'<section aria-label="{escape(what)}"><p role="status" class="unseen">{escape(what)}</p>{inside}</section>'


def local(created: str, offset_min: float) -> str:
    """A record's time on a clock `offset_min` minutes behind UTC, as browsers count it; with its day where that is another than today."""
    then = datetime.fromisoformat(created)
    behind = timedelta(minutes=offset_min)
    here, today = then - behind, datetime.now(then.tzinfo) - behind
    return f"{here:%H:%M}" if here.date() == today.date() else f"{here:%b} {here.day}, {here:%H:%M}"
