"""Why a figure or an answer is not there: the words that stand beside "n/a", so that nothing unmeasured is shown as a number.

In: a lane's part of a record and the figure's name in it, or what a person was told of a fault. Out: words.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from inference.record.model import LaneRecord
from inference.units import UNKNOWN, seconds

ELSEWHERE = "a server elsewhere"
_OF_A_SERVER = {"prefill_tps": "the network is in the first token's time"}
NOT_LOADED = "the lane was not loaded"
PROCESS_ENDED = "the lane's process has ended"
_SENTENCE = re.compile(r"(?:^|(?<=[.!?]))\s*Ask again\b[^.]*(?:\.|$)")
_NOT_HERE = ("vram", "ram", "load", "memory", "weights_bytes", "energy")
_PART = re.compile(r"(?:;|,? then|,? and) ask (?:again|once more)\b[^.]*")  # up to the full stop of its sentence


def shown(value: float | None, words: Callable[[float | None], str], lane: LaneRecord, key: str) -> str:
    """A figure in words, or "n/a (reason)"."""
    return words(value) if value is not None else f"{UNKNOWN} ({why(lane, key)})"


def why(lane: LaneRecord, key: str) -> str:
    """The reason that the figure `key` of this lane is unknown."""
    run, key = lane.shown_run, {"load_s": "load", "ram_uss": "ram", "memory_bytes": "vram.reserved" if lane.on_gpu else "ram"}.get(key, key)
    if lane.elsewhere and key.startswith(_NOT_HERE):
        return ELSEWHERE
    if lane.device is None:  # what a lane is, is known from its process alone
        return PROCESS_ENDED if lane.load or any(run.began for run in lane.runs) else "the server was not reached" if lane.elsewhere else NOT_LOADED
    for name, reason in (lane.unmeasured or {}).items():
        if key.startswith(name):
            return reason
    if key.startswith("vram"):
        if not lane.on_gpu:
            return "this lane uses no GPU"
        return "the driver gives no figure for this process" if key == "vram.device" and lane.n else "not measured"
    if key in ("load", "weights_bytes"):
        return NOT_LOADED
    if run is None:
        return "no run"
    if run.error:
        return "the run failed"
    if key.startswith("ram"):
        return "the system gives no figure" if lane.n else "not measured"
    if not lane.n:
        return "stopped before its end" if run.began else "stopped before the first token"
    if key == "energy":
        return _no_energy(lane)
    if lane.elsewhere and key in _OF_A_SERVER:
        return _OF_A_SERVER[key]
    if key in ("decode_tps", "tpot_s", "new_tokens") and run.new_tokens is None:
        return "the server gave no count of tokens, and no tokenizer to count them by is here"
    if key in ("decode_tps", "tpot_s") and run.new_tokens is not None:
        return "it takes two tokens" if run.new_tokens < 2 else "the answer came in one piece" if lane.elsewhere else "not measured"
    return "not measured"


def _no_energy(lane: LaneRecord) -> str:
    read = [run.energy for run in lane.ended_runs if run.energy]
    if not read:
        return "not measured"
    if not any(energy.joules for energy in read):
        return "its counter does not move"
    runs = f"{len(read)} runs of {seconds(sum(energy.seconds for energy in read))} together are" if len(read) > 1 else f"{seconds(read[0].seconds)} is"
    return f"{runs} too short for its counter, which may move only every {seconds(read[-1].step_s)}; ask for longer answers, or for more repeats"


def what_happened(told: str | None) -> str | None:
    """A fault as a record keeps it: `told` less each sentence, or last part of one, that says to ask again, for nobody can in a record.

    Other advice (free memory, set a variable) stays. `told` as it is where nothing would be left.
    """
    return _PART.sub("", _SENTENCE.sub("", told)).strip() or told if told else told
