"""Records -> JSON, CSV (a row a run) and Markdown, and JSON back to records.

An unknown figure is null in JSON and an empty cell in CSV. JSON holds one record, or a list of them. A text that a
spreadsheet would take for a formula begins with ' in CSV, and only there. Knows no page.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from inference.errors import InferenceError
from inference.record.build import SCHEMA
from inference.record.markdown import markdown_all

FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
ENDINGS = {"markdown": "md", "json": "json", "csv": "csv"}
RUN = (
    "finish_reason", "error", "prompt_tokens", "new_tokens", "queue_s", "turn_wait_s", "load_wait_s", "ttft_s", "prefill_tps",
    "decode_tps", "tpot_s", "total_s", "path", "warm", "alone", "text",
)  # fmt: skip
QUALITY = ("positions", "kld_mean", "kld_se", "top1_agreement", "ppl_ratio")
COLUMNS = (
    "created", "model", "lane", "device", "precision", "mode", "line", "prompt", "expected", "repeat", *RUN,
    "load_total_s", "load_cold", "weights_bytes", "vram_reserved", "vram_allocated", "vram_device", "ram_rss_peak", "ram_uss",
    *(f"quality_{key}" for key in QUALITY),
)  # fmt: skip


def to_json(records: Sequence[dict[str, Any]]) -> str:
    """One record as an object, several as a list."""
    return json.dumps(records[0] if len(records) == 1 else list(records), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str) -> list[dict[str, Any]]:
    """The records that `to_json` wrote; raises InferenceError for anything else."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InferenceError(f"This is not JSON ({error}). Choose a file that was exported here.") from error
    records = found if isinstance(found, list) else [found]
    if not all(isinstance(record, dict) and record.get("schema") == SCHEMA for record in records):
        raise InferenceError(f"This JSON holds no records of the schema {SCHEMA}. Choose a file that was exported here.")
    return records


def to_csv(records: Sequence[dict[str, Any]]) -> str:
    """A header, then a row a run."""
    lines = [_csv_line(COLUMNS)]
    for record in records:
        for name, lane in record["lanes"].items():
            for number, run in enumerate(lane["runs"], 1):
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


def _csv_row(record: dict[str, Any], name: str, lane: dict[str, Any], number: int, run: dict[str, Any]) -> dict[str, Any]:
    load, vram, ram, row = lane["load"] or {}, run["vram"] or {}, run["ram"] or {}, record.get("row") or {}
    quality = (record["quality"] or {}).get("lanes", {}).get(name, {})
    return {
        "created": record["created"], "model": record["model"]["id"], "lane": name, "device": lane["device"], "precision": lane["precision"],
        "mode": record["request"]["mode"], "line": row.get("line"), "prompt": record["request"]["prompt"], "expected": row.get("expected"),
        "repeat": number, **{key: run[key] for key in RUN}, "load_total_s": load.get("total_s"), "load_cold": load.get("cold"),
        "weights_bytes": lane["weights_bytes"], "vram_reserved": vram.get("reserved"), "vram_allocated": vram.get("allocated"),
        "vram_device": vram.get("device"), "ram_rss_peak": ram.get("rss_peak"), "ram_uss": ram.get("uss"),
        **{f"quality_{key}": quality.get(key) for key in QUALITY},
    }  # fmt: skip


def export(records: Sequence[dict[str, Any]], format: str) -> str:
    """The records in a format of `ENDINGS`."""
    return {"markdown": markdown_all, "json": to_json, "csv": to_csv}[format](records)
