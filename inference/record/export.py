"""Records -> JSON and CSV (a row a run), the one place where they become plain dictionaries.

An unknown figure is null in JSON and an empty cell in CSV. JSON holds one record, or a list of them. A text that a
spreadsheet would take for a formula begins with ' in CSV, and only there. Knows no page.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from inference.events import Ram, Vram
from inference.record.markdown import markdown_all
from inference.record.model import SCHEMA, LaneRecord, Record, RunRecord
from inference.record.scores import NoQuality, Quality

FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # the wide ones count as the others where Japanese is written
ENDINGS = {"markdown": "md", "json": "json", "csv": "csv"}
RUN = (
    "finish_reason", "error", "prompt_tokens", "new_tokens", "queue_s", "turn_wait_s", "load_wait_s", "ttft_s", "prefill_tps",
    "decode_tps", "tpot_s", "total_s", "path", "warm", "alone", "text",
)  # fmt: skip
QUALITY = ("positions", "kld_mean", "kld_se", "top1_agreement", "ppl_ratio")
COLUMNS = (
    "created", "model", "lane", "device", "precision", "mode", "line", "prompt", "expected", "repeat", *RUN,
    "load_total_s", "load_cold", "weights_bytes", "vram_reserved", "vram_allocated", "vram_device", "vram_positions", "ram_rss_peak", "ram_uss",
    "energy_j", "energy_s", "energy_idle_watts", "energy_source", *(f"quality_{key}" for key in QUALITY),
)  # fmt: skip


def as_json(record: Record) -> dict[str, Any]:
    """The record as plain values, ready for JSON; `row` is there only for a row of a prompts file."""
    found = {"schema": SCHEMA, **plain(record), "quality": quality_as_json(record.quality) if record.quality else None}
    if record.row is None:
        del found["row"]
    return found


def quality_as_json(quality: Quality | NoQuality) -> dict[str, Any]:
    """The record's `quality`: the figures of the first lane stand at its top."""
    found: dict[str, Any] = plain(quality)
    return {**found.pop("figures", {}), **found}


def plain(value: Any) -> Any:
    """Dataclasses as dictionaries, sequences as lists, and a number that JSON has no word for as unknown."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def dump(value: Any) -> str:
    """Plain values as a JSON text."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_json(records: Sequence[Record]) -> str:
    """One record as an object, several as a list."""
    found = [as_json(record) for record in records]
    return dump(found[0] if len(found) == 1 else found)


def to_csv(records: Sequence[Record]) -> str:
    """A header, then a row a run."""
    lines = [_csv_line(COLUMNS)]
    for record in records:
        for name, lane in record.lanes.items():
            for number, run in enumerate(lane.runs, 1):
                row = _csv_row(record, name, lane, number, run)
                lines.append(_csv_line([_no_formula(row[column]) for column in COLUMNS]))
    return "".join(lines)


def _csv_line(cells: Sequence[Any]) -> str:
    """One line, ended by \\n; written with \\r\\n, for only what may end a line is sure to be put between quotes (Python 3.11)."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow(cells)
    return out.getvalue().removesuffix("\r\n") + "\n"


def _no_formula(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_SIGNS) else cell


def _csv_row(record: Record, name: str, lane: LaneRecord, number: int, run: RunRecord) -> dict[str, Any]:
    vram, ram, load, row, energy = run.vram or Vram(), run.ram or Ram(), lane.load, record.row, run.energy
    quality = record.quality.lanes.get(name) if isinstance(record.quality, Quality) else None
    return {
        "created": record.created, "model": lane.model_id or record.model.id, "lane": name, "device": lane.device, "precision": lane.precision,
        "mode": record.request.mode, "line": row and row.line, "prompt": record.request.prompt, "expected": row and row.expected,
        "repeat": number, **{key: getattr(run, key) for key in RUN}, "load_total_s": load and load.total_s, "load_cold": load and load.cold,
        "weights_bytes": lane.weights_bytes, "vram_reserved": vram.reserved, "vram_allocated": vram.allocated,
        "vram_device": vram.device, "vram_positions": vram.positions, "ram_rss_peak": ram.rss_peak, "ram_uss": ram.uss,
        "energy_j": energy.joules if energy and energy.long_enough else None, "energy_s": energy and energy.seconds,
        "energy_idle_watts": energy and energy.idle_watts, "energy_source": energy and energy.source,
        **{f"quality_{key}": getattr(quality, key, None) for key in QUALITY},
    }  # fmt: skip


def export(records: Sequence[Record], format: str) -> str:
    """The records in a format of `ENDINGS`."""
    return {"markdown": markdown_all, "json": to_json, "csv": to_csv}[format](records)
