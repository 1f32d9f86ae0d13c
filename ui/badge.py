"""Figures -> words and badges, as HTML that is safe inside `gr.HTML`.

In: numbers in seconds, bytes and tokens per second, or None. Out: "35 ms", "98.3 tok/s", "3.15 GiB", "n/a", and
tiles and chips made of them. Knows nothing of lanes or events. Every text is written as HTML entities, because
`gr.HTML` may read a dollar sign with braces as JavaScript.
"""

from __future__ import annotations

import html

NOT_MEASURED = "n/a"
NOT_YET = "–"
_TEMPLATE_SIGNS = str.maketrans({"$": "&#36;", "{": "&#123;", "}": "&#125;", "`": "&#96;", "\\": "&#92;"})


def escape(text: str) -> str:
    """`text` as HTML entities that no template engine and no browser reads as code."""
    return html.escape(text, quote=True).translate(_TEMPLATE_SIGNS)


def seconds(value: float | None) -> str:
    """A span: "0.42 ms", "35 ms", "1.24 s", "12.4 s", "2 min 05 s", "1 h 02 min"."""
    if value is None:
        return NOT_MEASURED
    if value < 0.0995:
        return f"{value * 1000:.2g} ms"
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 99.95:
        return f"{value:.2f} s" if value < 9.995 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def clock(value: float) -> str:
    """A running clock: tenths under ten seconds, then whole seconds."""
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s" if value < 100 else seconds(value)


def rate(value: float | None) -> str:
    """Tokens per second: "0.43 tok/s", "9.87 tok/s", "98.3 tok/s", "214 tok/s"."""
    if value is None:
        return NOT_MEASURED
    return f"{value:.0f} tok/s" if value >= 99.95 else f"{value:.1f} tok/s" if value >= 9.995 else f"{value:.2f} tok/s"


def size(value: float | None) -> str:
    """Memory in binary units: "600 B", "512 MiB", "3.15 GiB"."""
    if value is None:
        return NOT_MEASURED
    for unit in ("B", "KiB", "MiB"):
        if value < 1023.5:
            return f"{value:.0f} {unit}" if value >= 99.5 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB" if value < 99.995 else f"{value:.0f} GiB"


def tiles(figures: list[tuple[str, str]]) -> str:
    """The headline figures: (label, value) pairs as a description list."""
    cells = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>" for label, value in figures)
    return f'<dl class="tiles">{cells}</dl>'


def chips(facts: list[tuple[str, str]], marks: list[str]) -> str:
    """The smaller facts as (label, value) pairs, then the marks that qualify the figures."""
    pairs = "".join(f'<li><span class="label">{escape(label)}</span> {escape(value)}</li>' for label, value in facts)
    flags = "".join(f'<li class="mark">{escape(mark)}</li>' for mark in marks)
    return f'<ul class="chips">{pairs}{flags}</ul>'
