"""Figures -> words and badges, as HTML that is safe inside `gr.HTML`.

In: numbers in seconds, bytes and tokens per second, or None. Out: "35 ms", "98.3 tok/s", "3.15 GiB", "n/a", and
tiles and chips made of them. Knows nothing of lanes or events. Every text is written as HTML entities, because
`gr.HTML` may read a dollar sign with braces as JavaScript.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from inference.lanes import LaneName
from inference.units import seconds

NOT_YET = "–"
_TEMPLATE_SIGNS = str.maketrans({"$": "&#36;", "{": "&#123;", "}": "&#125;", "`": "&#96;", "\\": "&#92;"})


def escape(text: str) -> str:
    """`text` as HTML entities that no template engine and no browser reads as code."""
    return html.escape(text, quote=True).translate(_TEMPLATE_SIGNS)


def clock(value: float) -> str:
    """A running clock: tenths under ten seconds, then whole seconds."""
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s" if value < 100 else seconds(value)


def tiles(figures: list[tuple[str, str]]) -> str:
    """The headline figures: (label, value) pairs as a description list."""
    cells = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>" for label, value in figures)
    return f'<dl class="tiles">{cells}</dl>'


def chips(facts: list[tuple[str, str]], marks: list[str]) -> str:
    """The smaller facts as (label, value) pairs, then the marks that qualify the figures."""
    pairs = "".join(f'<li><span class="label">{escape(label)}</span> {escape(value)}</li>' for label, value in facts)
    flags = "".join(f'<li class="mark">{escape(mark)}</li>' for mark in marks)
    return f'<ul class="chips">{pairs}{flags}</ul>'


def colour(lane: str, among: Iterable[str]) -> str:
    """The class that gives a lane `among` those shown its colour, wherever it is drawn (`looks/colours.css`): "of-4bit", "of-fp32", "of-bf16"; a second 4-bit lane has one of its own."""
    name = LaneName.parse(lane)
    if name.four_bit:
        return "of-4bit-cpu" if name.on_cpu and any(LaneName.parse(other).four_bit for other in among if other != lane) else "of-4bit"
    return f"of-{name.precision}"
