"""Many rows of a prompt at once: weights decoded piece by piece for torch's matrix product, our own kernels for the rest.

In: a `FusedStep` with its memory, ids and where they stand. Out: the last id's hidden row, the cache filled. Takes memory while it runs and
none after. Is not captured, so the host must keep ahead of the device: launches are prepared once, and a prompt only changes the
few cells that they share. Chunks are as long as they may be, since weights are decoded once for each.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from inference.cuda.kernels import Launcher, Ready
from inference.cuda.memory import StepMemory
from inference.cuda.packed import Group, PackedLayer, PackedModel
from inference.cuda.step import FusedStep
from inference.parts.description import ModelParts

WIDE_ROWS = 2048
SCRATCH_BYTES = 64 << 20  # of decoded weights at one time
_TILE = {torch.bfloat16: (64, 128, 3 * 64 * 2), torch.float32: (16, 256, 0)}  # rows, threads and shared bytes for each column of `attend_rows`
_NORM_COLUMNS = 512  # a warp's in `add_and_norm`: with many rows in flight, fewer and busier threads a row
_POINTERS = ("stream", "x", "sums", "queries", "answers", "both", "inner", "scratch")


class _Cells:
    """What the prepared launches of all layers share, and a prompt changes: where its activations are, and how many rows it has."""

    def __init__(self) -> None:
        self.pointers = {name: ctypes.c_void_p() for name in _POINTERS}
        self.rows, self.items = ctypes.c_int(), ctypes.c_int()


@dataclass(frozen=True)
class _Piece:
    """Some rows of a product: decoded by a launch into the scratch, or a matrix as it is stored, turned; and their bias."""

    decode: Ready | None
    weight: Tensor | None
    bias: Tensor | None


@dataclass(frozen=True)
class _Layer:
    """One layer's launches and products, in their order."""

    qkv: tuple[_Piece, ...]
    place: Ready
    attend: Ready
    o: tuple[_Piece, ...]
    between: Ready
    gated: tuple[_Piece, ...]
    gate: Ready
    down: tuple[_Piece, ...]
    after: Ready

    def decodes(self) -> list[Ready]:
        """The launches that decode."""
        return [piece.decode for group in (self.qkv, self.o, self.gated, self.down) for piece in group if piece.decode]


class Prefill:
    """The wide way through a model, chunk by chunk."""

    def __init__(self, step: FusedStep, launcher: Launcher, scratch_bytes: int = SCRATCH_BYTES) -> None:
        self._step, self._launcher, self._cells = step, launcher, _Cells()
        self._dtype = step.parts.final_norm.dtype
        self._scratch_values = _scratch_values(step.packed, scratch_bytes)
        self._norm_threads = min(1024, -(-step.parts.hidden // _NORM_COLUMNS) * 32)
        layers = step.packed.layers
        self._first = self._norm(None, layers[0].parts.before_attention, adds=False)
        self._layers = [self._prepared(index, layer) for index, layer in enumerate(layers)]

    @torch.inference_mode()
    def row(self, ids: Tensor, start: int) -> Tensor:
        """Run ids [T] at `start` and after; the last one's normed hidden row [hidden]."""
        step, t = self._step, ids.shape[0]
        step.memory.position.fill_(start)
        room = self._room(t)
        self._place(room, t)
        products = self._products(room)
        step.embed(ids, room["stream"])
        self._first()
        for layer in self._layers:
            _multiply(room["x"], layer.qkv, products["qkv"])
            layer.place()
            layer.attend()
            _multiply(room["answers"], layer.o, products["o"])
            layer.between()
            _multiply(room["x"], layer.gated, products["gated"])
            layer.gate()
            _multiply(room["inner"], layer.down, products["down"])
            layer.after()
        return room["x"][-1]

    # ---- for each prompt

    def _room(self, t: int) -> dict[str, Tensor]:
        p, layer = self._step.parts, self._step.packed.layers[0]
        inner = layer.gated.rows // 2
        columns = {"stream": p.hidden, "x": p.hidden, "sums": max(layer.qkv.rows, p.hidden), "queries": layer.parts.q.rows,
                   "answers": layer.parts.q.rows, "both": 2 * inner, "inner": inner}  # fmt: skip
        room = {name: torch.empty((t, width), dtype=self._dtype, device=self._step.device) for name, width in columns.items()}
        return room | {"scratch": torch.empty(self._scratch_values, dtype=self._dtype, device=self._step.device)}

    def _place(self, room: dict[str, Tensor], t: int) -> None:
        """Where this prompt's activations are, and the grids of its rows."""
        p, cells, stream = self._step.parts, self._cells, self._launcher.stream()
        for name, tensor in room.items():
            cells.pointers[name].value = tensor.data_ptr()
        cells.rows.value, cells.items.value = t, room["inner"].numel() // 8
        heads, tiles = p.q_heads + 2 * p.kv_heads, -(-t // _TILE[self._dtype][0])
        self._first.at(t, 1, stream)
        for layer in self._layers:
            layer.place.at(heads, -(-t // 4), stream)
            layer.attend.at(tiles, p.q_heads, stream)
            layer.gate.at(-(-cells.items.value // 256), 1, stream)
            layer.between.at(t, 1, stream)
            layer.after.at(t, 1, stream)
            for decode in layer.decodes():
                decode.on(stream)

    def _products(self, room: dict[str, Tensor]) -> dict[str, list[tuple[Tensor, Tensor]]]:
        """For each kind of product its pieces: the turned matrix in the scratch, and the columns of the result."""
        layer, t, found = self._step.packed.layers[0], room["x"].shape[0], {}
        for name, group in (("qkv", layer.qkv), ("o", layer.o), ("gated", layer.gated), ("down", layer.down)):
            out = room["both"] if name == "gated" else room["sums"].view(-1)[: t * group.rows].view(t, group.rows)
            pieces = self._pieces(group)
            sizes = [(room["scratch"][: rows * group.columns].view(rows, group.columns).t() if self._scratch_values else out) for _, rows in pieces]
            found[name] = [(turned, out[:, first : first + rows]) for turned, (first, rows) in zip(sizes, pieces, strict=True)]
        return found

    # ---- once

    def _pieces(self, group: Group) -> list[tuple[int, int]]:
        """(first row, rows) of what is multiplied at a time: as much as the scratch holds, or each matrix as it is stored."""
        if self._step.packed.codes is None:
            starts = [sum(matrix.rows for matrix in group.matrices[:index]) for index in range(len(group.matrices))]
            return [(start, matrix.rows) for start, matrix in zip(starts, group.matrices, strict=True)]
        most = rows_at_once(self._scratch_values, group)
        return [(first, min(most, group.rows - first)) for first in range(0, group.rows, most)]

    def _prepared(self, index: int, layer: PackedLayer) -> _Layer:
        step, of, layers = self._step, layer.parts, self._step.packed.layers
        p, words, cells, prepare = step.parts, step.memory.words, self._cells, self._launcher.prepare
        at, rows = cells.pointers, cells.rows
        following = layers[index + 1].parts.before_attention if index + 1 < len(layers) else p.final_norm
        place = prepare("place_rows", 128, 0, None, at["sums"], 0, of.q_norm, of.k_norm, p.norm.eps, at["queries"], words, index,
                        step.memory.kind(of.rotary), rows)  # fmt: skip
        _, threads, shared = attention_launch(p, step.memory)
        attend = prepare("attend_rows", threads, shared, at["queries"], words, index, of.window, p.attention_scale, at["answers"], rows)
        gate = prepare("gate_rows", 256, 0, at["both"], at["inner"], layer.gated.rows // 2, cells.items)
        return _Layer(
            self._product(layer.qkv), place, attend, self._product(layer.o), self._norm(of.after_attention, of.before_mlp),
            self._product(layer.gated), gate, self._product(layer.down), self._norm(of.after_mlp, following),
        )  # fmt: skip

    def _norm(self, after: Tensor | None, before: Tensor | None, adds: bool = True) -> Ready:
        p, at = self._step.parts, self._cells.pointers
        sums = at["sums"] if adds else None
        return self._launcher.prepare("add_and_norm", self._norm_threads, 0, None, 0, sums, after, at["stream"], before, at["x"], p.hidden, p.norm.eps)

    def _product(self, group: Group) -> tuple[_Piece, ...]:
        found = []
        for index, (first, rows) in enumerate(self._pieces(group)):
            bias = None if group.bias is None else group.bias[first : first + rows]
            if self._step.packed.codes is None:
                found.append(_Piece(None, group.matrices[index].weight.t(), bias))
                continue
            items = rows * group.columns // 8
            decode = self._launcher.prepare("decode_rows", 256, 0, group.argument, self._step.codes.values, first, group.columns, items,
                                            self._cells.pointers["scratch"])  # fmt: skip
            decode.at(-(-items // 1024), 1, 0)
            found.append(_Piece(decode, None, bias))
        return tuple(found)


def _multiply(x: Tensor, pieces: tuple[_Piece, ...], products: list[tuple[Tensor, Tensor]]) -> None:
    """x [T, columns] times matrices side by side, into their columns of the result."""
    for piece, (decoded, out) in zip(pieces, products, strict=True):
        weight = decoded
        if piece.decode is not None:
            piece.decode()
        elif piece.weight is not None:
            weight = piece.weight
        if piece.bias is None:
            torch.mm(x, weight, out=out)
        else:
            torch.addmm(piece.bias, x, weight, out=out)


def attention_launch(parts: ModelParts, memory: StepMemory) -> tuple[int, int, int]:
    """Of `attend_rows`: rows a block, its threads, its shared memory in bytes."""
    rows, threads, bytes_a_column = _TILE[memory.dtype]
    return rows, threads, bytes_a_column * (parts.head_dim + 8)


def rows_at_once(values: int, group: Group) -> int:
    """How many rows of a group are decoded at a time: all, or a share of them that suits the matrix product."""
    if values >= group.rows * group.columns:
        return group.rows
    parts = -(-group.rows * group.columns // values)
    return min(-(-group.rows // parts // 128) * 128, values // group.columns)


def _scratch_values(packed: PackedModel, most_bytes: int) -> int:
    if packed.codes is None:
        return 0
    layer = packed.layers[0]
    largest = max(group.rows * group.columns for group in (layer.qkv, layer.o, layer.gated, layer.down))
    return min(largest, max(most_bytes // packed.parts.final_norm.element_size(), 128 * max(layer.o.columns, layer.down.columns)))


def chunks_of(length: int, narrow_until: int, narrow: int) -> list[tuple[int, int]]:
    """(start, size) of the pieces in which a prompt is run: narrow ones up to `narrow_until` ids, beyond wide ones of about one size."""
    if length <= narrow_until:
        starts = range(0, length, narrow)
        return [(start, min(narrow, length - start)) for start in starts]
    count = -(-length // WIDE_ROWS)
    edges = [length * index // count for index in range(count + 1)]
    return [(low, high - low) for low, high in zip(edges, edges[1:], strict=False)]
