"""A described model's matrices as the CUDA kernels read them, and what of a model these kernels can't do.

In: `ModelParts`. Out: `PackedModel`: views of the model's own weights (copied are only nested scales and biases of several matrices).
Raises NotUnderstood with the reason. Knows no step.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from inference.parts.description import LayerParts, Matrix, ModelParts, NotUnderstood, scales_of

SCALE_BLOCK = 64
MOST_HIDDEN, MOST_HEAD_DIM = 16384, 256


class WeightsArgument(ctypes.Structure):
    """`Weights` in `products.cu`."""

    _fields_ = [("w", ctypes.c_void_p * 3), ("scales", ctypes.c_void_p * 3), ("bias", ctypes.c_void_p * 3), ("rows", ctypes.c_int * 2)]


@dataclass(frozen=True)
class Packed:
    """Rows of one matrix: packed codes (uint8, flat) with one float32 scale per 64, or values [rows, columns] and no scales."""

    rows: int
    columns: int
    weight: Tensor
    scales: Tensor | None
    bias: Tensor | None


@dataclass(frozen=True)
class Group:
    """Up to three matrices with one input, side by side in one product."""

    matrices: tuple[Packed, ...]

    @property
    def rows(self) -> int:
        """Of all together."""
        return sum(matrix.rows for matrix in self.matrices)

    @property
    def columns(self) -> int:
        """Of each."""
        return self.matrices[0].columns

    @cached_property
    def argument(self) -> WeightsArgument:
        """What the kernels are given."""
        found = WeightsArgument()
        for index in range(3):
            matrix = self.matrices[index] if index < len(self.matrices) else self.matrices[0]
            found.w[index] = matrix.weight.data_ptr()
            found.scales[index] = None if matrix.scales is None else matrix.scales.data_ptr()
            found.bias[index] = None if matrix.bias is None else matrix.bias.data_ptr()
        for index in range(2):
            found.rows[index] = self.matrices[index].rows if index + 1 < len(self.matrices) else 1 << 30
        return found

    @cached_property
    def bias(self) -> Tensor | None:
        """Of all together, [rows]; None where none has one."""
        found = [matrix.bias for matrix in self.matrices]
        if all(bias is None for bias in found):
            return None
        like = next(bias for bias in found if bias is not None)
        return torch.cat([like.new_zeros(m.rows) if m.bias is None else m.bias for m in self.matrices])


@dataclass(frozen=True)
class PackedLayer:
    """One layer's products; the rest of it is in `parts`."""

    parts: LayerParts
    qkv: Group
    o: Group
    gated: Group
    down: Group


@dataclass(frozen=True)
class PackedModel:
    """`codes`: the 16 values of a 4-bit code, None where matrices are stored as they are. `wide`: activations are float32.

    The head is bfloat16, or float32 beside float32 activations.
    """

    parts: ModelParts
    layers: tuple[PackedLayer, ...]
    codes: tuple[float, ...] | None
    wide: bool

    @property
    def bits(self) -> int:
        """Of a stored weight."""
        return 16 if self.codes is None else 4

    @property
    def head_bits(self) -> int:
        """Of a stored value of the head."""
        return self.parts.head.weight.element_size() * 8


def pack(parts: ModelParts) -> PackedModel:
    """The matrices of `parts` for the kernels; raises NotUnderstood for a model that they can't do."""
    check_sizes(parts)
    dtype = parts.final_norm.dtype
    _need(dtype in (torch.bfloat16, torch.float32), f"it computes in {dtype}")
    _need(all(norm.dtype == dtype for layer in parts.layers for norm in _norms(layer)), "its norms are of several dtypes")
    head = parts.head
    fits = head.state is None and head.weight.dtype in (dtype, torch.bfloat16)
    _need(fits, f"its head is stored in {'4 bits' if head.state else head.weight.dtype}, not in {dtype}")
    scales: dict[int, Tensor] = {}
    layers = tuple(
        PackedLayer(layer, *(Group(tuple(_packed(m, dtype, scales) for m in group)) for group in ((layer.q, layer.k, layer.v), (layer.o,),
                                                                                                (layer.gate, layer.up), (layer.down,))))
        for layer in parts.layers
    )  # fmt: skip
    codes = _codes(parts)
    _need(codes is not None or dtype == torch.bfloat16, "its matrices are in float32")
    return PackedModel(parts, layers, codes, dtype == torch.float32)


def check_sizes(parts: ModelParts) -> None:
    """Raise NotUnderstood for sizes that the kernels can't do; weights need not be there."""
    sizes = {tuple((matrix.rows, matrix.columns) for matrix in matrices_of(layer)) for layer in parts.layers}
    _need(len(sizes) == 1, "its layers differ in size")  # the room for a step is made by the first layer
    for rows, columns in sizes.pop():
        _need(columns % SCALE_BLOCK == 0 and rows % 16 == 0, f"a matrix of {rows} x {columns}")
    _need(parts.head_dim % 32 == 0 and parts.head_dim <= MOST_HEAD_DIM, f"its heads have {parts.head_dim} columns")
    _need(parts.q_heads % parts.kv_heads == 0, "its query heads don't divide among the key heads")
    _need(parts.hidden <= MOST_HIDDEN, f"its hidden size is {parts.hidden}")


def matrices_of(layer: LayerParts) -> tuple[Matrix, ...]:
    """All seven."""
    return layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down


def whole_norms(parts: ModelParts) -> bool:
    """Whether queries and keys are normed over their whole width; raises NotUnderstood where only some are, or it can't be told."""
    found = {norm.shape[0] for layer in parts.layers for norm in (layer.q_norm, layer.k_norm) if norm is not None}
    _need(parts.head_dim not in found or len(found) == 1, "its layers differ in the norms of their heads")
    return bool(found) and parts.head_dim not in found


def _need(condition: bool, reason: str) -> None:
    if not condition:
        raise NotUnderstood(reason)


def _norms(layer: LayerParts) -> list[Tensor]:
    named = (layer.before_attention, layer.after_attention, layer.before_mlp, layer.after_mlp, layer.q_norm, layer.k_norm)
    return [norm for norm in named if norm is not None]


def _packed(matrix: Matrix, dtype: torch.dtype, scales: dict[int, Tensor]) -> Packed:
    """`scales`: those of the modules seen so far, since several matrices may share one."""
    bias = None if matrix.bias is None else matrix.bias.to(dtype)
    state = matrix.state
    if state is None:
        _need(matrix.weight.dtype == torch.bfloat16, f"a matrix is stored in {matrix.weight.dtype}")
        return Packed(matrix.rows, matrix.columns, matrix.weight, None, bias)
    _need(state.blocksize == SCALE_BLOCK, f"its 4-bit weights are in blocks of {state.blocksize}")
    computes = getattr(matrix.module, "compute_dtype", dtype)
    _need(computes == dtype, f"its compute dtype is {computes}, and its norms are {dtype}")
    if id(matrix.module) not in scales:
        scales[id(matrix.module)] = scales_of(state)
    first, last = matrix.first * matrix.columns, (matrix.first + matrix.rows) * matrix.columns
    codes = matrix.module.weight.data.view(-1)[first // 2 : last // 2]
    return Packed(matrix.rows, matrix.columns, codes, scales[id(matrix.module)][first // SCALE_BLOCK : last // SCALE_BLOCK], bias)


def _codes(parts: ModelParts) -> tuple[float, ...] | None:
    states = [matrix.state for layer in parts.layers for matrix in matrices_of(layer)]
    kinds = {None if state is None else state.quant_type: state for state in states}
    _need(len(kinds) == 1, "its matrices are stored in several formats")
    state = next(iter(kinds.values()))
    return None if state is None else tuple(state.code.tolist())
