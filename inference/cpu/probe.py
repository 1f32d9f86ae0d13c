"""How long a call takes here, by a short trial. In: calls. Out: seconds, or which of two is faster. Knows nothing of what they do."""

from __future__ import annotations

import time
from collections.abc import Callable

TRIAL_S = 0.08
MOST_TURNS = 9
SHORT_TRIAL_S, LEAST_SHORT_TURNS, MOST_SHORT_TURNS = 0.01, 4, 40
TIE = 1.1  # within a tenth a trial this short says nothing


def best_s(call: Callable[[], object]) -> float:
    """Seconds that `call` takes, the best of MOST_TURNS or of as many as TRIAL_S allows, two at least."""
    best, began, turns = float("inf"), time.perf_counter(), 0
    while turns < 2 or (turns < MOST_TURNS and time.perf_counter() - began < TRIAL_S):
        best, turns = min(best, _once(call)), turns + 1
    return best


def faster(ours: Callable[[], object], own: Callable[[], object]) -> bool:
    """Whether `ours` takes less time than `own`, or they tie: the best of many turns of each in alternation, for calls of microseconds."""
    mine = theirs = float("inf")
    began, turns = time.perf_counter(), 0
    while turns < LEAST_SHORT_TURNS or (turns < MOST_SHORT_TURNS and time.perf_counter() - began < SHORT_TRIAL_S):
        mine, theirs, turns = min(mine, _once(ours)), min(theirs, _once(own)), turns + 1
    return mine < theirs * TIE


def _once(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
