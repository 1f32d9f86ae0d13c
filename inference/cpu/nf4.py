"""The 4-bit layers of a CPU lane that computes in FP32, by our own product of packed NF4 weights.

bitsandbytes, where it has no 4-bit kernel for a processor, unpacks each whole matrix for every token. Here the weights are
unpacked in registers: the same FP32 values, checked against its own result. Its packed weights are used as they are.
"""

from __future__ import annotations

from typing import Any

import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit
from torch import nn

from inference.cpu.library import VECTOR, Library
from inference.errors import InferenceError


class NotOurs(InferenceError):
    """Our product can't be used for this model; the message says why."""


class Nf4Linear(Linear4bit):
    """bitsandbytes' 4-bit layer with our product; its weight and scales are untouched."""

    library: Library
    levels: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (..., in) FP32 -> (..., out) FP32."""
        state = self.weight.quant_state
        return self.library.nf4_product(x, self.weight, state.absmax, self.levels, state.shape[0], state.blocksize, self.bias)


@torch.inference_mode()
def install(model: nn.Module, library: Library) -> None:
    """Give the 4-bit layers our product; raises NotOurs, the model as it was, where one doesn't allow it or a sample differs from bitsandbytes'."""
    layers = [module for module in model.modules() if type(module) is Linear4bit]
    if not layers or not all(_fits(layer) for layer in layers):
        raise NotOurs("its 4-bit layers are of a form that our product doesn't know")
    levels = library.levels(layers[0].weight.quant_state.code)
    try:
        for layer in layers:
            layer.library, layer.levels = library, levels
            layer.__class__ = Nf4Linear
        if not all(_right(layer) for layer in {tuple(layer.weight.quant_state.shape): layer for layer in layers}.values()):
            raise NotOurs("our 4-bit product differs from bitsandbytes' here")
    except Exception:
        for layer in layers:
            layer.__class__ = Linear4bit
        raise


def _fits(layer: Any) -> bool:
    state = layer.weight.quant_state
    return (
        state.quant_type == "nf4" and not state.nested and state.absmax.dtype == torch.float32 and state.dtype == torch.float32
        and state.shape[1] % state.blocksize == 0 and state.blocksize % VECTOR == 0
        and layer.weight.is_contiguous() and not getattr(state, "packing_format_for_cpu", False)
    )  # fmt: skip


def _right(layer: Any) -> bool:
    weight = dequantize_4bit(layer.weight.data, layer.weight.quant_state).double()
    for rows in (1, 5):
        x = torch.randn(rows, weight.shape[1], generator=torch.Generator().manual_seed(rows))
        bias = 0 if layer.bias is None else layer.bias.double()
        bound = x.double().abs() @ weight.abs().T * 2e-6 + 1e-6
        if not bool(((layer(x).double() - x.double() @ weight.T - bias).abs() <= bound).all()):
            return False
    return True
