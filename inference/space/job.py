"""What crosses to a ZeroGPU worker, and for how long the card is asked for. Plain values only, for all of it is pickled. Standard library only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

READY_S = 20.0  # a new worker: weights to the card, first calls, check, capture
TOKEN_S = 0.06  # one token the eager way, at 4 billion parameters
CHARACTER_S = 0.0005  # of a prompt, read the eager way
POSITION_S = 0.01  # scored, with its log-probabilities


@dataclass(frozen=True)
class Job:
    """One run for a worker: `verb` and the fields of its request; `fast`: whether our own kernels may be tried."""

    lane: str
    run_id: str
    number: int
    verb: str
    request: dict[str, Any]
    fast: bool = True


def duration_s(job: Job) -> int:
    """Seconds that the card is asked for: what is not used is not counted, what is asked must be left of a visitor's quota."""
    asked = job.request
    characters = len(asked.get("prompt", "")) + len(asked.get("system", "")) + len(asked.get("text", ""))
    work_s = TOKEN_S * asked.get("max_new_tokens", 0) + CHARACTER_S * characters + POSITION_S * len(asked.get("ids", ()))
    return math.ceil(READY_S + work_s)
