"""How many positions the cache of the captured path holds: a few at rest, more when a run needs them, as far as the card has memory.

In: a description, the model's own context, what a run wants. Out: sizes, and why a run has no room. A cache is empty between runs, so nothing is
copied: the old one is given back first.
"""

from __future__ import annotations

import contextlib

import torch

from inference.cuda.memory import StepMemory, bytes_for
from inference.cuda.step import MOST_NARROW_ROWS
from inference.parts.description import ModelParts
from inference.units import size

AT_REST = 2304
MARGIN_BYTES = 768 << 20  # what a long prompt's activations and decoded weights take beside the cache


class CacheRoom:
    """The sizes of one decoder's cache; `rows` are those that a run may use."""

    def __init__(self, parts: ModelParts, context_length: int, at_rest: int = AT_REST) -> None:
        self._parts, self._most = parts, min(context_length, parts.most or context_length)
        self.rows = self._at_rest = min(at_rest, self._most)

    def why_not(self, wanted: int) -> str | None:
        """Why a run can't have `wanted` positions of what is held: the model's context, the card's memory, or growing has failed."""
        if wanted <= self.rows:
            return None
        return self._why_never(wanted) or f"the cache holds {self.rows:,} positions, and the card had no room for {wanted:,} when it was to grow"

    def must_grow(self, wanted: int) -> bool:
        """Whether a run of `wanted` positions needs a larger cache, and may have it."""
        return wanted > self.rows and self._why_never(wanted) is None

    def grow(self, memory: StepMemory, wanted: int) -> None:
        """Twice today's positions, or as many doublings as `wanted` needs, the model's context and the card's memory at most.

        Where another process is faster: back to those at rest; where even they are gone, none, and `why_not` says so.
        """
        rows = max(self.rows, self._at_rest)  # none are held where growing failed before
        while rows < wanted:
            rows *= 2
        rows = min(rows, self._most)
        if bytes_for(self._parts, rows + MOST_NARROW_ROWS) > self._free():
            rows = wanted
        self._hold_one(memory, rows, self._at_rest)

    def shrink(self, memory: StepMemory) -> bool:
        """Back to the positions at rest; False where it holds no more than those."""
        if self.rows <= self._at_rest:
            return False
        self._hold_one(memory, self._at_rest)
        return True

    def _hold_one(self, memory: StepMemory, *sizes: int) -> None:
        """The first of `sizes` that the card has room for."""
        for rows in sizes:
            with contextlib.suppress(torch.cuda.OutOfMemoryError):
                self._hold(memory, rows)
                return
        memory.let_go()

    def _why_never(self, wanted: int) -> str | None:
        if reason := self._parts.why_not(wanted):
            return reason
        if wanted > self._most:
            return f"{wanted:,} tokens (prompt, and answer at most) pass the model's context of {self._most:,}"
        needed, free = bytes_for(self._parts, wanted + MOST_NARROW_ROWS), self._free()
        return None if needed <= free else f"{wanted:,} tokens need {size(needed)} of cache; {size(max(0, free))} are free"

    def _hold(self, memory: StepMemory, rows: int) -> None:
        if self._parts.device.type == "cuda":
            torch.cuda.synchronize(self._parts.device)  # a stopped run's last step may still write to the history, which the host frees at once
        memory.let_go()
        self.rows = 0
        if self._parts.device.type == "cuda":
            torch.cuda.empty_cache()  # the old one back to the card, or the new one may not fit beside it
        memory.hold(rows + MOST_NARROW_ROWS)
        self.rows = rows

    def _free(self) -> int:
        """Bytes that a new cache could take: what the card and torch have free, and the old one, less the margin."""
        device = self._parts.device
        free, _ = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free) + int(unused) + bytes_for(self._parts, self.rows + MOST_NARROW_ROWS) - MARGIN_BYTES
