"""4-bit layers on a processor, kept to what was asked for and computed right: in FP32, and a row that is no whole number of blocks too.

bitsandbytes packs the weights anew, and rounds their scales, for a processor with AVX512-BF16 products: never in our lane. Where a row is no whole
number of blocks its unpacking takes other rows' scales. In: a model loaded on the CPU. Out: the same. Brings bitsandbytes: import it for a 4-bit lane.
"""

from __future__ import annotations

import copy

import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit
from torch import nn
from torch.nn import functional


class OddRowsLinear(Linear4bit):
    """bitsandbytes' 4-bit layer with a row that is no whole number of blocks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (..., in) -> (..., out) in the dtype of x, computed in the layer's own."""
        weight = unpacked(self).to(self.compute_dtype)
        bias = None if self.bias is None else self.bias.to(self.compute_dtype)
        return functional.linear(x.to(self.compute_dtype), weight, bias).to(x.dtype)


def unpacked(layer: Linear4bit, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The matrix (out, in) that a layer holds, before its first product: level times scale in FP32, rounded to `dtype` (by itself, to what it was loaded in)."""
    state = copy.copy(layer.weight.quant_state)
    shape, state.shape, state.dtype = state.shape, torch.Size((1, state.shape.numel())), dtype or state.dtype
    return dequantize_4bit(layer.weight.data, state).view(shape)


def mend(model: nn.Module) -> None:
    """Have the layers, freshly loaded, computed in a way that is right for them; before any forward."""
    for layer in model.modules():
        if type(layer) is Linear4bit:
            layer.support_avx512bf16_for_cpu = False
            if layer.weight.quant_state.shape[1] % layer.weight.quant_state.blocksize:
                layer.__class__ = OddRowsLinear
