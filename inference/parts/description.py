"""What a fast path must know of a model: frozen, with the model's own tensors and modules, none of them copied.

One layer, x being the residual stream: a = before_attention(x); q, k, v = a times their matrices; q and k normed, then rotated; attention;
o; after_attention; x += residual_scale * that; then the same with before_mlp, act(gate) * up, down, after_mlp. A norm that is None is not
there. Logits: cap(head(final_norm(x)) * logit_scale).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inference.errors import InferenceError


class NotUnderstood(InferenceError):
    """This model is not one that our own steps know; the message says what is different."""


@dataclass(frozen=True)
class Matrix:
    """Rows `first` ... `first + rows - 1` of a linear module's matrix, `columns` wide; several share a module where it is fused (Phi-3's qkv)."""

    module: Any
    first: int
    rows: int
    columns: int

    @property
    def state(self) -> Any:
        """bitsandbytes' state of a 4-bit weight, of the whole module; None where the matrix is stored as it is."""
        return getattr(self.module.weight, "quant_state", None)

    @property
    def weight(self) -> Tensor:
        """The values [rows, columns] of a matrix that is not in 4 bits, a view."""
        weight: Tensor = self.module.weight.data[self.first : self.first + self.rows]
        return weight

    @property
    def bias(self) -> Tensor | None:
        """[rows], a view."""
        bias: Tensor | None = getattr(self.module, "bias", None)
        return None if bias is None else bias.data[self.first : self.first + self.rows]


def scales_of(state: Any) -> Tensor:
    """The scales of a 4-bit matrix, float32, flat, one for each block; those in 8 bits themselves are unpacked, others are not copied."""
    scales: Tensor = state.absmax
    if state.nested:
        from bitsandbytes.functional import dequantize_blockwise

        scales = dequantize_blockwise(scales, state.state2) + state.offset
    return scales.float().contiguous().view(-1)


@dataclass(frozen=True)
class LayerParts:
    """One decoder layer. Norms are weights [hidden]; `q_norm` and `k_norm` are [head_dim], or, of the whole width, [heads * head_dim]."""

    q: Matrix
    k: Matrix
    v: Matrix
    o: Matrix
    gate: Matrix
    up: Matrix
    down: Matrix
    before_attention: Tensor | None
    after_attention: Tensor | None
    before_mlp: Tensor | None
    after_mlp: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    rotary: str | None  # the name under which the rotary module keeps its frequencies ("" where all layers share them); None: not rotated
    window: int  # a row sees so many keys, its own among them; 0: all


@dataclass(frozen=True)
class NormForm:
    """x / sqrt(mean(x²) + eps) * (offset + weight); `rounds`: a 16-bit model rounds the quotient before the weight."""

    eps: float
    offset: int
    rounds: bool


SILU, GELU_TANH, GELU = 0, 1, 2


@dataclass(frozen=True)
class ModelParts:
    """A whole model. `rotated`: columns of a head that are rotated, the first of them (the first half with the second half)."""

    layers: tuple[LayerParts, ...]
    embed: Any  # ids [1, T] -> rows [1, T, hidden], its own scale applied; then times `embed_scale`
    rotary: Any  # (like, positions [1, T], kind if not "") -> cos, sin [1, T, rotated]
    final_norm: Tensor
    head: Matrix
    norm: NormForm
    activation: int  # SILU, GELU_TANH or GELU
    hidden: int
    head_dim: int
    q_heads: int
    kv_heads: int
    rotated: int
    attention_scale: float
    attention_cap: float  # c * tanh(score / c); 0: none
    embed_scale: float
    residual_scale: float
    logit_scale: float
    logit_cap: float
    most: int  # positions up to which all of this holds, past them the model computes otherwise (Ministral 3); 0: any

    def why_not(self, positions: int) -> str | None:
        """Why a run of so many positions isn't described; None where it is."""
        return f"past {self.most:,} positions its queries grow with their position" if 0 < self.most < positions else None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        device: torch.device = self.final_norm.device
        return device
