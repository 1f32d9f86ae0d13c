"""One step of a model through our own kernels: up to 32 token rows in, their last hidden rows (or the next id) out.

In: a `PackedModel`, the `StepMemory` with its cache, ids, and the position on the device. Knows no graphs, no text, no host reads:
everything it launches goes to the current stream and can be captured. Weights are multiplied as they are stored (at one row that is
the decode step); more rows than 32 are `prefill.py`'s.
Measured: one block on each multiprocessor with its tiles' K shared among 16 warps beats more, smaller blocks by a quarter; our logits are
nearer to float32 arithmetic than the plain model's (0.045 against 0.052 of their size), because codes and scales aren't rounded together.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from inference.cuda.codes import code_table
from inference.cuda.kernels import Launcher
from inference.cuda.memory import StepMemory
from inference.cuda.packed import Group, PackedModel

MOST_NARROW_ROWS = 32
SPLITS = 16
_MOST_WARPS = {1: 16, 2: 16, 4: 12}  # as the kernels' launch bounds say
_TABLE_BYTES = 256 * 32 * 4


@dataclass(frozen=True)
class Plan:
    """How a matrix is shared out: K in `chunks`, `per_block` tiles a block, each by `slices` warps."""

    blocks: int
    chunks: int
    per_block: int
    slices: int


@functools.cache
def plan_matmul(tiles: int, units: int, width: int, gated: bool, multiprocessors: int, shared_limit: int) -> Plan:
    """The plan that keeps all multiprocessors equally busy with one block each; `width` is the rows of x in eights, K has `units`."""
    most_warps = min(_MOST_WARPS[width], shared_limit // (width * 512 * (1 + gated)))
    plans = []
    for chunks in (1,) if gated else range(1, min(8, units) + 1):
        per_block = min(-(-tiles * chunks // multiprocessors), most_warps)
        blocks = -(-tiles * chunks // per_block)
        idle = -(-blocks // multiprocessors) * per_block * multiprocessors / (tiles * chunks)
        slices = max(1, min(most_warps // per_block, units // chunks))
        plans.append((idle * (1 + 0.04 * chunks), Plan(blocks, chunks, per_block, slices)))
    return min(plans, key=lambda plan: plan[0])[1]


class Codes:
    """The table by which a 4-bit product decodes: `table` for the kernels, `unscale` the factor of its results, `values` the 16 codes."""

    def __init__(self, packed: PackedModel, device: torch.device) -> None:
        self.values = torch.tensor(packed.codes or (0.0,) * 16, dtype=torch.float32, device=device)
        self.table, self.unscale = self.values, 1.0
        if packed.codes and not packed.wide:
            pairs, self.unscale = code_table(packed.codes)
            self.table = torch.tensor([p - (1 << 32) if p >> 31 else p for p in pairs], dtype=torch.int32, device=device)


class Room:
    """The activations of up to 32 rows."""

    def __init__(self, packed: PackedModel, device: torch.device) -> None:
        p, t = packed.parts, MOST_NARROW_ROWS

        def make(columns: int, dtype: torch.dtype = p.final_norm.dtype) -> Tensor:
            return torch.zeros((t, columns), dtype=dtype, device=device)

        layer = packed.layers[0]
        self.stream, self.x, self.inner = make(p.hidden), make(p.hidden), make(layer.parts.gate.rows)
        self.queries, self.answers = make(p.q_heads * p.head_dim), make(p.q_heads * p.head_dim)
        self.sums = make(8 * max(layer.qkv.rows, p.hidden), torch.float32)


class FusedStep:
    """A model's step; the same for every architecture that `pack` accepts."""

    def __init__(self, packed: PackedModel, memory: StepMemory, launcher: Launcher) -> None:
        p = self.parts = packed.parts
        self.packed, self.memory, self._launcher = packed, memory, launcher
        self.device = device = p.device
        self.codes = Codes(packed, device)
        vocabulary = p.head.rows
        self.logits = torch.zeros(vocabulary, dtype=torch.float32, device=device)
        self._head_blocks = -(-vocabulary // 32)
        self._best = torch.zeros(self._head_blocks, dtype=torch.float32, device=device)
        self._best_index = torch.zeros(self._head_blocks, dtype=torch.int32, device=device)
        self._scratch = torch.zeros(p.q_heads * SPLITS * (p.head_dim + 2), dtype=torch.float32, device=device)
        self._arrived = torch.zeros(p.q_heads, dtype=torch.int32, device=device)
        self._room = Room(packed, device)
        self._norm_threads = min(1024, -(-p.hidden // 128) * 32)

    def hidden(self, ids: Tensor) -> Tensor:
        """Run ids [T <= 32] at the memory's position and after, and return their normed last hidden rows [T, hidden]; the position stays."""
        t, room, layers = ids.shape[0], self._room, self.packed.layers
        self.embed(ids, room.stream)
        self._norm(room, t, 0, None, layers[0].parts.before_attention)
        for index, layer in enumerate(layers):
            self._attention(room, t, index)
            chunks = self._sums(t, room.answers, layer.o)
            self._norm(room, t, chunks, layer.parts.after_attention, layer.parts.before_mlp)
            self._matmul("gated", layer.gated, t, room.x, room.inner, layer.gated.rows // 2)
            chunks = self._sums(t, room.inner, layer.down)
            following = layers[index + 1].parts.before_attention if index + 1 < len(layers) else self.parts.final_norm
            self._norm(room, t, chunks, layer.parts.after_mlp, following)
        return room.x[:t]

    def embed(self, ids: Tensor, stream: Tensor) -> None:
        """The rows of ids [T] into the first T of `stream`."""
        p = self.parts
        rows = p.embed(ids[None])[0]
        stream[: ids.shape[0]].copy_(rows if p.embed_scale == 1 else rows * p.embed_scale)

    @property
    def narrow_rows(self) -> Tensor:
        """Where `hidden` leaves its rows."""
        return self._room.x

    def head(self, row: Tensor) -> None:
        """Logits of one hidden row [hidden] into `logits`, and the candidates for `take_best`."""
        head = self.parts.head
        self._launcher.launch(
            "head_logits", (self._head_blocks,), 256, 0, head.weight, head.bias, row, self.logits, self._best, self._best_index, head.rows, head.columns
        )

    def take_best(self) -> None:
        """The best id into the memory's token, position + 1, and into the history at the new position (-1: the logits are no numbers)."""
        self._launcher.launch("take_best", (1,), 1024, 0, self._best, self._best_index, self._head_blocks, self.memory.words)

    def take_given(self, chosen: Tensor) -> None:
        """As `take_best`, for an id chosen elsewhere (int64 [1])."""
        self._launcher.launch("take_given", (1,), 1, 0, chosen, self.memory.words)

    def _norm(self, room: Room, t: int, chunks: int, after: Tensor | None, before: Tensor | None) -> None:
        p = self.parts
        self._launcher.launch("add_and_norm", (t,), self._norm_threads, 0, room.sums, chunks, None, after, room.stream, before, room.x, p.hidden, p.norm.eps)

    def _sums(self, t: int, x: Tensor, group: Group) -> int:
        """x [T, columns] times matrices side by side into the room's sums [chunks, T, rows] float32; returns chunks."""
        return self._matmul("parts", group, t, x, self._room.sums, group.rows)

    def _matmul(self, kind: str, group: Group, t: int, x: Tensor, out: Tensor, rows: int) -> int:
        width = next(w for w in (1, 2, 4) if t <= 8 * w)
        device, gated = self._launcher, kind == "gated"
        units = -(-group.columns // (128 if self.packed.codes else 64))
        plan = plan_matmul(rows // 16, units, width, gated, device.multiprocessors, device.shared_limit)
        threads = plan.per_block * plan.slices * 32
        shared = max(_TABLE_BYTES if self.packed.codes else 0, threads // 32 * width * 512 * (1 + gated))
        device.launch(f"{kind}_{width}", (plan.blocks,), threads, shared, group.argument, self.codes.table, self.codes.unscale, x, out, rows,
                      group.columns, t, plan.chunks, plan.per_block, plan.slices)  # fmt: skip
        return plan.chunks

    def _attention(self, room: Room, t: int, index: int) -> None:
        p, layer, launch, words = self.parts, self.packed.layers[index], self._launcher.launch, self.memory.words
        of, kind = layer.parts, self.memory.kind(layer.parts.rotary)
        chunks = self._sums(t, room.x, layer.qkv)
        norms = (of.q_norm, of.k_norm, p.norm.eps)
        if t > 1:
            heads = p.q_heads + 2 * p.kv_heads
            launch("place_rows", (heads, -(-t // 4)), 128, 0, room.sums, None, chunks, *norms, room.queries, words, index, kind, t)
        launch("attend", (SPLITS if t == 1 else 1, p.q_heads, t), 512, 0, None if t > 1 else room.sums, chunks, *norms, room.queries, words, index, kind,
               of.window, p.attention_scale, self._scratch, self._arrived, room.answers)  # fmt: skip
