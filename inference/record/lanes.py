"""A lane's part of a record, read: its title, the runs that count, and what it held in memory.

In: the lane's dictionary as `report.py` makes it. Out: words, runs, bytes. Measures nothing.
"""

from __future__ import annotations

import statistics
from typing import Any

ENDED = ("stop", "length")
DEVICES = {"cuda": "GPU", "cpu": "CPU"}


def lane_title(lane: dict[str, Any], name: str = "") -> str:
    """Precision, then device: "4-bit NF4 on the GPU"; `name` where the lane was never loaded and one is given."""
    if name and not lane["precision"]:
        return name
    precision = f"4-bit {lane['precision']}" if lane["quantization"] else lane["precision"] or "unknown precision"
    return f"{precision} on the {DEVICES.get(lane['device'] or '', 'unknown device')}"


def ended_runs(lane: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs that ended by themselves: the only ones that figures and comparisons rest on."""
    return [run for run in lane["runs"] if run["finish_reason"] in ENDED]


def shown_run(lane: dict[str, Any]) -> dict[str, Any] | None:
    """The run to show: the last that ended by itself, else the last; None where there was none."""
    return (ended_runs(lane) or lane["runs"] or [None])[-1]


def held(lane: dict[str, Any]) -> tuple[str, int | None]:
    """What a lane holds where its weights are: peak VRAM reserved on a GPU, else peak RAM over the imports, in bytes."""
    if lane["device"] == "cuda":
        return "VRAM reserved", peak(lane, "vram", "reserved")
    return "RAM peak" if lane["device"] else "memory", peak(lane, "ram", "rss_peak")


def peak(lane: dict[str, Any], kind: str, key: str) -> int | None:
    """The largest figure `key` of the runs' `kind` ("ram" or "vram"), the load's among them, in bytes."""
    load = lane["load"] or {}
    found = [run[kind][key] for run in lane["runs"] if run[kind]]
    found.append((load.get("peak_vram") or {}).get(key) if kind == "vram" else load.get("peak_ram_bytes") if key == "rss_peak" else None)
    return max((value for value in found if value is not None), default=None)


def at_rest(lane: dict[str, Any]) -> float | None:
    """The lane process's own RAM after a run (USS, imports included), the median over its runs, in bytes; None where unknown."""
    found = [run["ram"]["uss"] for run in lane["runs"] if run["ram"] and run["ram"]["uss"] is not None]
    return statistics.median(found) if found else None
