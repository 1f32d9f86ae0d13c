"""Series of points -> a chart in plain characters, for a terminal: a letter a series, dots between its points, a line where a level is asked for.

In: points, both numbers of each above 0; how y is told in words. Out: lines of at most so many columns. x is on a logarithmic axis.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Mapping, Sequence

from inference import terminal

ROWS = 12
LEAST_COLUMNS, MOST_COLUMNS = 16, 72  # of the field between the axes
Points = Sequence[tuple[float, float]]
SEVERAL = "*"  # more than one series has a point there


def plot(series: Mapping[str, Points], words: Callable[[float], str], width: int, levels: Sequence[float] = (), log_y: bool = False) -> str:
    """The chart with a legend below. `levels`: values of y that get a line where they lie within; without `log_y` y begins at 0."""
    points = [point for each in series.values() for point in each]
    if not points:
        return ""
    xs, ys = sorted({x for x, _ in points}), [y for _, y in points]
    bottom, top = (min(ys) if log_y else 0.0), max(ys)
    lines = [level for level in levels if bottom <= level <= top]
    rows = {level: _place(level, bottom, top, ROWS, log_y) for level in (*lines, bottom, top)}
    labels = {row: ", ".join(dict.fromkeys(words(value) for value in rows if rows[value] == row)) for row in rows.values()}  # a level may share an end's row
    margin = max(map(terminal.columns, labels.values()))
    columns = max(LEAST_COLUMNS, min(MOST_COLUMNS, width - margin - 3))
    field = [[" "] * columns for _ in range(ROWS)]
    for level in lines:
        field[rows[level]] = ["-"] * columns
    marks = dict(zip(series, string.ascii_lowercase, strict=False))
    for name, each in series.items():
        _draw(field, marks[name], [(_place(x, xs[0], xs[-1], columns, True), _place(y, bottom, top, ROWS, log_y)) for x, y in sorted(each)])
    drawn = [f"{labels.get(row, ''):>{margin}} |{''.join(field[row])}".rstrip() for row in reversed(range(ROWS))]
    legend = ", ".join([*(f"{mark} {name}" for name, mark in marks.items()), *([f"{SEVERAL} several"] if any(SEVERAL in row for row in field) else [])])
    under = f"{' ' * margin} +{'-' * columns}"
    return "\n".join([*drawn, under, " " * (margin + 2) + _ticks(xs, columns), terminal.wrapped(legend, width)])


def _place(value: float, low: float, high: float, cells: int, log: bool) -> int:
    """The cell of `value`, from 0, where `low` has the first and `high` the last; the middle where they are one."""
    if high <= low:
        return cells // 2
    part = math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)
    return round(part * (cells - 1))


def _draw(field: list[list[str]], mark: str, cells: Sequence[tuple[int, int]]) -> None:
    for (left, low), (right, high) in zip(cells, cells[1:], strict=False):
        for column in range(left + 1, right):
            row = round(low + (high - low) * (column - left) / (right - left))
            if field[row][column] in " -":
                field[row][column] = "."
    for column, row in cells:
        field[row][column] = SEVERAL if field[row][column] not in f" -.{mark}" else mark


def _ticks(xs: Sequence[float], columns: int) -> str:
    """The values of x below their columns, as many as have room."""
    line = ""
    for x in xs:
        tick = f"{x:,.0f}"
        column = min(_place(x, xs[0], xs[-1], columns, True), max(0, columns - len(tick)))
        if not line or column > len(line):
            line = line.ljust(column) + tick
    return line
