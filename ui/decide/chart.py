"""What the lanes cost a month over answers a day, as an inline SVG that is safe inside `gr.HTML`: a line a lane, the turning points and what was asked across it.

In: the chart as plain numbers (`inference/report/decision.py`). Out: SVG. Its letters stay as large as the page's: only lengths follow the width.
"""

from __future__ import annotations

from inference.report.axes import Tick
from inference.report.decision import CostChart, Line
from ui.badge import escape

HEIGHT, ABOVE, BELOW = 200, 34, 30  # pixels: of the frame, and of the words over and under it
DASHES = 3


def chart(drawn: CostChart, turns: tuple[str, ...]) -> str:
    """The figure; `turns` are its turning points in sentences."""
    told = "".join(f" {escape(words)}" for words in turns)
    keys = "".join(_key(line, n) for n, line in enumerate(drawn.lines))
    return (
        f'<figure class="costs"><figcaption><strong>Cost a month over answers a day</strong>{told}</figcaption><ul class="key">{keys}</ul>'
        f'<div class="plot"><svg width="100%" height="{ABOVE + HEIGHT + BELOW}" role="img" aria-label="Cost a month over answers a day, a line a lane.{told}">'
        f'{_frame(drawn)}{"".join(_below(tick) for tick in drawn.across)}</svg></div><p class="axis-title">Answers a day</p></figure>'
    )


def _key(line: Line, number: int) -> str:
    return (
        f'<li class="{line.colour}"><svg width="34" height="10" aria-hidden="true"><line x1="0" y1="5" x2="34" y2="5" class="line dash-{number % DASHES}"/></svg>'
        f"{escape(line.title)}</li>"
    )


def _frame(drawn: CostChart) -> str:
    grid = "".join(
        f'<line x1="0" x2="100%" y1="{_of(tick.at)}" y2="{_of(tick.at)}" class="grid"/><text x="-8" y="{_of(tick.at)}" dy="4" text-anchor="end">{escape(tick.words)}</text>'
        for tick in drawn.up
    )
    turns = "".join(_across(tick, "turn", -20) for tick in drawn.turns)
    asked = _across(drawn.asked, "asked", -5) if drawn.asked else ""
    lines = "".join(_line(line, n) for n, line in enumerate(drawn.lines))
    return (
        f'<svg y="{ABOVE}" width="100%" height="{HEIGHT}">{grid}{turns}{asked}'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" height="{HEIGHT}">{lines}</svg></svg>'
    )


def _line(line: Line, number: int) -> str:
    points = " ".join(f"{100 * x:.2f},{100 * y:.2f}" for x, y in line.points)
    return f'<polyline class="{line.colour} line dash-{number % DASHES}" points="{points}"/>'


def _across(tick: Tick, kind: str, y: int) -> str:
    return (
        f'<line x1="{_of(tick.at)}" x2="{_of(tick.at)}" y1="0" y2="100%" class="{kind}"/>'
        f'<text x="{_of(tick.at)}" y="{y}" text-anchor="{tick.anchor}" class="of-{kind}">{escape(tick.words)}</text>'
    )


def _below(tick: Tick) -> str:
    return f'<text x="{_of(tick.at)}" y="{ABOVE + HEIGHT + 20}" text-anchor="{tick.anchor}">{escape(tick.words)}</text>'


def _of(part: float) -> str:
    """A share as a length in the drawing."""
    return f"{100 * min(1.0, max(0.0, part)):.2f}%"
