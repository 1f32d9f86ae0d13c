"""The record of a comparison -> Markdown for a model card: table, summary, code to reproduce.

Model text is escaped, so that it can't end a cell or become markup. In: one record, or many. Out: text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

from inference.record import reproduce
from inference.record.summary import summary_lines
from inference.record.table import table_rows, titles

_SIGNS = re.compile(r"([\\`*_{}\[\]#|~$!])")
MOST_CELL = 600


def escape(text: str) -> str:
    """`text` as Markdown that reads just so, on one line; line breaks become <br>."""
    cut = text if len(text) <= MOST_CELL else text[:MOST_CELL] + " ..."
    return "<br>".join(_SIGNS.sub(r"\\\1", html.escape(line, quote=False)) for line in cut.splitlines())


def markdown_table(record: dict[str, Any]) -> str:
    """The table alone."""
    head = ["", *map(escape, titles(record))]
    lines = [head, ["---"] * len(head)]
    for row in table_rows(record):
        code = row.title.startswith("Code")
        lines.append([f"**{row.title}**", *(f"`{cell.replace('|', '')}`" if code and cell.startswith("Auto") else escape(cell) for cell in row.cells)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def markdown_summary(record: dict[str, Any]) -> str:
    """The summary as a list."""
    return "\n".join(f"- **{title}**: {escape(words)}" for title, words in summary_lines(record))


def markdown_code(record: dict[str, Any]) -> str:
    """The command, and each loaded lane's program, as code blocks."""
    parts = ["This comparison again:", fenced(reproduce.command(record), "bash")]
    if record["request"]["temperature"] == 0 and not _shape(record):
        for name, lane in record["lanes"].items():
            if lane["precision"]:
                parts += [
                    f"The lane {name} in plain code ({'see its first line' if lane['note'] else 'the same weights'}, plain `generate`):",
                    fenced(reproduce.script(record, lane), "python"),
                ]
    return "\n\n".join(parts)


def _shape(record: dict[str, Any]) -> bool:
    return (record["model"]["id"] or "").startswith("shape:")


def fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any in `text`."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def markdown(record: dict[str, Any], level: int = 2) -> str:
    """A whole section for a model card."""
    mark = "#" * level
    model = record["model"]
    note = f" ({escape(model['note'])})" if model["note"] else ""
    return "\n\n".join(
        [
            f"{mark} 4-bit against full precision, measured",
            f"Model {escape(model['id'] or 'unknown')}{note}. Prompt: {escape(record['request']['prompt'])}. Measured {record['created']}.",
            markdown_table(record),
            f"{mark}# Summary",
            markdown_summary(record),
            f"{mark}# Code to reproduce",
            markdown_code(record),
        ]
    )


def markdown_all(records: Sequence[dict[str, Any]]) -> str:
    """One section a record."""
    return "\n\n".join(map(markdown, records)) + "\n"
