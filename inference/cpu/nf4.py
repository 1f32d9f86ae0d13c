"""The 4-bit layers of a CPU lane that computes in FP32, by our own product of packed NF4 weights.

bitsandbytes, where it has no 4-bit kernel for a processor, unpacks each whole matrix for every token. Here the weights are
unpacked in registers: the same FP32 values, checked against its own result, where that is faster. Its packed
weights are used as they are.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit
from torch import nn

from inference.cpu import probe
from inference.cpu.library import NF4, VECTOR, CMatrix, Library, NotOurs, pointer
from inference.cpu.products import FEW, ROWS

TRIED_BYTES = 2**20  # of a layer's packed weights: past the nearest caches, and a trial of some tenths of a second
LIMITS = {"one": 1, "few": FEW, "many": 2**31}  # the most rows of each kind


class Nf4Linear(Linear4bit):
    """bitsandbytes' 4-bit layer with our product for up to `most_rows`; its weight and scales are untouched."""

    library: Library
    most_rows: int

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (..., in) FP32 -> (..., out) FP32."""
        if x.numel() > self.most_rows * x.shape[-1]:
            return super().forward(x)
        state = self.weight.quant_state
        places = (self.weight.data_ptr(), state.absmax.data_ptr(), state.code.data_ptr(), pointer(self.bias))
        return self.library.multiply(x, CMatrix(*places, *state.shape, state.blocksize, NF4))


@torch.inference_mode()
def install(model: nn.Module, library: Library) -> str:
    """Give the 4-bit layers our product for the numbers of rows for which it is faster; what they compute by.

    Raises NotOurs, the model as it was, where one doesn't allow it, a sample differs from bitsandbytes', or ours is slower even for one row.
    """
    layers = [module for module in model.modules() if type(module) is Linear4bit]
    if not layers or not all(_fits(layer) for layer in layers):
        raise NotOurs("its 4-bit layers are of a form that our product doesn't know")
    try:
        for layer in layers:
            layer.library, layer.most_rows = library, LIMITS["many"]
            layer.__class__ = Nf4Linear
        if not all(_right(layer) for layer in {tuple(layer.weight.quant_state.shape): layer for layer in layers}.values()):
            raise NotOurs("our 4-bit product differs from bitsandbytes' here")
        kind = _faster_up_to(min(layers, key=lambda layer: abs(layer.weight.numel() - TRIED_BYTES)))
    except Exception:
        for layer in layers:
            layer.__class__ = Linear4bit
        raise
    for layer in layers:
        layer.most_rows = LIMITS[kind]
    return "own C" if kind == "many" else f"own C up to {LIMITS[kind]} row{'s' * (kind != 'one')}, else bitsandbytes"


def _fits(layer: Any) -> bool:
    state = layer.weight.quant_state
    return (
        state.quant_type == "nf4" and not state.nested and {state.absmax.dtype, state.code.dtype, state.dtype} == {torch.float32}
        and state.shape[1] % state.blocksize == 0 and state.blocksize % VECTOR == 0 and layer.weight.is_contiguous()
        and not layer.support_avx512bf16_for_cpu  # there bitsandbytes packs the weights anew at its first forward
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


def _faster_up_to(layer: Any) -> str:
    """The kind of the most rows up to which our product of this layer beats bitsandbytes'; raises NotOurs where not even for one."""
    found = None
    for kind, rows in ROWS.items():
        x = torch.randn(rows, layer.in_features, generator=torch.Generator().manual_seed(rows))
        if probe.best_s(partial(layer, x)) >= probe.best_s(partial(Linear4bit.forward, layer, x)):
            break
        found = kind
    if found is None:
        raise NotOurs("bitsandbytes' own 4-bit product is faster here")
    return found
