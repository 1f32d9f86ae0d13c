"""What a description means, in torch and FP64, a line a step: what our own steps, and the reader itself, are held against."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from inference.parts.description import LayerParts, Matrix, ModelParts
from inference.parts.forms import ACTIVATIONS, rotary_rows, turned


def values(matrix: Matrix) -> Tensor:
    """A matrix in FP64, dequantized where it is in 4 bits."""
    if matrix.state is None:
        return matrix.weight.double()
    from bitsandbytes.functional import dequantize_4bit

    return dequantize_4bit(matrix.module.weight.data, matrix.state).double()[matrix.first : matrix.first + matrix.rows]


def logits(parts: ModelParts, ids: list[int]) -> Tensor:
    """Logits [T, vocabulary] in FP64 after each of the ids."""
    x = parts.embed(torch.tensor([ids], device=parts.device))[0].double() * parts.embed_scale
    for layer in parts.layers:
        x = x + _norm(parts, _attention(parts, layer, _norm(parts, x, layer.before_attention)), layer.after_attention) * parts.residual_scale
        x = x + _norm(parts, _mlp(parts, layer, _norm(parts, x, layer.before_mlp)), layer.after_mlp) * parts.residual_scale
    return _capped(_times(_norm(parts, x, parts.final_norm), parts.head) * parts.logit_scale, parts.logit_cap)


def _times(x: Tensor, matrix: Matrix) -> Tensor:
    return F.linear(x, values(matrix), None if matrix.bias is None else matrix.bias.double())


def _norm(parts: ModelParts, x: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return x
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + parts.norm.eps) * (parts.norm.offset + weight.double())


def _capped(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap) if cap else x


def _mlp(parts: ModelParts, layer: LayerParts, x: Tensor) -> Tensor:
    return _times(ACTIVATIONS[parts.activation](_times(x, layer.gate)) * _times(x, layer.up), layer.down)


def _attention(parts: ModelParts, layer: LayerParts, x: Tensor) -> Tensor:
    rows = x.shape[0]
    q, k = (_heads(parts, layer, _times(x, matrix), norm) for matrix, norm in ((layer.q, layer.q_norm), (layer.k, layer.k_norm)))
    v = _times(x, layer.v).view(rows, -1, parts.head_dim).transpose(0, 1)
    repeats = parts.q_heads // parts.kv_heads
    back = torch.arange(rows)[:, None] - torch.arange(rows)
    seen = (back >= 0) & (back < (layer.window or math.inf))
    scores = _capped(q @ k.repeat_interleave(repeats, 0).transpose(1, 2) * parts.attention_scale, parts.attention_cap)
    answers = scores.masked_fill(~seen.to(x.device), -math.inf).softmax(-1) @ v.repeat_interleave(repeats, 0)
    return _times(answers.transpose(0, 1).reshape(rows, -1), layer.o)


def _heads(parts: ModelParts, layer: LayerParts, x: Tensor, norm: Tensor | None) -> Tensor:
    """Rows [T, heads * head_dim] normed, whole or by head, and rotated: [heads, T, head_dim]."""
    if norm is not None and norm.shape[0] != parts.head_dim:
        x = _norm(parts, x, norm)
    x = x.view(x.shape[0], -1, parts.head_dim).transpose(0, 1)
    if norm is not None and norm.shape[0] == parts.head_dim:
        x = _norm(parts, x, norm)
    if layer.rotary is None:
        return x
    cos, sin = rotary_rows(parts.rotary, layer.rotary, x.shape[1], parts.hidden, torch.float32, parts.device)
    return turned(x, cos.double(), sin.double())
