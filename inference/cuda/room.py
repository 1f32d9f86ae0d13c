"""How many positions the cache of the captured path holds: a few at rest, more when a run needs them, as far as the card has memory.

In: a description, the model's own context, what a run wants. Out: sizes, and why a run has no room. A cache is empty between runs, so nothing is
copied: the old one is given back first.
"""

from __future__ import annotations

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
        self._parts, self._most = parts, context_length
        self.rows = self._at_rest = min(at_rest, context_length)

    def why_not(self, wanted: int) -> str | None:
        """Why `wanted` positions can't be had: the model's context, or the card's memory."""
        if wanted <= self.rows:
            return None
        if wanted > self._most:
            return f"{wanted:,} tokens (prompt, and answer at most) pass the model's context of {self._most:,}"
        needed, free = bytes_for(self._parts, wanted + MOST_NARROW_ROWS), self._free()
        return None if needed <= free else f"{wanted:,} tokens need {size(needed)} of cache; {size(max(0, free))} are free"

    def must_grow(self, wanted: int) -> bool:
        """Whether a run of `wanted` positions needs a larger cache, and can have it."""
        return wanted > self.rows and self.why_not(wanted) is None

    def grow(self, memory: StepMemory, wanted: int) -> None:
        """Twice today's positions, or as many doublings as `wanted` needs, the model's context and the card's memory at most."""
        rows = self.rows
        while rows < wanted:
            rows *= 2
        rows = min(rows, self._most)
        if bytes_for(self._parts, rows + MOST_NARROW_ROWS) > self._free():
            rows = wanted
        try:
            self._hold(memory, rows)
        except torch.cuda.OutOfMemoryError:  # another process was faster: back to what was there
            self._hold(memory, self._at_rest)

    def shrink(self, memory: StepMemory) -> bool:
        """Back to the positions at rest; False where it holds no more."""
        if self.rows == self._at_rest:
            return False
        self._hold(memory, self._at_rest)
        return True

    def _hold(self, memory: StepMemory, rows: int) -> None:
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
