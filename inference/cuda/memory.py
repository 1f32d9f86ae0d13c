"""The cache, rotary tables and the few counters of a decode step, and the 14 words that tell kernels where they are.

In: a model's parts and how many positions to hold. The cache can change its size between prompts: `hold` rewrites the words, and
captured graphs, which know only the words' own address, go on working. Knows no kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inference.parts.description import ModelParts, NotUnderstood
from inference.parts.forms import rotary_tables

MOST_KINDS = 4


class StepMemory:
    """`keys`, `values` [layers, kv_heads, rows, head_dim] in the model's dtype; `token`, `position`, `history` as the kernels leave them."""

    def __init__(self, parts: ModelParts, rows: int) -> None:
        """Holds `rows` positions. Raises NotUnderstood for more than four kinds of rotary tables."""
        self._parts, device = parts, parts.device
        self.kinds = tuple(sorted({layer.rotary for layer in parts.layers if layer.rotary is not None}))
        if len(self.kinds) > MOST_KINDS:
            raise NotUnderstood(f"it has {len(self.kinds)} kinds of rotary tables")
        self.dtype = parts.final_norm.dtype
        self.token, self.position = torch.zeros(1, dtype=torch.int64, device=device), torch.zeros(1, dtype=torch.int32, device=device)
        self.words = torch.zeros(6 + 2 * MOST_KINDS, dtype=torch.int64, device=device)
        self.keys = self.values = self.history = torch.empty(0)
        self.tables: dict[str, tuple[Tensor, Tensor]] = {}
        self.hold(rows)

    def kind(self, rotary: str | None) -> int:
        """A layer's number of tables for the kernels; -1 where it is not rotated."""
        return -1 if rotary is None else self.kinds.index(rotary)

    def hold(self, rows: int) -> None:
        """Hold `rows` positions from now on, with nothing in them; what was held is given up first."""
        self.let_go()
        p, device = self._parts, self.token.device
        shape = (len(p.layers), p.kv_heads, rows, p.head_dim)
        self.keys, self.values = (torch.zeros(shape, dtype=self.dtype, device=device) for _ in range(2))
        self.history = torch.zeros(rows + 1, dtype=torch.int64, pin_memory=device.type == "cuda")
        self.tables = {kind: (cos.to(self.dtype), sin.to(self.dtype)) for kind, (cos, sin) in rotary_tables(p, rows).items()}
        cos, sin = ([self.tables[kind][which].data_ptr() for kind in self.kinds] for which in range(2))
        blank = [0] * (MOST_KINDS - len(self.kinds))
        words = [self.keys.data_ptr(), self.values.data_ptr(), *cos, *blank, *sin, *blank]
        words += [self.history.data_ptr(), self.token.data_ptr(), self.position.data_ptr(), rows]
        self.words.copy_(torch.tensor(words, dtype=torch.int64))
        self.rows = rows

    def let_go(self) -> None:
        """Hold nothing; no step may run before `hold`."""
        self.rows = 0
        self.keys = self.values = torch.empty(0)
        self.tables = {}


def bytes_for(parts: ModelParts, rows: int) -> int:
    """What `rows` positions take: keys, values and rotary tables."""
    kinds = len({layer.rotary for layer in parts.layers if layer.rotary is not None})
    values = 2 * len(parts.layers) * parts.kv_heads * parts.head_dim + 2 * kinds * parts.rotated
    return rows * values * parts.final_norm.element_size()
