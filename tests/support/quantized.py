"""Small random models with 4-bit layers, for tests of the kernels that know their parts."""

from __future__ import annotations

from typing import Any

import bitsandbytes as bnb
import torch
from torch import nn
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

SMALL = {"vocab_size": 500, "num_hidden_layers": 2, "tie_word_embeddings": True}
MODELS = {
    "gemma": lambda: Gemma3ForCausalLM(Gemma3TextConfig(
        vocab_size=500, num_hidden_layers=2, hidden_size=128, intermediate_size=256, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
        sliding_window=12, layer_types=["sliding_attention", "full_attention"], query_pre_attn_scalar=64)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL, hidden_size=192, intermediate_size=256, num_attention_heads=3, num_key_value_heads=1)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SMALL, hidden_size=128, intermediate_size=192, num_attention_heads=4, num_key_value_heads=2, head_dim=128)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SMALL, hidden_size=128, intermediate_size=192, num_attention_heads=2, num_key_value_heads=2)),
}  # fmt: skip


def quantized(name: str) -> Any:
    """A small random model with 4-bit layers, as bitsandbytes makes them, that keep their weights unpacked."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    model = MODELS[name]().eval()
    torch.set_default_dtype(torch.float32)
    for key, weight in model.named_parameters():
        if "norm" in key or key.endswith("bias"):
            weight.data += torch.randn(weight.shape).bfloat16() * 0.2
        elif "proj.weight" in key:
            weight.data *= 3
    for parent in list(model.modules()):
        for key, linear in list(parent.named_children()):
            if isinstance(linear, nn.Linear) and key != "lm_head":
                setattr(parent, key, four_bit(linear))
    return model


def four_bit(linear: nn.Linear) -> bnb.nn.Linear4bit:
    kind = {"quant_type": "nf4", "compress_statistics": False}
    new = bnb.nn.Linear4bit(linear.in_features, linear.out_features, bias=linear.bias is not None, compute_dtype=torch.bfloat16, **kind)
    new.weight = bnb.nn.Params4bit(linear.weight.data.clone(), requires_grad=False, module=new, **kind).to("cpu")
    new.bias, new.support_avx512bf16_for_cpu = linear.bias, False
    return new
