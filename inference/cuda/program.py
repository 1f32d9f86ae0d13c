"""The decode step of one row as one kernel over the whole card: the token at `position` in, logits and the next token out.

In: `ModelParts`, a `StepMemory`, a launcher. Matrices stay where and as they are: bitsandbytes' 4-bit rows (blocks of 64, one table of codes for
the model) or bfloat16. Launches go to the current stream and can be captured. Raises NotUnderstood, in a sentence, for what the kernel has no
form for; the step of separate kernels takes that. Knows no prompts, no graphs, no sampling.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from inference.cuda.codes import code_table
from inference.cuda.memory import StepMemory
from inference.parts.description import LayerParts, Matrix, ModelParts, NotUnderstood

QKV, O, GATED, DOWN, HEAD = range(5)  # noqa: E741
THREADS, _WARPS = 512, 16
_LAYER_BYTES, _PIECE, _SCALES = 224, 2048, 256
_WIDE_LIMIT = 160 << 10  # shared memory from which a table without bank conflicts leaves enough for the weights under way
MOST_SPLITS, LEAST_KEYS = 16, 64


class Launcher(Protocol):
    """What `DeviceCode` offers; `cooperative`: it can start all blocks of a grid at once, so that they may wait for each other."""

    multiprocessors: int
    shared_limit: int
    cooperative: bool

    def launch(self, name: str, grid: Any, threads: int, shared_bytes: int, *arguments: Any) -> None: ...

    def launch_together(self, name: str, grid: Any, threads: int, shared_bytes: int, *arguments: Any) -> None: ...


class _Room(ctypes.Structure):
    _names = ("memory", "layers", "pairs", "embedding", "qkv_sums", "sums", "answers", "inner", "streams", "logits", "best", "best_index", "counters")
    _fields_ = [(name, ctypes.c_void_p) for name in _names]


@dataclass(frozen=True)
class Layout:
    """What the kernel is compiled for on a device: its macros, and the shared memory of a block."""

    macros: dict[str, object]
    shared_bytes: int


class Program:
    """One model's step. `logits` [vocabulary] float32 are those of the last step."""

    def __init__(self, parts: ModelParts, memory: StepMemory, launcher: Launcher) -> None:
        """`launcher` runs `program_source()` with `layout(...).macros`; raises NotUnderstood."""
        self._launcher, self._memory = launcher, memory
        plan = layout(parts, launcher.multiprocessors, launcher.shared_limit)
        self._shared_bytes, self._phases = plan.shared_bytes, 5 * len(parts.layers) + 1
        device, heads = parts.device, parts.q_heads + 2 * parts.kv_heads

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.logits = zeros(parts.head.rows)
        self._table, self._kept = _layer_table(parts, memory.kinds)
        self._embedding, _, _ = embedding_of(parts)
        pairs = code_table(code_of(parts) or (0.0,) * 16)[0]
        bf16, i32, blocks = torch.bfloat16, torch.int32, launcher.multiprocessors
        self._room_tensors = {
            "memory": memory.words, "layers": self._table, "pairs": torch.tensor([p - (1 << 32) if p >> 31 else p for p in pairs], dtype=i32, device=device),
            "embedding": self._embedding, "qkv_sums": zeros(2, heads * parts.head_dim), "sums": zeros(2, parts.hidden),
            "answers": zeros(parts.q_heads, MOST_SPLITS, parts.head_dim + 4), "inner": zeros(parts.layers[0].gate.rows, dtype=bf16),
            "streams": zeros(2, parts.hidden, dtype=bf16), "logits": self.logits, "best": zeros(blocks), "best_index": zeros(blocks, dtype=i32),
            "counters": zeros(2, dtype=i32),
        }  # fmt: skip
        self._room = _Room(**{name: tensor.data_ptr() for name, tensor in self._room_tensors.items()})

    def step(self, commit: bool = True) -> None:
        """Run the token at `position`. With `commit` the best id becomes the token of `position` + 1 (history -1: a logit was no number)."""
        if self._launcher.cooperative:
            self._launch(0, self._phases, commit)
        else:
            for phase in range(self._phases):
                self._launch(phase, phase + 1, commit)

    def _launch(self, first: int, last: int, commit: bool) -> None:
        launch = self._launcher.launch_together if last > first + 1 else self._launcher.launch
        launch("whole_step", (self._launcher.multiprocessors,), THREADS, self._shared_bytes, self._room, first, last, int(commit))


def program_source() -> str:
    """The kernel's CUDA source."""
    folder = Path(__file__).parent
    return "".join((folder / name).read_text() for name in ("memory.cuh", "numbers.cuh", "ring.cuh", "program.cu", "rows.cuh", "step.cuh"))


def layout(parts: ModelParts, multiprocessors: int, shared_limit: int) -> Layout:
    """How the kernel is compiled for this model and device; raises NotUnderstood."""
    check(parts, multiprocessors)
    first, head, formats = parts.layers[0], parts.head, formats_of(parts)
    attended, inner, wide = parts.q_heads * parts.head_dim, first.gate.rows, bool(formats) and shared_limit >= _WIDE_LIMIT
    tiles = ((parts.q_heads + 2 * parts.kv_heads) * parts.head_dim // 16, -(-parts.hidden // 16), -(-inner // 8))
    most_tiles = max(32, 2 + max(-(-count // multiprocessors) for count in tiles))
    queries = max(count for count in (1, 2, 3) if parts.q_heads // parts.kv_heads % count == 0)
    columns = max(parts.hidden, inner, attended)
    table = (65536 if wide else 8192) if formats else 0
    x = 0 if wide else max(128, -(-columns // 256) * 4) * 128
    work = max((most_tiles + _WARPS) * 64, (queries + 3) * parts.head_dim * 4)
    fixed = table + x + (len(parts.layers) + 1) * _LAYER_BYTES + parts.hidden * 2 + work + 1024
    slots = _WARPS * (_PIECE + (_SCALES if formats else 0))
    depth = min(8, (shared_limit - fixed) // slots)
    _need(depth >= 2, f"its sizes leave no room for weights under way in {shared_limit >> 10} KB of shared memory")
    _need(not wide or columns <= 16384, f"a matrix has {columns} columns")
    ragged = [
        width % (256 if formats >> kind & 1 else 64)
        for kind, width in ((QKV, parts.hidden), (O, attended), (GATED, parts.hidden), (DOWN, inner), (HEAD, parts.hidden))
    ]
    macros = {
        "LAYERS": len(parts.layers), "HIDDEN": parts.hidden, "INNER": inner, "VOCABULARY": head.rows, "HEAD_DIM": parts.head_dim, "Q_HEADS": parts.q_heads,
        "KV_HEADS": parts.kv_heads, "ROTATED": parts.rotated, "QUERIES": queries, "FORMATS": formats, "RAGGED": int(any(ragged)), "DEPTH": depth,
        "WIDE_TABLE": int(wide), "X_STRIDE": 256 if wide else 128, "MOST_TILES": most_tiles, "HEAD_CHUNK": (most_tiles - 1) * multiprocessors,
        "MOST_SPLITS": MOST_SPLITS, "LEAST_KEYS": LEAST_KEYS, "QK_WHOLE": int(_norms_whole(parts)),
        **_numbers(parts),
    }  # fmt: skip
    return Layout(macros, fixed + slots * depth)


def _numbers(parts: ModelParts) -> dict[str, object]:
    _, own, then = embedding_of(parts)
    code = code_of(parts)
    numbers = {
        "EPS": parts.norm.eps, "ATTENTION_SCALE": parts.attention_scale, "ATTENTION_CAP": parts.attention_cap, "EMBED_SCALE": own, "THEN_SCALE": then,
        "RESIDUAL_SCALE": parts.residual_scale, "LOGIT_SCALE": parts.logit_scale, "LOGIT_CAP": parts.logit_cap, "NORM_OFFSET": float(parts.norm.offset),
        "UNSCALE": code_table(code)[1] if code else 1.0,
    }  # fmt: skip
    return {**{name: f"{number!r}f" for name, number in numbers.items()}, "NORM_ROUNDS": int(parts.norm.rounds), "ACTIVATION": parts.activation}


def _matrices(layer: LayerParts) -> tuple[Matrix, ...]:
    return layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down


def formats_of(parts: ModelParts) -> int:
    """A bit for each of QKV, O, GATED, DOWN, HEAD whose matrices are in 4 bits; raises NotUnderstood where layers differ in that."""
    found = 0
    for kind, names in enumerate((("q", "k", "v"), ("o",), ("gate", "up"), ("down",))):
        four = {getattr(layer, name).state is not None for layer in parts.layers for name in names}
        _need(len(four) == 1, f"some of its {', '.join(names)} matrices are in 4 bits and some are not")
        found |= four.pop() << kind
    return found | (parts.head.state is not None) << HEAD


def code_of(parts: ModelParts) -> tuple[float, ...] | None:
    """The values of the 16 codes; None where nothing is in 4 bits."""
    matrices = [*(matrix for layer in parts.layers for matrix in _matrices(layer)), parts.head]
    codes = {matrix.state.quant_type: matrix.state.code for matrix in matrices if matrix.state is not None}
    _need(len(codes) <= 1, "its matrices have several 4-bit formats")
    return tuple(next(iter(codes.values())).tolist()) if codes else None


def embedding_of(parts: ModelParts) -> tuple[Tensor, float, float]:
    """The matrix [vocabulary, hidden] that ids pick rows of, and two factors with a rounding after each, found by trying; raises NotUnderstood."""
    weight: Any = getattr(parts.embed, "weight", None)
    fits = isinstance(weight, Tensor) and weight.dtype == torch.bfloat16 and weight.shape[-1] == parts.hidden
    _need(fits and weight.is_contiguous(), "its embedding is not a bfloat16 matrix")
    ids = torch.arange(0, weight.shape[0], max(1, weight.shape[0] // 8), device=weight.device)[:8]
    with torch.no_grad():
        rows, plain = parts.embed(ids[None])[0], weight[ids]
    own = float(getattr(parts.embed, "embed_scale", 1.0))
    _need(torch.equal(rows, plain * torch.tensor(own, dtype=plain.dtype)), "its embedding does more than pick rows and scale them")
    return weight.data, float(torch.tensor(own, dtype=plain.dtype)), float(parts.embed_scale)


def _norms_whole(parts: ModelParts) -> bool:
    sizes = {norm.shape[0] for layer in parts.layers for norm in (layer.q_norm, layer.k_norm) if norm is not None}
    return bool(sizes) and sizes != {parts.head_dim}


def check(parts: ModelParts, multiprocessors: int) -> None:
    """Raise NotUnderstood for what the kernel has no form for."""
    sizes = {tuple((matrix.rows, matrix.columns) for matrix in _matrices(layer)) for layer in parts.layers}
    _need(len(sizes) == 1, "its layers differ in size")
    _need(parts.head_dim in (32, 64, 128, 256), f"its heads have {parts.head_dim} columns")
    _need(parts.rotated % 2 == 0, f"it rotates {parts.rotated} columns of a head")
    _need(parts.q_heads <= multiprocessors, f"it has {parts.q_heads} heads for {multiprocessors} multiprocessors")
    for matrix in [*(matrix for layer in parts.layers for matrix in _matrices(layer)), parts.head]:
        _check_matrix(matrix)
    norms = (norm for layer in parts.layers for norm in (*_norms(layer), layer.q_norm, layer.k_norm))
    biases = (matrix.bias for layer in parts.layers for matrix in _matrices(layer))
    for what, tensors in (("norm", [*norms, parts.final_norm]), ("bias", [*biases, parts.head.bias])):
        _need(all(t is None or (t.dtype == torch.bfloat16 and t.is_contiguous()) for t in tensors), f"a {what} is not in bfloat16")


def _check_matrix(matrix: Matrix) -> None:
    state, size = matrix.state, f"a matrix of {matrix.rows} x {matrix.columns}"
    if state is None:
        weight = matrix.weight
        _need(weight.dtype == torch.bfloat16 and weight.is_contiguous() and matrix.columns % 8 == 0, f"{size} is not in bfloat16")
    else:
        _need(state.blocksize == 64 and matrix.columns % 64 == 0, f"{size} is in blocks of {state.blocksize}")


def _norms(layer: LayerParts) -> tuple[Tensor | None, ...]:
    return layer.before_attention, layer.after_attention, layer.before_mlp, layer.after_mlp


def scales_of(matrix: Matrix) -> Tensor:
    """One float32 scale for each 64 codes of a 4-bit matrix; a copy only where scales are nested."""
    state = matrix.state
    scales = state.absmax
    if state.nested:
        from bitsandbytes.functional import dequantize_blockwise

        scales = dequantize_blockwise(state.absmax, state.state2) + state.offset
    each = matrix.columns // 64
    found: Tensor = scales.float()[matrix.first * each : (matrix.first + matrix.rows) * each]
    return found


def _layer_table(parts: ModelParts, kinds: tuple[str, ...]) -> tuple[Tensor, list[Any]]:
    """The kernel's `Layer` structs as 64-bit words, the head's after the last layer's, and the tensors that they point at."""
    kept: list[Any] = []

    def address(tensor: Tensor | None) -> int:
        kept.append(tensor)
        return 0 if tensor is None else tensor.data_ptr()

    def words(matrices: tuple[Matrix, ...], norms: Iterable[Tensor | None], kind: int, window: int) -> list[int]:
        blank = [0] * (7 - len(matrices))
        codes = [m.weight.data_ptr() if m.state is None else m.module.weight.data_ptr() + m.first * m.columns // 2 for m in matrices]
        scales = [0 if m.state is None else address(scales_of(m)) for m in matrices]
        biases = [address(m.bias) for m in matrices]
        return [*codes, *blank, *scales, *blank, *biases, *blank, *map(address, norms), (kind & 0xFFFFFFFF) | window << 32]

    rows = []
    for layer in parts.layers:
        kind = -1 if layer.rotary is None else kinds.index(layer.rotary)
        rows.append(words(_matrices(layer), (*_norms(layer), layer.q_norm, layer.k_norm), kind, layer.window))
    rows.append(words((parts.head,), (parts.final_norm, *[None] * 5), -1, 0))
    return torch.tensor(rows, dtype=torch.int64).to(parts.device), kept


def _need(condition: bool, reason: str) -> None:
    if not condition:
        raise NotUnderstood(reason)
