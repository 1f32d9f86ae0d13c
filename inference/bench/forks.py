"""Whether our tokens are those that they must be: what ours are held against, and where they part, whether rounding alone did it.

In: two loaded sides of the bench, plain and ours. Out: the right ids of a request; a `Fork`, judged. A lane on the CPU computes in FP32 over the
weights that it holds, so its tokens are held against `generate` doing just that: over 4 bits that is a process of its own, as bitsandbytes may
compute in bf16. A lane on a GPU computes in 16 bits, and its tokens are held against plain's, which does too.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from inference.bench.side import Side, start_plain_worker
from inference.engine.engine import Engine
from inference.errors import InferenceError
from inference.events import Request
from inference.lanes import CPU_NF4
from inference.record.verdict import first_difference
from inference.settings import Settings

MOST_MARGIN = 2e-4  # in FP32: what rounding moves a logit by
MOST_DISTANCE = 1.2  # in 16 bits: how much further than plain's our logits may be from the same weights' in FP32
PLAIN, DEQUANTIZED = "plain generate", "plain generate in FP32 over the same 4-bit weights"


@dataclass(frozen=True)
class Fork:
    """Where our answer parts from the right one: at id `index`, counted from 0.

    `margin`: between the right side's two likeliest ids there. `ways_difference`: the largest difference between both sides' logits there. `rounding`:
    whether rounding alone explains it, None where that could not be told (`why_not`). In FP32 that is a margin under 2e-4 at which the right
    side's own two ways (all ids at once, one at a time) part too: `plain_ways_part`. In 16 bits it is a margin under `ways_difference`, and our
    logits at most 1.2 times as far from those of the same weights in FP32 as plain's: `distance_ours`, `distance_plain` (root mean squares
    over the right answer and the vocabulary).
    """

    index: int
    margin: float
    ways_difference: float
    plain_ways_part: bool | None = None
    distance_ours: float | None = None
    distance_plain: float | None = None
    rounding: bool | None = None
    why_not: str | None = None


class Judge:
    """Judges one lane's answers; `stack` ends the process that it may start for it."""

    def __init__(self, settings: Settings, plain: Side, ours: Side, stack: ExitStack) -> None:
        self._settings, self._plain, self._ours, self._stack = settings, plain, ours, stack
        self._in_fp32: Side | None = None

    @property
    def against(self) -> str:
        """What our tokens are held against."""
        return PLAIN if self._right_is_plain else DEQUANTIZED

    @property
    def _right_is_plain(self) -> bool:
        return self._plain.lane != str(CPU_NF4) or self._plain.facts.compute_dtype == "float32"

    @property
    def _on_cpu(self) -> bool:
        return self._plain.lane.startswith("cpu")

    def right(self, request: Request, plain_ids: tuple[int, ...] = ()) -> tuple[int, ...]:
        """The ids that an answer must have; `plain_ids` are plain's, where they are known. Raises InferenceError where there is no room for what gives them."""
        if self._right_is_plain:
            return plain_ids or self._plain.ask(request).token_ids
        return self._fp32.ask(request).token_ids

    def fork(self, request: Request, right: tuple[int, ...], ours: tuple[int, ...]) -> Fork | None:
        """Where `ours` parts from the `right` ids; None where they are equal."""
        index = first_difference(right, ours)
        if index is None:
            return None
        at = min(index, len(right) - 1)
        fork = self._fp32_fork(request, right, at) if self._on_cpu else self._rounded_fork(request, right, at)
        ended = index >= min(len(right), len(ours))  # one of them, where the other goes on: no rounding does that, as an end mark is an id too
        return replace(fork, rounding=False, why_not=None) if ended else fork

    def _fp32_fork(self, request: Request, right: tuple[int, ...], index: int) -> Fork:
        side, ids = self._plain if self._right_is_plain else self._fp32, right[: index + 1]
        there = side.logits(request, ids)[-1]
        difference = float(np.abs(there - self._ours.logits(request, ids)[-1]).max())
        part = side.best_of_all_at_once(request, right, index) != right[index]
        margin = _margin(there)
        return Fork(index, margin, difference, plain_ways_part=part, rounding=margin < MOST_MARGIN and part)

    def _rounded_fork(self, request: Request, right: tuple[int, ...], index: int) -> Fork:
        plain, ours = (side.logits(request, right) for side in (self._plain, self._ours))
        fork = Fork(index, _margin(plain[index]), float(np.abs(plain[index] - ours[index]).max()))
        try:
            exact = self._fp32.logits(request, right)
        except InferenceError as error:
            return replace(fork, why_not=str(error))
        distances = _distance(ours, exact), _distance(plain, exact)
        rounding = fork.margin < fork.ways_difference and distances[0] <= MOST_DISTANCE * distances[1]
        return replace(fork, distance_ours=distances[0], distance_plain=distances[1], rounding=rounding)

    @property
    def _fp32(self) -> Side:
        """`generate` in FP32 over the weights that the lane holds; its process is started when it is needed first."""
        if self._in_fp32 is None:
            side = Side(Engine(self._settings, partial(start_plain_worker, way="dequantized")), self._plain.lane, [])
            self._stack.enter_context(side.engine)
            self._in_fp32 = side
        return self._in_fp32


def _margin(logits: np.ndarray) -> float:
    second, best = np.partition(logits, -2)[-2:]
    return float(best - second)


def _distance(left: np.ndarray, right: np.ndarray) -> float:
    """Root mean square of the differences, row by row, so that no third array of that size is made."""
    return float(np.sqrt(np.mean([np.mean(np.square(a - b, dtype=np.float64)) for a, b in zip(left, right, strict=True)])))
