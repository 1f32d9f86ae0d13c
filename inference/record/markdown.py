"""The record of a comparison -> Markdown for a model card: table, summary, code to reproduce.

In: one record, or many. Out: text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from inference.record import grid, reproduce
from inference.record.grid import escape
from inference.record.model import Record
from inference.record.table import table_rows, titles
from inference.record.verdict import subject, summary_lines


def markdown_table(record: Record) -> str:
    """The table alone."""
    rows: list[list[str]] = [["", *titles(record)]]
    for row in table_rows(record):
        is_code = row.title.startswith("Code")
        rows.append([grid.bold(row.title), *(grid.code(cell) if is_code and cell.startswith("Auto") else cell for cell in row.cells)])
    return grid.markdown(rows)


def markdown_summary(record: Record) -> str:
    """The summary as a list."""
    return "\n".join(f"- **{title}**: {escape(words)}" for title, words in summary_lines(record))


def markdown_code(record: Record) -> str:
    """The command, and each loaded lane's program, as code blocks."""
    parts = ["This comparison again:", fenced(reproduce.command(record), "bash")]
    if record.request.temperature == 0 and not _shape(record):
        for name, lane in record.lanes.items():
            if lane.precision:
                parts += [
                    f"The lane {name} in plain code ({'see its first line' if lane.note else 'the same weights'}, plain `generate`):",
                    fenced(reproduce.script(record, lane), "python"),
                ]
    return "\n\n".join(parts)


def _shape(record: Record) -> bool:
    return (record.model.id or "").startswith("shape:")


def fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any in `text`."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def markdown(record: Record, level: int = 2) -> str:
    """A whole section for a model card."""
    mark = "#" * level
    model = record.model
    note = f" ({escape(model.note)})" if model.note else ""
    return "\n\n".join(
        [
            f"{mark} {escape(subject(record))}, measured",
            f"Model {escape(model.id or 'unknown')}{note}. Prompt: {escape(record.request.prompt)}. Measured {record.created}.",
            markdown_table(record),
            f"{mark}# Summary",
            markdown_summary(record),
            f"{mark}# Code to reproduce",
            markdown_code(record),
        ]
    )


def markdown_all(records: Sequence[Record]) -> str:
    """One section a record."""
    return "\n\n".join(map(markdown, records)) + "\n"
