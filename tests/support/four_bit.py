"""Real bitsandbytes layers that compute in FP32, the same on every processor; and what comes out of 4 bits again."""

from __future__ import annotations

from pathlib import Path

import bitsandbytes as bnb
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from safetensors.torch import load_file, save_file
from torch import nn

from tests.support.tiny import make_checkpoint


def four_bit_layer(weight: torch.Tensor, bias: torch.Tensor | None = None, nested: bool = False) -> bnb.nn.Linear4bit:
    """A 4-bit layer of `weight` (n, k) FP32 as `from_pretrained` makes it where the processor has no bf16 products."""
    kind = {"quant_type": "nf4", "compress_statistics": nested}
    layer = bnb.nn.Linear4bit(weight.shape[1], weight.shape[0], bias=bias is not None, compute_dtype=torch.float32, **kind)
    layer.weight = bnb.nn.Params4bit(weight.clone(), requires_grad=False, module=layer, **kind).to("cpu")
    layer.bias = None if bias is None else nn.Parameter(bias.clone(), requires_grad=False)
    layer.support_avx512bf16_for_cpu = False  # where the processor has them, bitsandbytes packs the weights anew for them
    return layer.eval()


def by_nf4(weight: torch.Tensor) -> torch.Tensor:
    """As bitsandbytes stores a matrix: blocks of 64 over all of its values, whatever its rows are."""
    row = weight.reshape(1, -1)  # given back as rows on a CPU, it takes each row's blocks for whole ones
    return dequantize_4bit(*quantize_4bit(row, quant_type="nf4", blocksize=64)).reshape(weight.shape)


def dequantized(folder: Path) -> Path:
    """The tiny checkpoint, its layers as they come out of a 4-bit file."""
    make_checkpoint(folder, "llama")
    tensors = load_file(folder / "model.safetensors")
    layers = {name: by_nf4(tensor.float()).bfloat16() if "proj" in name else tensor for name, tensor in tensors.items()}
    save_file(layers, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
