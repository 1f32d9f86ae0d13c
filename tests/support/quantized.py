"""Small random models of the families of `families.py`, of sizes that the CUDA kernels take, in 4 bits or as they are."""

from __future__ import annotations

from typing import Any

import bitsandbytes as bnb
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from inference.models import exact
from tests.support import families

SIZES = {"vocab_size": 500, "hidden_size": 128, "intermediate_size": 192, "head_dim": 64}
# what differs from SIZES: three query heads to a head of keys, heads of other sizes
OWN: dict[str, dict[str, Any]] = {
    "llama": {"hidden_size": 192, "num_attention_heads": 3, "num_key_value_heads": 1},
    "qwen3": {"head_dim": 128},
    "gemma2": {"head_dim": 32},
    "phi3": {"hidden_size": 192, "num_attention_heads": 2},  # heads of 96 columns
    "gemma3": {"head_dim": 256},
}
BY_WIDTH = ("qwen2", "qwen2, some windows", "smollm3", "granite", "olmo2", "olmo3", "phi3", "phi4-mini, part of a head")  # hidden / heads


def made(name: str, dtype: torch.dtype = torch.bfloat16) -> Any:
    """A small random model."""
    kind, values = families.FAST[name]
    sizes = SIZES | ({"head_dim": None, "num_attention_heads": 2} if name in BY_WIDTH else {}) | OWN.get(name, {})
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{key: value for key, value in (values | sizes).items() if value is not None})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed" not in key:
                parameter.mul_(3)
            elif "norm" in key or key.endswith("bias"):
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    return model.to(dtype)


def quantized(name: str, dtype: torch.dtype = torch.bfloat16, nested: bool = False) -> Any:
    """The same with 4-bit layers, as bitsandbytes makes them, that keep their weights unpacked."""
    model = made(name, dtype)
    for parent in list(model.modules()):
        for key, linear in list(parent.named_children()):
            if isinstance(linear, nn.Linear) and key != "lm_head":
                setattr(parent, key, four_bit(linear, nested))
    return model


def in_16_bits(model: Any) -> Any:
    """A model in float32 whose embedding and head hold bfloat16 values, kept as such: as on a card without bfloat16 arithmetic."""
    for weight in {id(part.weight): part.weight for part in (model.get_input_embeddings(), model.get_output_embeddings())}.values():
        weight.data = weight.data.bfloat16().float()
    exact.shrink(model)
    exact.install(model, exact.in_fp32)
    return model


def four_bit(linear: nn.Linear, nested: bool = False) -> bnb.nn.Linear4bit:
    """A linear module in 4 bits."""
    kind = {"quant_type": "nf4", "compress_statistics": nested}
    new = bnb.nn.Linear4bit(linear.in_features, linear.out_features, bias=linear.bias is not None, compute_dtype=linear.weight.dtype, **kind)
    new.weight = bnb.nn.Params4bit(linear.weight.data.clone(), requires_grad=False, module=new, **kind).to("cpu")
    new.bias, new.support_avx512bf16_for_cpu = linear.bias, False
    return new
