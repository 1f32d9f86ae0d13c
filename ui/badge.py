"""Figures -> words and badges, as HTML that is safe inside `gr.HTML`.

In: figures in words. Out: tiles made of them, a label that opens its definition, a lane's colour. Knows no event. Every text is written as HTML entities, because
`gr.HTML` may read a dollar sign with braces as JavaScript.
"""

from __future__ import annotations

import html

from inference.lanes import colour as colour
from inference.units import seconds

NOT_YET = "–"
# a figure's label -> its definition's name
DEFINED = {
    "First word": "ttft", "Speed": "speed", "Writing speed": "speed", "Total": "total", "Size": "size", "Memory": "memory", "Answers": "answers", "Quality": "quality",
}  # fmt: skip
_TEMPLATE_SIGNS = str.maketrans({"$": "&#36;", "{": "&#123;", "}": "&#125;", "`": "&#96;", "\\": "&#92;"})


def escape(text: str) -> str:
    """`text` as HTML entities that no template engine and no browser reads as code."""
    return escape_template(html.escape(text, quote=True))


def escape_template(markup: str) -> str:
    """HTML whose signs no template engine reads as code."""
    return markup.translate(_TEMPLATE_SIGNS)


def clock(value: float) -> str:
    """A running clock: tenths under ten seconds, then whole seconds."""
    return f"{value:.1f} s" if value < 9.95 else f"{value:.0f} s" if value < 99.5 else seconds(max(value, 100))


def tiles(figures: list[tuple[str, str]]) -> str:
    """The headline figures: (label, value) pairs as a description list; a label that is defined opens what it means."""
    cells = "".join(f"<div><dt>{about(label)}</dt><dd>{escape(value)}</dd></div>" for label, value in figures)
    return f'<dl class="tiles">{cells}</dl>'


def about(label: str) -> str:
    """A label that opens its definition (`definitions.py`); plain where it has none."""
    key = DEFINED.get(label)
    return f'<button type="button" class="about" popovertarget="about-{key}">{escape(label)}</button>' if key else escape(label)
