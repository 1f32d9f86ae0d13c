"""What a lane holds in memory, read off its part of a record: the largest figure of its load and its runs, in bytes."""

from __future__ import annotations

from typing import Any


def held(lane: dict[str, Any]) -> tuple[str, int | None]:
    """What a lane holds where its weights are: peak VRAM reserved on a GPU, else peak RAM over the imports, in bytes."""
    if lane["device"] == "cuda":
        return "VRAM reserved", peak(lane, "vram", "reserved")
    return "RAM peak", peak(lane, "ram", "rss_peak")


def peak(lane: dict[str, Any], kind: str, key: str) -> int | None:
    """The largest figure `key` of the runs' `kind` ("ram" or "vram"), the load's among them, in bytes."""
    load = lane["load"] or {}
    found = [run[kind][key] for run in lane["runs"] if run[kind]]
    found.append((load.get("peak_vram") or {}).get(key) if kind == "vram" else load.get("peak_ram_bytes") if key == "rss_peak" else None)
    return max((value for value in found if value is not None), default=None)


def at_rest(lane: dict[str, Any]) -> int | None:
    """The lane process's own RAM after its last run (USS, imports included), in bytes; None where it was not measured."""
    return next((run["ram"]["uss"] for run in reversed(lane["runs"]) if run["ram"] and run["ram"]["uss"] is not None), None)
