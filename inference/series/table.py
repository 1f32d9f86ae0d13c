"""A series of prompts -> its tables: a row a prompt, medians by lane, and how far it came. Text, Markdown or cells.

In: records with their `row`, as `series.py` gives them. Knows no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inference.record.lanes import lane_title, shown_run
from inference.record.markdown import escape
from inference.series.expected import is_right
from inference.series.series import Series, medians
from inference.units import UNKNOWN, rate, seconds

MEDIANS = (("first token", "ttft_s", seconds), ("decode", "decode_tps", rate), ("total", "total_s", seconds))
MOST_WORDS = 60


def short(text: str, most: int = MOST_WORDS) -> str:
    """A text on one line, cut to `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."


def prompt_heads(lanes: Sequence[str]) -> list[str]:
    """The heads of `prompt_cells`."""
    return ["line", "prompt", *(f"{lane}: {word}" for lane in lanes for word in ("first token", "decode", "total", "answer"))]


def prompt_cells(record: dict[str, Any]) -> list[str]:
    """One prompt's row: its line, its text, and each lane's figures and answer (with "as expected" or not, where the file says)."""
    row = record.get("row") or {}
    cells = [str(row.get("line", "")), short(record["request"]["prompt"])]
    for lane in record["lanes"].values():
        run = shown_run(lane)
        if run is None:
            cells += [UNKNOWN] * 4
            continue
        figures = lane["median"] if lane["n"] else run
        cells += [seconds(figures["ttft_s"]), rate(figures["decode_tps"]), seconds(figures["total_s"]), _answer(run, row.get("expected"))]
    return cells


def _answer(run: dict[str, Any], expected: str | None) -> str:
    if run["error"]:
        return f"failed: {short(run['error'])}"
    if run["finish_reason"] == "stopped":
        return f"stopped: {short(run['text'])}"
    mark = "" if not expected else "as expected: " if is_right(run["text"], expected, "exact") else "not as expected: "
    return mark + short(run["text"])


def median_rows(series: Series) -> list[list[str]]:
    """A row a lane: its name, the medians with min and max, n, failures and how many answers are as expected."""
    rows = []
    for name, found in medians(series.records).items():
        lane = next(record["lanes"][name] for record in reversed(series.records) if name in record["lanes"])
        cells = [lane_title(lane, name)]
        for _, key, words in MEDIANS:
            span = f" ({words(found['min'][key])} - {words(found['max'][key])})" if found["n"] > 1 else ""
            cells.append(words(found["median"][key]) + span if found["median"][key] is not None else UNKNOWN)
        judged = f"{found['as_expected']} of {found['expected']}" if found["expected"] else UNKNOWN
        rows.append([*cells, str(found["n"]), str(found["failed"]), judged])
    return rows


MEDIAN_HEADS = ["lane", *(f"{word}, median" for word, _, _ in MEDIANS), "n", "failed", "as expected"]


def how_far(series: Series) -> str:
    """One sentence: how many are done, whether it was stopped, what was left out."""
    words = f"{series.done} of {len(series.prompts)} prompts done"
    if series.stop.is_set() and series.done < len(series.prompts):
        words += ", then stopped; what was done is kept"
    if left_out := series.skipped.count:
        words += f"; {left_out} line{'s' * (left_out != 1)} left out"
    return words + "."


def text(series: Series) -> str:
    """The series for a terminal."""
    heads = prompt_heads(list(series.records[0]["lanes"])) if series.records else []
    parts = [_aligned([heads, *map(prompt_cells, series.records)]), _aligned([MEDIAN_HEADS, *median_rows(series)])] if heads else []
    return "\n\n".join([*parts, how_far(series)])


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def median_markdown(series: Series) -> list[str]:
    """The medians by lane as a Markdown table, in a list that is empty while nothing is done."""
    return [_table([MEDIAN_HEADS, *median_rows(series)])] if series.records else []


def markdown(series: Series) -> str:
    """The whole series: medians, every prompt's row, the lines left out."""
    parts = ["## Prompts, measured", *median_markdown(series), how_far(series)]
    if series.records:
        parts.append(_table([prompt_heads(list(series.records[0]["lanes"])), *map(prompt_cells, series.records)]))
    return "\n\n".join([*parts, *series.skipped.words()]) + "\n"


def _table(rows: list[list[str]]) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(cell if cell == "---" else escape(cell) for cell in line) + " |" for line in lines)
