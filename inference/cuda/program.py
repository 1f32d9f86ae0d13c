"""The decode step of one row as one kernel over the whole card: the token at `position` in, logits and the next token out.

In: `ModelParts`, a `StepMemory`, a launcher. Matrices stay where and as they are: bitsandbytes' 4-bit rows (blocks of 64, one table of codes for
the model) or bfloat16. Launches go to the current stream and can be captured. Raises NotUnderstood, in a sentence, for what the kernel has no
form for; the step of separate kernels takes that. Knows no prompts, no graphs, no sampling.
Measured, H200, gemma-3-4b's shape: 32 us a layer in 4 bits, 14 of them products, the rest what five phases wait for; 320 us for the head.
What helped: work shared out once and not in every phase, no spills (a third of all), one head a block in attention. What did not: more or fewer
warps, more than three pieces under way, a flag for each block instead of one count, words marked by their layer instead of barriers.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from inference.cuda.codes import code_table
from inference.cuda.memory import StepMemory
from inference.parts.description import LayerParts, Matrix, ModelParts, NotUnderstood, scales_of

QKV, OUT, GATED, DOWN, HEAD = range(5)
_LAYER_BYTES, _PIECE, _SCALES = 112, 2048, 256
_FIRST_ADDRESS = 1024  # the device keeps shared memory below this to itself
_WIDE_LIMIT = 160 << 10  # shared memory from which a table without bank conflicts leaves enough for the weights under way
MOST_SPLITS, _KEYS_AT_ONCE = 8, 4
WARPS = (10, 8)


class Launcher(Protocol):
    """What `DeviceCode` offers; `cooperative`: it can start all blocks of a grid at once, so that they may wait for each other."""

    multiprocessors: int
    shared_limit: int
    cooperative: bool

    def launch(self, name: str, grid: Any, threads: int, shared_bytes: int, *arguments: Any) -> None: ...

    def launch_together(self, name: str, grid: Any, threads: int, shared_bytes: int, *arguments: Any) -> None: ...


class _Room(ctypes.Structure):
    _names = (
        "memory", "weights", "layers", "pairs", "embedding", "qkv_sums", "sums", "answers", "marks", "inner", "streams", "logits", "best", "best_index",
        "counters",
    )  # fmt: skip
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in _names],
        ("layer_count", ctypes.c_int),
        *[(name, ctypes.c_float) for name in ("embed_scale", "then_scale", "unscale")],
    ]


@dataclass(frozen=True)
class Layout:
    """What the kernel is compiled for on a device: its macros, and a block's threads and shared memory."""

    macros: dict[str, object]
    threads: int
    shared_bytes: int


@dataclass(frozen=True)
class Kernel:
    """The compiled step: `launcher` runs `program_source()` with the macros of `layout`. Good for the model, and for some of its layers."""

    launcher: Launcher
    layout: Layout


class Program:
    """One model's step. `logits` [vocabulary] float32 are those of the last step."""

    def __init__(self, parts: ModelParts, memory: StepMemory, kernel: Kernel) -> None:
        """`kernel` is of a model that `parts` are the layers of, all or some; raises NotUnderstood."""
        launcher, self._layout = kernel.launcher, kernel.layout
        self._launcher, self._memory, self._phases = launcher, memory, 5 * len(parts.layers) + 1
        device, heads = parts.device, parts.q_heads + 2 * parts.kv_heads

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.logits = zeros(parts.head.rows)
        weights, layers, self._kept = _layer_tables(parts, memory.kinds)
        self._embedding, own, then = embedding_of(parts)
        code = code_of(parts)
        pairs, unscale = code_table(code) if code else ([0] * 256, 1.0)
        bf16, i32, blocks = torch.bfloat16, torch.int32, launcher.multiprocessors
        self.room = {
            "memory": memory.words, "weights": weights, "layers": layers, "pairs": torch.tensor([p - (1 << 32) if p >> 31 else p for p in pairs], dtype=i32, device=device),
            "embedding": self._embedding, "qkv_sums": zeros(2, heads * parts.head_dim), "sums": zeros(2, parts.hidden),
            "answers": zeros(parts.q_heads, MOST_SPLITS, parts.head_dim, dtype=bf16), "marks": zeros(parts.q_heads, MOST_SPLITS, 2), "inner": zeros(parts.layers[0].gate.rows, dtype=bf16),
            "streams": zeros(2, parts.hidden, dtype=bf16), "logits": self.logits, "best": zeros(blocks), "best_index": zeros(blocks, dtype=i32),
            "counters": zeros(2, dtype=i32),
        }  # fmt: skip
        pointers = {name: tensor.data_ptr() for name, tensor in self.room.items()}
        self._argument = _Room(**pointers, layer_count=len(parts.layers), embed_scale=own, then_scale=then, unscale=unscale)

    def step(self, commit: bool = True) -> None:
        """Run the token at `position`. With `commit` the best id becomes the token of `position` + 1 (history -1: a logit was no number)."""
        if self._launcher.cooperative:
            self.run_phases(0, self._phases, commit)
        else:
            for phase in range(self._phases):
                self.run_phases(phase, phase + 1, commit)

    def run_phases(self, first: int, last: int, commit: bool = True) -> None:
        """Phases `first` ... `last` - 1 of a step in one launch: five for each layer (QKV, attention, O, gate and up, down), then the head."""
        launch = self._launcher.launch_together if last > first + 1 else self._launcher.launch
        threads, shared = self._layout.threads, self._layout.shared_bytes
        launch("whole_step", (self._launcher.multiprocessors,), threads, shared, self._argument, first, last, int(commit))


def program_source() -> str:
    """The kernel's CUDA source."""
    folder = Path(__file__).parent
    return "".join((folder / name).read_text() for name in ("memory.cuh", "common.cu", "numbers.cuh", "ring.cuh", "program.cu", "rows.cuh", "step.cuh"))


def layout(parts: ModelParts, multiprocessors: int, shared_limit: int, formats: int | None = None) -> Layout:
    """How the kernel is compiled for this model and device; raises NotUnderstood. `formats`: of weights that are not there yet."""
    check(parts, multiprocessors)
    first, head = parts.layers[0], parts.head
    if formats is None:
        formats = formats_of(parts)
    attended, inner, wide = parts.q_heads * parts.head_dim, first.gate.rows, bool(formats) and shared_limit >= _WIDE_LIMIT
    tiles = ((parts.q_heads + 2 * parts.kv_heads) * parts.head_dim // 16, -(-parts.hidden // 16), -(-inner // 8))
    most_tiles = max(32, 2 + max(-(-count // multiprocessors) for count in tiles))
    queries = 1 if parts.q_heads * 8 <= multiprocessors else max(count for count in (1, 2) if parts.q_heads // parts.kv_heads % count == 0)
    columns = max(parts.hidden, inner, attended)
    _need(not wide or columns <= 16384, f"a matrix has {columns} columns")
    places = _places(parts, formats, wide, columns, most_tiles, queries, shared_limit)
    ragged = [
        width % (256 if formats >> kind & 1 else 64)
        for kind, width in ((QKV, parts.hidden), (OUT, attended), (GATED, parts.hidden), (DOWN, inner), (HEAD, parts.hidden))
    ]
    macros = {
        "HIDDEN": parts.hidden, "INNER": inner, "VOCABULARY": head.rows, "HEAD_DIM": parts.head_dim, "Q_HEADS": parts.q_heads,
        "KV_HEADS": parts.kv_heads, "ROTATED": parts.rotated, "QUERIES": queries, "FORMATS": formats, "RAGGED": int(any(ragged)),
        "WIDE_TABLE": int(wide), "X_STRIDE": 256 if wide else 128, "MOST_TILES": most_tiles, "HEAD_CHUNK": (most_tiles - 1) * multiprocessors,
        "MOST_SPLITS": MOST_SPLITS, "LEAST_KEYS": _KEYS_AT_ONCE * places["WARPS"] * 256 // parts.head_dim, "QK_WHOLE": int(_norms_whole(parts)), "WIDE": 0,
        **places, **_numbers(parts),
    }  # fmt: skip
    return Layout(macros, 32 * places["WARPS"], shared_limit)


def _places(parts: ModelParts, formats: int, wide: bool, columns: int, most_tiles: int, queries: int, limit: int) -> dict[str, int]:
    """Addresses in shared memory: the table at a multiple of its size, the warps' slots below and above it, as deep as there is room."""
    table = (65536 if wide else 8192) if formats else 0
    slot = _PIECE + (_SCALES if formats else 0)
    for warps in WARPS:
        sizes = {
            "X_AT": 0 if wide else max(queries * warps * 8, -(-columns // 256) * 4) * 128, "STREAM_AT": parts.hidden * 2, "SMALL_AT": 2048, "MEMORY_AT": 112,
            "PARTS_AT": 6 * 32, "WORK_AT": max((most_tiles + warps) * 64, (queries + 3) * parts.head_dim * 4),
            "WEIGHTS_AT": (len(parts.layers) + 1) * _LAYER_BYTES, "LAYERS_AT": 2 * _LAYER_BYTES, "SHARES_AT": 6 * warps * 16, "ENDS_AT": 6 * most_tiles * 2,
        }  # fmt: skip
        found, end = {"TABLE_AT": table}, max(2 * table, _FIRST_ADDRESS)
        for name, size in sizes.items():
            found[name], end = end, end + -(-size // 16) * 16
        if wide:
            found["X_AT"] = table + 128
        low, high = max(0, table - _FIRST_ADDRESS), max(0, limit - end)
        for depth in range(8, 1, -1):
            below = low // (depth * slot)
            if below + high // (depth * slot) >= warps:
                return {**found, "WARPS": warps, "DEPTH": depth, "LOW_WARPS": min(warps, below), "RING_LOW_AT": _FIRST_ADDRESS, "RING_AT": end}
    raise NotUnderstood(f"its sizes leave no room for weights under way in {limit >> 10} KB of shared memory")


def _numbers(parts: ModelParts) -> dict[str, object]:
    numbers = {
        "EPS": parts.norm.eps, "ATTENTION_SCALE": parts.attention_scale, "ATTENTION_CAP": parts.attention_cap,
        "RESIDUAL_SCALE": parts.residual_scale, "LOGIT_SCALE": parts.logit_scale, "LOGIT_CAP": parts.logit_cap, "NORM_OFFSET": float(parts.norm.offset),
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


def _scales(matrix: Matrix) -> Tensor:
    each = matrix.columns // 64
    return scales_of(matrix.state)[matrix.first * each : (matrix.first + matrix.rows) * each]


def _layer_tables(parts: ModelParts, kinds: tuple[str, ...]) -> tuple[Tensor, Tensor, list[Any]]:
    """The kernel's `Weights` and `Layer` structs as 64-bit words, the head's after the last layer's, and the tensors that they point at."""
    kept: list[Any] = []

    def address(tensor: Tensor | None) -> int:
        kept.append(tensor)
        return 0 if tensor is None else tensor.data_ptr()

    def filled(words: list[int]) -> list[int]:
        return words + [0] * (7 - len(words))

    def codes(m: Matrix) -> int:
        return m.weight.data_ptr() if m.state is None else m.module.weight.data.data_ptr() + m.first * m.columns // 2

    weights, layers = [], []
    for layer in (*parts.layers, None):
        matrices = _matrices(layer) if layer else (parts.head,)
        norms = (*_norms(layer), layer.q_norm, layer.k_norm) if layer else (parts.final_norm, *[None] * 5)
        kind, window = (-1 if layer.rotary is None else kinds.index(layer.rotary), layer.window) if layer else (-1, 0)
        weights.append(filled([codes(m) for m in matrices]) + filled([0 if m.state is None else address(_scales(m)) for m in matrices]))
        layers.append([*filled([address(m.bias) for m in matrices]), *map(address, norms), (kind & 0xFFFFFFFF) | window << 32])
    made = [torch.tensor(rows, dtype=torch.int64).to(parts.device) for rows in (weights, layers)]
    return made[0], made[1], kept


def _need(condition: bool, reason: str) -> None:
    if not condition:
        raise NotUnderstood(reason)
