"""Real bitsandbytes layers that compute in FP32, the same on every processor."""

from __future__ import annotations

import bitsandbytes as bnb
import torch
from torch import nn


def four_bit_layer(weight: torch.Tensor, bias: torch.Tensor | None = None) -> bnb.nn.Linear4bit:
    """A 4-bit layer of `weight` (n, k) FP32 as `from_pretrained` makes it where the processor has no bf16 products."""
    kind = {"quant_type": "nf4", "compress_statistics": False}
    layer = bnb.nn.Linear4bit(weight.shape[1], weight.shape[0], bias=bias is not None, compute_dtype=torch.float32, **kind)
    layer.weight = bnb.nn.Params4bit(weight.clone(), requires_grad=False, module=layer, **kind).to("cpu")
    layer.bias = None if bias is None else nn.Parameter(bias.clone(), requires_grad=False)
    layer.support_avx512bf16_for_cpu = False  # where the processor has them, bitsandbytes packs the weights anew for them
    return layer.eval()
