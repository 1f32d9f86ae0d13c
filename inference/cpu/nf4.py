"""The 4-bit layers of a CPU lane, by our own product of packed NF4 weights, for a model's own code.

bitsandbytes, where it has no 4-bit kernel for a processor, unpacks each whole matrix for every token. Here the weights are
unpacked in registers: the same FP32 values, checked once against its own. Its packed weights are used as they are.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit
from torch import nn

from inference.cpu import products
from inference.cpu.library import NF4, VECTOR, CMatrix, Library, pointer
from inference.parts.description import NotUnderstood


class Nf4Linear(Linear4bit):
    """bitsandbytes' 4-bit layer with our product; its weight and scales are untouched."""

    library: Library

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (..., in) FP32 -> (..., out) FP32."""
        return multiply(self.library, self, x)


def multiply(library: Library, layer: Any, x: torch.Tensor) -> torch.Tensor:
    """x (..., in) FP32 times a 4-bit layer."""
    state = layer.weight.quant_state
    places = (layer.weight.data_ptr(), state.absmax.data_ptr(), state.code.data_ptr(), pointer(layer.bias))
    return library.multiply(x, CMatrix(*places, *state.shape, state.blocksize, NF4))


def install(model: nn.Module, library: Library) -> None:
    """Give the 4-bit layers our product; raises NotUnderstood, the model as it was, where one is of another form or a sample is wrong."""
    layers = [module for module in model.modules() if type(module) is Linear4bit]
    if not layers or not all(_fits(layer) for layer in layers):
        raise NotUnderstood("its 4-bit layers are of a form that our product doesn't know")
    layer: Any = min(layers, key=lambda layer: layer.weight.numel())
    products.check(partial(multiply, library, layer), dequantize_4bit(layer.weight.data, layer.weight.quant_state), layer.bias)
    for layer in layers:
        layer.library = library
        layer.__class__ = Nf4Linear


def _fits(layer: Any) -> bool:
    state = layer.weight.quant_state
    return (
        state.quant_type == "nf4" and not state.nested and {state.absmax.dtype, state.code.dtype, state.dtype} == {torch.float32}
        and state.shape[1] % state.blocksize == 0 and state.blocksize % VECTOR == 0 and layer.weight.is_contiguous()
        and not layer.support_avx512bf16_for_cpu  # there bitsandbytes packs the weights anew at its first forward
    )  # fmt: skip
