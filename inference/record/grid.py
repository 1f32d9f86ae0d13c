"""Rows of cells -> a table: aligned text for a terminal, or Markdown. The one place that writes tables.

In: rows of strings of one length, the first of a Markdown table being its head; a cell's lines are apart by a line break. Text of
a model is escaped in Markdown, so that it can't end a cell or become markup. Knows no record.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Sequence

_SIGNS = re.compile(r"([\\`*_{}\[\]#|~$!])")
MOST_CELL = 600
Rows = Sequence[Sequence[str]]


class Markup(str):
    """A cell that is Markdown already and is not escaped."""


def bold(text: str) -> Markup:
    """A cell in bold."""
    return Markup(f"**{escape(text)}**")


def code(text: str) -> Markup:
    """A cell of code, on one line."""
    return Markup(f"`{text.replace('|', '').replace('`', '')}`")


def escape(text: str) -> str:
    """`text` as Markdown that reads just so, on one line; line breaks become <br>."""
    cut = text if len(text) <= MOST_CELL else text[:MOST_CELL] + " ..."
    return "<br>".join(_SIGNS.sub(r"\\\1", html.escape(line, quote=False)) for line in cut.splitlines())


def markdown(rows: Rows) -> str:
    """A Markdown table; the first row is its head."""
    head, *body = [[cell if isinstance(cell, Markup) else escape(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body])


def text(rows: Rows, widths: Sequence[int] | None = None) -> str:
    """Aligned columns, two spaces apart; with `widths`, cells are wrapped to them."""
    split = [[cell.splitlines() or [""] for cell in row] for row in rows]
    if widths is None:
        widths = [max(len(line) for row in split for line in row[i]) for i in range(len(rows[0]))]
    return "\n".join(line for row in split for line in _lines(row, widths))


def _lines(row: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    """A row as lines: each cell's own, wrapped, the shorter cells filled up."""
    wrapped = [
        [part for line in cell for part in (textwrap.wrap(line, width) or [""] if len(line) > width else [line])]
        for cell, width in zip(row, widths, strict=True)
    ]
    height = max(map(len, wrapped))
    filled = [cell + [""] * (height - len(cell)) for cell in wrapped]
    return ["  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip() for line in zip(*filled, strict=True)]
