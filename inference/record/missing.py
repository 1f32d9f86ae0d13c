"""Why a figure is not there: the words that stand beside "n/a", so that nothing unmeasured is shown as a number.

In: a lane's part of a record and the figure's name in it. Out: words.
"""

from __future__ import annotations

from collections.abc import Callable

from inference.record.model import LaneRecord
from inference.units import UNKNOWN


def shown(value: float | None, words: Callable[[float | None], str], lane: LaneRecord, key: str) -> str:
    """A figure in words, or "n/a (reason)"."""
    return words(value) if value is not None else f"{UNKNOWN} ({why(lane, key)})"


def why(lane: LaneRecord, key: str) -> str:
    """The reason that the figure `key` of this lane is unknown."""
    run = lane.runs[-1] if lane.runs else None
    if lane.device is None:
        return "the lane was not loaded"
    if key.startswith("vram"):
        if not lane.on_gpu:
            return "this lane uses no GPU"
        return "the driver gives no figure for this process" if key == "vram.device" and lane.n else "not measured"
    if key in ("load", "weights_bytes"):
        return "the lane was not loaded"
    if run is None:
        return "no run"
    if run.error:
        return "the run failed"
    if key.startswith("ram"):
        return "the system gives no figure" if lane.n else "not measured"
    if not lane.n:
        return "stopped before its end" if run.new_tokens else "stopped before the first token"
    if key in ("decode_tps", "tpot_s") and run.new_tokens < 2:
        return "it takes two tokens"
    return "not measured"
