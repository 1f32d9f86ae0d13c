"""The record of a comparison -> the table that people make by hand: a row a question, a column a lane.

Every cell is read off the record, an unknown figure is "n/a" with its reason. Lines of a cell are separated by a line
break. Text for a terminal is made here, Markdown in `markdown.py`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inference.record.build import VERSIONS
from inference.record.lanes import at_rest, ended_runs, lane_title, peak, shown_run
from inference.record.missing import shown, why
from inference.record.quality import ENOUGH_POSITIONS, figure_rows
from inference.record.reproduce import load_call
from inference.record.summary import summary_lines
from inference.record.verdict import REFERENCE
from inference.units import UNKNOWN, rate, seconds, size

Cell = Callable[[dict[str, Any], dict[str, Any]], str]
QUALITY_COMMAND = "python -m inference quality"
WIDTH = 118


@dataclass(frozen=True)
class Row:
    """A question and each lane's answer, in the order of the record's lanes."""

    title: str
    cells: tuple[str, ...]


def titles(record: dict[str, Any]) -> list[str]:
    """The lanes as column heads."""
    return [lane_title(lane, name) for name, lane in record["lanes"].items()]


def table_rows(record: dict[str, Any]) -> list[Row]:
    """All rows of the table."""
    return [Row(title, tuple(cell(record, lane) for lane in record["lanes"].values())) for title, cell in _ROWS]


def _hardware(record: dict[str, Any], lane: dict[str, Any]) -> str:
    found = record["environment"]
    if lane["device"] == "cuda":
        return f"{found['gpu'] or 'CUDA device'}, {size(found['gpu_memory_bytes'])}\ndriver {found['driver'] or UNKNOWN}"
    if lane["device"] is None:
        return f"{UNKNOWN} ({lane['reason'] or why(lane, 'load')})"
    return f"{found['cpu'] or 'CPU'}, {lane['threads'] or UNKNOWN} threads\nRAM limit {size(found['ram_limit_bytes'])}"


def _quantization(record: dict[str, Any], lane: dict[str, Any]) -> str:
    found = lane["quantization"]
    if not found:
        return "none" if lane["precision"] else UNKNOWN
    double = "double quantization" if found.get("double") else "no double quantization"
    return f"bitsandbytes {str(found.get('type')).upper()}, {double}\nkept in 16 bit: {', '.join(lane['kept_16bit'] or ()) or 'nothing'}"


def _data_type(record: dict[str, Any], lane: dict[str, Any]) -> str:
    return f"{lane['compute_dtype']} arithmetic\nstored as {lane['storage_dtype']}" if lane["precision"] else UNKNOWN


def _model_size(record: dict[str, Any], lane: dict[str, Any]) -> str:
    count = record["model"]["parameters"]
    weights = shown(lane["weights_bytes"], size, lane, "weights_bytes")
    return f"{weights}\n{count:,} parameters" if count else weights


def _startup(record: dict[str, Any], lane: dict[str, Any]) -> str:
    load = lane["load"]
    if not load:
        return f"{UNKNOWN} ({why(lane, 'load')})"
    spans = ", ".join(f"{name} {seconds(value)}" for name, value in load["spans"].items())
    return f"{seconds(load['total_s'])} ({'cold' if load['cold'] else 'warm'})\n{spans}"


def spread(lane: dict[str, Any], key: str, words: Callable[[float | None], str]) -> str:
    """The median of a figure, with n where there are repeats, and with min - max where they differ."""
    middle = shown(lane["median"][key], words, lane, key)
    if lane["n"] < 2 or lane["median"][key] is None:
        return middle
    low, high = words(lane["min"][key]), words(lane["max"][key])
    return f"{middle} ({f'{low} - {high}, ' if low != high else ''}n {lane['n']})"


def _inference(record: dict[str, Any], lane: dict[str, Any]) -> str:
    runs = ended_runs(lane) or lane["runs"]
    counts = sorted({run["new_tokens"] for run in runs})
    tokens = f"\n{' or '.join(map(str, counts))} tokens out, {runs[-1]['prompt_tokens'] or UNKNOWN} in" if runs else ""
    return spread(lane, "total_s", seconds) + tokens


def _waits(record: dict[str, Any], lane: dict[str, Any]) -> str:
    return "\n".join(f"{word} {spread(lane, key, seconds)}" for word, key in (("queue", "queue_s"), ("turn", "turn_wait_s"), ("load", "load_wait_s")))


def _ram(record: dict[str, Any], lane: dict[str, Any]) -> str:
    return (
        f"{shown(peak(lane, 'ram', 'rss_peak'), size, lane, 'ram')} peak over the imports (mapped files count)\n"
        f"{shown(at_rest(lane), size, lane, 'ram')} its own at rest (USS, imports included)"
    )


def _vram(record: dict[str, Any], lane: dict[str, Any]) -> str:
    if lane["device"] != "cuda":
        return f"{UNKNOWN} ({why(lane, 'vram')})"
    words = (("reserved", "reserved"), ("allocated", "allocated"), ("device", "by the driver (CUDA context included)"))
    return "\n".join(f"{shown(peak(lane, 'vram', key), size, lane, f'vram.{key}')} {word}" for key, word in words)


def _response(record: dict[str, Any], lane: dict[str, Any]) -> str:
    run = shown_run(lane)
    if run is None:
        return UNKNOWN
    noise = "(noise: random weights) " if "noise" in (lane["note"] or "") else ""
    return noise + (run["error"] or run["text"].strip() or "(no text produced)")


def _quality(record: dict[str, Any], lane: dict[str, Any]) -> str:
    name, found = next(name for name, each in record["lanes"].items() if each is lane), record["quality"] or {}
    if name in found.get("lanes", {}):
        rows = (f"{title} {words}" for title, words in figure_rows(found["lanes"][name]))
        few = " (too few for a verdict)" if found["positions"] < ENOUGH_POSITIONS else ""
        return "\n".join([*rows, f"on {found['positions']} positions of the {found['source']}{few}"])
    if name == (found.get("reference") or REFERENCE):
        return "the reference"
    return f"{UNKNOWN} ({found['error']})" if "error" in found else f"{UNKNOWN} (not measured; {QUALITY_COMMAND} measures it)"


def conditions(record: dict[str, Any], lane: dict[str, Any]) -> str:
    """How a lane was measured: mode, alone or not, cold or warm, path, kernel, number of runs and how they ended."""
    run = shown_run(lane)
    if run is None:
        return UNKNOWN
    alone = {True: "alone", False: "contended", None: "alone or not: unknown"}[run["alone"]]
    warm = {True: "warm run", False: "cold run (first since the load)", None: "warm or cold: unknown"}[run["warm"]]
    ends = {"stop": "ended by itself", "length": "token limit", "stopped": "stopped", "failed": "failed"}
    pending = " (a faster one was still being made ready)" if lane["path_pending"] else ""
    paths = sorted({r["path"] for r in lane["runs"] if r["path"]}) or [UNKNOWN]
    others = len(lane["runs"]) - lane["n"]
    rest = f", not counted: {others} that did not end by itself" if lane["n"] and others else ""
    return f"{record['request']['mode']}, {alone}, {warm}\npath {' and '.join(paths)}{pending}, kernel {lane['kernel'] or UNKNOWN}\nn {lane['n']}, end: {ends[run['finish_reason']]}{rest}"


def _dependencies(record: dict[str, Any], lane: dict[str, Any]) -> str:
    skip = () if lane["quantization"] else ("bitsandbytes",)
    return ", ".join(f"{name} {record['environment'][name]}" for name in VERSIONS if record["environment"].get(name) and name not in skip) or UNKNOWN


_ROWS: tuple[tuple[str, Cell], ...] = (
    ("Code to load", lambda record, lane: load_call(lane) or UNKNOWN),
    ("Hardware", _hardware),
    ("Quantization", _quantization),
    ("Data type", _data_type),
    ("Device map", lambda record, lane: lane["device_map"] or UNKNOWN),
    ("Model size", _model_size),
    ("Startup time", _startup),
    ("Inference time", _inference),
    ("First token", lambda record, lane: spread(lane, "ttft_s", seconds)),
    ("Prefill speed", lambda record, lane: spread(lane, "prefill_tps", rate)),
    ("Decode speed", lambda record, lane: spread(lane, "decode_tps", rate)),
    ("Waits, not in the above", _waits),
    ("RAM", _ram),
    ("VRAM", _vram),
    ("Response", _response),
    ("Quality", _quality),
    ("Conditions", conditions),
    ("Dependencies", _dependencies),
)


def text_table(record: dict[str, Any]) -> str:
    """The table in plain text, then the summary; cells are wrapped to fit a terminal."""
    rows = [Row("", tuple(titles(record))), *table_rows(record)]
    lanes = len(record["lanes"])
    first = max(len(row.title) for row in rows)
    widths = [first, *[max(24, (WIDTH - first) // max(1, lanes) - 2)] * lanes]
    lines = [line for row in rows for line in _lines((row.title, *row.cells), widths)]
    return "\n".join([*lines, "", *(f"{title}: {words}" for title, words in summary_lines(record))])


def _lines(cells: tuple[str, ...], widths: list[int]) -> list[str]:
    wrapped = [[part for line in cell.splitlines() or [""] for part in textwrap.wrap(line, width) or [""]] for cell, width in zip(cells, widths, strict=True)]
    height = max(map(len, wrapped))
    padded = [lines + [""] * (height - len(lines)) for lines in wrapped]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in zip(*padded, strict=True)]
