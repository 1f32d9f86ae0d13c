"""The record of a comparison -> a table for people: a row a figure, a column a lane, units with the numbers."""

from __future__ import annotations

from typing import Any

from inference.report import lane_title
from inference.units import UNKNOWN, rate, seconds, size

Rows = list[tuple[str, list[str]]]


def text_table(record: dict[str, Any]) -> str:
    """The table in plain text, then each lane's answer."""
    lanes = record["lanes"]
    rows: Rows = [("", [lane_title(lane) if lane["precision"] else name for name, lane in lanes.items()])]
    rows += [(title, [cell(lane) for lane in lanes.values()]) for title, cell in _CELLS]
    widths = [max(len(row[0]) for row in rows)] + [max(len(row[1][i]) for row in rows) for i in range(len(lanes))]
    lines = ["  ".join(text.ljust(width) for text, width in zip((title, *cells), widths, strict=True)).rstrip() for title, cells in rows]
    for name, lane in lanes.items():
        run = lane["runs"][-1]
        lines += ["", f"{name}: {run['error'] or run['text'] or '(no text produced)'}"]
    return "\n".join(lines)


def _load(lane: dict[str, Any]) -> str:
    load = lane["load"]
    return f"{seconds(load['total_s'])}{' (cold)' if load['cold'] else ''}" if load else UNKNOWN


_CELLS = (
    ("device", lambda lane: lane["device"] or UNKNOWN),
    ("load", _load),
    ("first token", lambda lane: seconds(lane["median"]["ttft_s"])),
    ("decode", lambda lane: rate(lane["median"]["decode_tps"])),
    ("total", lambda lane: seconds(lane["median"]["total_s"])),
    ("weights", lambda lane: size(lane["weights_bytes"])),
    ("tokens", lambda lane: str(lane["runs"][-1]["new_tokens"])),
    ("ended by", lambda lane: lane["runs"][-1]["finish_reason"]),
    ("runs", lambda lane: str(lane["n"])),
)
