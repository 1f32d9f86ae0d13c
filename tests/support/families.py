"""A tiny random model of each family that people bring, small enough to try them all."""

from __future__ import annotations

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

IDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "tie_word_embeddings": False}
TINY = IDS | {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
SHORT = TINY | {"max_position_embeddings": 512}
WIDE = SHORT | {"head_dim": 32}
KINDS = ["sliding_attention", "full_attention"]
MULTIPLIERS = {"embedding_multiplier": 7.0, "residual_multiplier": 0.3, "logits_scaling": 5.0, "attention_multiplier": 0.2}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 64}
OLD = IDS | {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
# those that our own steps know, then those that are decoded eagerly
FAST: dict[str, tuple[str, dict]] = {
    "llama": ("llama", WIDE),
    "llama, tied": ("llama", WIDE | {"tie_word_embeddings": True}),
    "llama, biases": ("llama", WIDE | {"attention_bias": True, "mlp_bias": True}),
    "llama 3's rope": ("llama", WIDE | {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
                                                         "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}),
    "mistral, a window": ("mistral", WIDE | {"sliding_window": 12}),
    "qwen2": ("qwen2", SHORT),
    "qwen2, some windows": ("qwen2", SHORT | {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1}),
    "qwen3": ("qwen3", WIDE),
    "gemma": ("gemma", WIDE),
    "gemma2": ("gemma2", WIDE | {"sliding_window": 12, "layer_types": KINDS, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0}),
    "gemma3": ("gemma3_text", WIDE | {"sliding_window": 12, "layer_types": KINDS, "query_pre_attn_scalar": 24}),
    "smollm3": ("smollm3", SHORT | {"num_hidden_layers": 4, "no_rope_layer_interval": 2}),
    "granite": ("granite", SHORT | MULTIPLIERS),
    "olmo2": ("olmo2", SHORT),
    "olmo3": ("olmo3", SHORT | {"sliding_window": 12, "layer_types": KINDS}),
    "phi3": ("phi3", SHORT),
    "phi4-mini, part of a head": ("phi3", SHORT | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    "seed-oss": ("seed_oss", WIDE),
    "ministral3": ("ministral3", WIDE | {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 128,
                                                             "llama_4_scaling_beta": 0.5}}),
}  # fmt: skip
EAGER: dict[str, tuple[str, dict]] = {
    "olmo": ("olmo", SHORT), "stablelm": ("stablelm", SHORT), "cohere": ("cohere", SHORT), "cohere2": ("cohere2", SHORT | {"sliding_window": 12}),
    "glm": ("glm", WIDE), "glm4": ("glm4", WIDE), "nemotron": ("nemotron", WIDE), "arcee": ("arcee", WIDE), "helium": ("helium", WIDE | {"head_dim": 16}),
    "exaone4": ("exaone4", SHORT | {"sliding_window": 12, "sliding_window_pattern": 2}), "ernie4.5": ("ernie4_5", WIDE),
    "hunyuan": ("hunyuan_v1_dense", WIDE), "apertus": ("apertus", SHORT), "starcoder2": ("starcoder2", SHORT), "phi": ("phi", SHORT),
    "llama, dynamic rope": ("llama", WIDE | {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}),
    "phi3, longrope": ("phi3", SHORT | {"original_max_position_embeddings": 24, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 24, "short_factor": [1.0] * 8,
        "long_factor": [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]}}),
    "mixtral": ("mixtral", SHORT | {"num_local_experts": 4}), "qwen3 moe": ("qwen3_moe", WIDE | EXPERTS | {"num_experts": 4}),
    "gpt-neox": ("gpt_neox", OLD | {"intermediate_size": 128, "max_position_embeddings": 512}), "falcon": ("falcon", OLD),
    "gpt2": ("gpt2", IDS | {"vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}),
    "mamba2": ("mamba2", IDS | {"vocab_size": 512, "hidden_size": 64, "num_heads": 4, "head_dim": 32, "n_groups": 1, "state_size": 8, "num_hidden_layers": 2}),
    "mamba": ("mamba", IDS | {"vocab_size": 512, "hidden_size": 64, "state_size": 8, "num_hidden_layers": 2}),
}  # fmt: skip


def make(name: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> PreTrainedModel:
    """A model of the family `name`, its weights wide enough that a wrong formula shows and an answer does not repeat one token."""
    kind, values = (FAST | EAGER)[name]
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **values), dtype=torch.float32).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed" not in key:
                parameter.mul_(5)
            elif "norm" in key or key.endswith("bias"):
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    return model.to(dtype)
