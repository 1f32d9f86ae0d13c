"""One step of a 4-bit model through our own kernels: T token rows in, their last hidden rows (or the next id) out.

In: `ModelParts`, a K/V cache of `rows` positions that it owns, ids, and the position on the device. Knows no graphs, no text, no
host reads: everything it launches goes to the current stream and can be captured. Up to 32 rows the 4-bit weights are multiplied
as they are (at one row that is the decode step); beyond, they are decoded and go through torch's matrix product.
Measured: one block on each multiprocessor with its tiles' K shared among 16 warps beats more, smaller blocks by a quarter; our logits are
nearer to float32 arithmetic than the plain model's (0.045 against 0.052 of their size), because codes and scales aren't rounded together.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from inference.cuda.parts import LayerParts, ModelParts, Packed, rotary_tables

MOST_NARROW_ROWS = 32
SPLITS = 16
_MOST_WARPS = {1: 16, 2: 16, 4: 12}  # as the kernels' launch bounds say
_TABLE_BYTES = 256 * 32 * 4


class Launcher(Protocol):
    """What `DeviceCode` offers; the tests have one that runs the kernels on the CPU."""

    multiprocessors: int
    shared_limit: int

    def launch(self, name: str, grid: Any, threads: int, shared_bytes: int, *arguments: Any) -> None: ...


class _Weights(ctypes.Structure):
    _fields_ = [("codes", ctypes.c_void_p * 3), ("scales", ctypes.c_void_p * 3), ("rows", ctypes.c_int * 2)]


@dataclass(frozen=True)
class Plan:
    """How a matrix is shared out: K in `chunks`, `per_block` tiles a block, each by `slices` warps."""

    blocks: int
    chunks: int
    per_block: int
    slices: int


@functools.cache
def plan_matmul(tiles: int, scale_blocks: int, width: int, gated: bool, multiprocessors: int, shared_limit: int) -> Plan:
    """The plan that keeps all multiprocessors equally busy with one block each; `width` is the rows of x in eights."""
    most_warps = min(_MOST_WARPS[width], shared_limit // (width * 512 * (1 + gated)))
    plans = []
    for chunks in (1,) if gated else range(1, min(8, -(-scale_blocks // 2)) + 1):
        per_block = min(-(-tiles * chunks // multiprocessors), most_warps)
        blocks = -(-tiles * chunks // per_block)
        idle = -(-blocks // multiprocessors) * per_block * multiprocessors / (tiles * chunks)
        slices = max(1, min(most_warps // per_block, -(-scale_blocks // 2) // chunks))
        plans.append((idle * (1 + 0.04 * chunks), Plan(blocks, chunks, per_block, slices)))
    return min(plans, key=lambda plan: plan[0])[1]


def code_table(code: tuple[float, ...]) -> tuple[list[int], float]:
    """For each byte its two codes as a pair of bfloat16 bits, first code low, and the factor that undoes their scaling.

    The codes are first multiplied by the factor between 1 and 2 at which bfloat16 holds them best: exact scaling costs nothing.
    """
    values = torch.tensor(code, dtype=torch.float64)
    factors = torch.linspace(1, 2, 4097, dtype=torch.float64)[:-1]
    scaled = factors[:, None] * values
    errors = ((scaled.to(torch.bfloat16).double() - scaled) / factors[:, None]).pow(2).sum(1)
    factor = float(factors[errors.argmin()])
    bits = [int(b) & 0xFFFF for b in (values * factor).to(torch.bfloat16).view(torch.int16)]
    return [bits[byte >> 4] | bits[byte & 15] << 16 for byte in range(256)], 1 / factor


class Room:
    """The activations of up to `t` rows."""

    def __init__(self, parts: ModelParts, t: int, device: torch.device) -> None:
        def make(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        width = (parts.q_heads + 2 * parts.kv_heads) * parts.head_dim
        self.stream, self.x = make(t, parts.hidden), make(t, parts.hidden)
        self.inner = make(t, parts.layers[0].gate.rows)
        self.queries, self.answers = make(t, parts.q_heads * parts.head_dim), make(t, parts.q_heads * parts.head_dim)
        chunks = 8 if t <= MOST_NARROW_ROWS else 1
        self.sums = make(chunks * t * max(width, parts.hidden), dtype=torch.float32)
        self._masks: dict[int, Tensor] = {}

    def mask(self, start: int, window: int) -> Tensor:
        """Which of the keys 0 ... start + t - 1 each row sees, bool [t, start + t]; kept for the next layer."""
        if window not in self._masks:
            t, device = self.x.shape[0], self.x.device
            back = torch.arange(start, start + t, device=device)[:, None] - torch.arange(start + t, device=device)
            self._masks[window] = (back >= 0) & (back < window) if window else back >= 0
        return self._masks[window]


class FusedStep:
    """A model's step with its cache; the same for every architecture that `read_parts` accepts."""

    def __init__(self, parts: ModelParts, launcher: Launcher, rows: int) -> None:
        """`rows`: positions in the cache."""
        self.parts, self.rows, self._launcher = parts, rows, launcher
        self.device = device = parts.head.device
        pairs, self._unscale = code_table(parts.code)
        self._pairs = torch.tensor([p - (1 << 32) if p >> 31 else p for p in pairs], dtype=torch.int32, device=device)
        self._tables = rotary_tables(parts, rows)
        shape = (len(parts.layers), 2, parts.kv_heads, rows, parts.head_dim)
        self.cache = torch.zeros(shape, dtype=torch.bfloat16, device=device)
        self.position = torch.zeros(1, dtype=torch.int32, device=device)
        self.token = torch.zeros(1, dtype=torch.int64, device=device)
        self.logits = torch.zeros(parts.head.shape[0], dtype=torch.float32, device=device)
        self._head_blocks = -(-parts.head.shape[0] // 32)
        self._best = torch.zeros(self._head_blocks, dtype=torch.float32, device=device)
        self._best_index = torch.zeros(self._head_blocks, dtype=torch.int32, device=device)
        self._scratch = torch.zeros(parts.q_heads * SPLITS * (parts.head_dim + 2), dtype=torch.float32, device=device)
        self._arrived = torch.zeros(parts.q_heads, dtype=torch.int32, device=device)
        self._room = Room(parts, MOST_NARROW_ROWS, device)
        self._norm_threads = min(1024, -(-parts.hidden // 128) * 32)

    def hidden(self, ids: Tensor, start: int = 0) -> Tensor:
        """Run ids [T] at `position`, `position` + 1, ... and return their normed last hidden rows [T, hidden]; `position` stays.

        More than 32 rows need the position as `start` too, and are not meant to be captured.
        """
        t = ids.shape[0]
        room = self._room if t <= MOST_NARROW_ROWS else Room(self.parts, t, self.device)
        room.stream[:t].copy_(self.parts.embed(ids[None])[0])
        layers = self.parts.layers
        self._norm(room, t, 0, None, layers[0].before_attention)
        for index, layer in enumerate(layers):
            self._attention(room, t, start, index, layer)
            chunks = self._sums(room, t, room.answers, (layer.o,))
            self._norm(room, t, chunks, layer.after_attention, layer.before_mlp)
            self._gated(room, t, layer)
            chunks = self._sums(room, t, room.inner, (layer.down,))
            following = layers[index + 1].before_attention if index + 1 < len(layers) else self.parts.final_norm
            self._norm(room, t, chunks, layer.after_mlp, following)
        return room.x[:t]

    @property
    def narrow_rows(self) -> Tensor:
        """Where `hidden` leaves its rows when there are at most 32."""
        return self._room.x

    def head(self, row: Tensor) -> None:
        """Logits of one hidden row [hidden] into `logits`, and the candidates for `take_best`."""
        head = self.parts.head
        self._launcher.launch("head_logits", (self._head_blocks,), 256, 0, head, row, self.logits, self._best, self._best_index, head.shape[0], head.shape[1])

    def take_best(self, history: Tensor) -> None:
        """The best id into `token`, `position` + 1, and `history` [rows + 1] (int64, device or pinned) at the new position."""
        self._launcher.launch("take_best", (1,), 1024, 0, self._best, self._best_index, self._head_blocks, self.token, self.position, history)

    def take_given(self, chosen: Tensor, history: Tensor) -> None:
        """As `take_best`, for an id chosen elsewhere (int64 [1])."""
        self._launcher.launch("take_given", (1,), 1, 0, chosen, self.token, self.position, history)

    def _norm(self, room: Room, t: int, chunks: int, after: Tensor | None, before: Tensor) -> None:
        p = self.parts
        self._launcher.launch("add_and_norm", (t,), self._norm_threads, 0, room.sums, chunks, after, room.stream, before, room.x, p.hidden, p.eps)

    def _sums(self, room: Room, t: int, x: Tensor, matrices: tuple[Packed, ...]) -> int:
        """x [T, columns] times matrices side by side into `room.sums` [chunks, T, rows] float32; returns chunks."""
        rows = sum(matrix.rows for matrix in matrices)
        if t > MOST_NARROW_ROWS:
            out = room.sums[: t * rows].view(t, rows)
            out.copy_(torch.cat([F.linear(x, decoded(matrix)) for matrix in matrices], -1) if len(matrices) > 1 else F.linear(x, decoded(matrices[0])))
            return 1
        return self._matmul("parts", matrices, t, x, room.sums, rows)

    def _gated(self, room: Room, t: int, layer: LayerParts) -> None:
        if t > MOST_NARROW_ROWS:
            gate = _ACTIVATE[self.parts.activation](F.linear(room.x, decoded(layer.gate)))
            torch.mul(gate, F.linear(room.x, decoded(layer.up)), out=room.inner)
        else:
            self._matmul("gated", (layer.gate, layer.up), t, room.x, room.inner, layer.gate.rows)

    def _matmul(self, kind: str, matrices: tuple[Packed, ...], t: int, x: Tensor, out: Tensor, rows: int) -> int:
        width = next(w for w in (1, 2, 4) if t <= 8 * w)
        columns, device = matrices[0].columns, self._launcher
        plan = plan_matmul(rows // 16, columns // 64, width, kind == "gated", device.multiprocessors, device.shared_limit)
        threads = plan.per_block * plan.slices * 32
        shared = max(_TABLE_BYTES, threads // 32 * width * 512 * (1 + (kind == "gated")))
        device.launch(f"{kind}_{width}", (plan.blocks,), threads, shared, _weights(matrices), self._pairs, self._unscale, x, out, rows, columns, t,
                      plan.chunks, plan.per_block, plan.slices)  # fmt: skip
        return plan.chunks

    def _attention(self, room: Room, t: int, start: int, index: int, layer: LayerParts) -> None:
        p, launch = self.parts, self._launcher.launch
        keys, values = self.cache[index, 0], self.cache[index, 1]
        cos, sin = self._tables[layer.kind]
        chunks = self._sums(room, t, room.x, layer.qkv)
        projection = (chunks, layer.qkv_bias, layer.q_norm, layer.k_norm, p.eps, cos, sin)
        if t > 1:
            launch("place_rows", (p.q_heads + 2 * p.kv_heads, t), 32, 0, room.sums, *projection, room.queries, keys, values, self.rows, self.position)
        if t > MOST_NARROW_ROWS:
            end, shape, repeats = start + t, (t, p.q_heads, p.head_dim), p.q_heads // p.kv_heads
            seen = [part[None, :, :end].repeat_interleave(repeats, 1) for part in (keys, values)]
            answers = F.scaled_dot_product_attention(
                room.queries.view(shape).transpose(0, 1)[None], *seen, attn_mask=room.mask(start, layer.window), scale=p.scaling
            )
            room.answers.view(shape).copy_(answers[0].transpose(0, 1))
        else:
            launch("attend", (SPLITS if t == 1 else 1, p.q_heads, t), 512, 0, None if t > 1 else room.sums, *projection, room.queries, keys, values,
                   self.rows, self.position, layer.window, p.scaling, self._scratch, self._arrived, room.answers)  # fmt: skip


_ACTIVATE = (F.silu, functools.partial(F.gelu, approximate="tanh"), F.gelu)


def kernel_source() -> str:
    """The CUDA source of all kernels."""
    folder = Path(__file__).parent
    return "".join((folder / name).read_text() for name in ("decode.cu", "attention.cu"))


def kernel_macros(parts: ModelParts) -> dict[str, object]:
    """What `kernel_source` must know of a model when it is compiled."""
    return macros(parts.head_dim, parts.q_heads, parts.kv_heads, parts.norm_offset, parts.norm_rounds, parts.activation)


def macros(head_dim: int, q_heads: int, kv_heads: int, norm_offset: int, norm_rounds: int, activation: int) -> dict[str, object]:
    """The same, from the numbers themselves (`ModelParts`)."""
    return {
        "HEAD_DIM": head_dim, "Q_HEADS": q_heads, "KV_HEADS": kv_heads, "NORM_OFFSET": f"{norm_offset}.f",
        "NORM_ROUNDS": norm_rounds, "ACTIVATION": activation,
    }  # fmt: skip


def decoded(matrix: Packed) -> Tensor:
    """The matrix in bfloat16, as bitsandbytes decodes it."""
    from bitsandbytes.functional import dequantize_4bit

    return dequantize_4bit(matrix.module.weight.data, matrix.module.weight.quant_state).to(torch.bfloat16)


def _weights(matrices: tuple[Packed, ...]) -> _Weights:
    weights = _Weights()
    for index, matrix in enumerate(matrices):
        weights.codes[index], weights.scales[index] = matrix.codes.data_ptr(), matrix.scales.data_ptr()
        if index < 2:
            weights.rows[index] = matrix.rows
    for index in range(len(matrices), 3):
        weights.codes[index], weights.scales[index] = weights.codes[0], weights.scales[0]
        weights.rows[min(index, 1)] = 1 << 30
    if len(matrices) == 1:
        weights.rows[0] = 1 << 30
    return weights
