"""Rows of cells -> a table: aligned text for a terminal, or Markdown. The one place that writes tables.

In: rows of strings of one length, the first of a Markdown table being its head; a cell's lines are apart by a line break. Text of
a model is escaped in Markdown, so that it can't end a cell or become markup. Knows no record.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from inference import terminal

_SIGNS = re.compile(r"([\\`*_{}\[\]#|~$!])")
MOST_CELL = 600
GAP = 2  # columns between two cells
NARROWEST = 14  # a column is wrapped to no less
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
    """Aligned columns, two spaces apart; with `widths`, in columns on a terminal, cells are wrapped to them."""
    split = _split(rows)
    widths = widths or _natural(split)
    return "\n".join(line for row in split for line in _lines(row, widths))


def fitted(rows: Rows, width: int) -> str:
    """The same in at most `width` columns, the first row being the head: wide columns are wrapped; where even that is too much, a block a column or row.

    A table of lanes has its questions in the first column, without a head, and becomes a block a lane; any other becomes a block a row.
    """
    natural = _natural(_split(rows))
    room = width - GAP * (len(natural) - 1)
    widths = _shrunk(natural, room)
    if sum(widths) <= room:
        return text(rows, widths)
    turned = rows if rows[0][0] else list(zip(*rows, strict=True))
    return "\n\n".join(_block(turned[0], row, width) for row in turned[1:])


def _split(rows: Rows) -> list[list[list[str]]]:
    return [[terminal.printable(cell).splitlines() or [""] for cell in row] for row in rows]


def _natural(split: Sequence[Sequence[Sequence[str]]]) -> list[int]:
    return [max(terminal.columns(line) for row in split for line in row[i]) for i in range(len(split[0]))]


def _shrunk(widths: Sequence[int], room: int) -> list[int]:
    """Widths whose sum is `room`, taken from the widest columns first; none that has more falls below `NARROWEST`."""
    found = list(widths)
    while sum(found) > room and max(found) > NARROWEST:
        found[found.index(max(found))] -= 1
    return found


def _block(head: Sequence[str], row: Sequence[str], width: int) -> str:
    """A row below itself: its first cell, then each other one behind its head."""
    longest = min(max(map(terminal.columns, head[1:])), width // 2 - 2)
    cells = [(f"  {title}", cell) for title, cell in zip(head[1:], row[1:], strict=True)]
    return "\n".join([*terminal.wrap(terminal.printable(row[0]), width), text(cells, [longest + 2, width - longest - 2 - GAP])])


def _lines(row: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    """A row as lines: each cell's own, wrapped, the shorter cells filled up."""
    wrapped = [[part for line in cell for part in terminal.wrap(line, width)] for cell, width in zip(row, widths, strict=True)]
    height = max(map(len, wrapped))
    filled = [cell + [""] * (height - len(cell)) for cell in wrapped]
    return [(" " * GAP).join(map(terminal.pad, line, widths)).rstrip() for line in zip(*filled, strict=True)]
