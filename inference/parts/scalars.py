"""The numbers and switches that models of the known families carry: what is not among them may change what a model computes, and is refused.

Only what a class declares counts: a stray key in somebody's config.json is read by no code. A value that is off (None, False, 0) says nothing.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import nn
from transformers import PretrainedConfig

from inference.parts.description import NotUnderstood

_SIZES = {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"}
_IDS = {"pad_token_id", "bos_token_id", "eos_token_id", "padding_idx"}
# a dropout does nothing in eval, and the sizes and biases show in the matrices themselves
_NO_EFFECT = {
    "attention_dropout", "residual_dropout", "embedding_dropout", "resid_pdrop", "embd_pdrop", "initializer_range", "pretraining_tp", "use_cache",
    "tie_word_embeddings", "attention_bias", "mlp_bias", "max_position_embeddings", "original_max_position_embeddings", "gradient_checkpointing",
    "is_quantized", "is_loaded_in_4bit", "is_4bit_serializable", "has_sliding_layers", "layer_idx", "num_heads", "num_key_value_groups", "is_causal", "training",
}  # fmt: skip
# read by `reader.py` or by the model's rotary module, which is tried
_READ = {
    "rms_norm_eps", "query_pre_attn_scalar", "attention_multiplier", "scaling", "attn_logit_softcapping", "final_logit_softcapping", "embedding_multiplier",
    "residual_multiplier", "logits_scaling", "sliding_window", "use_sliding_window", "max_window_layers", "is_sliding", "use_rope",
    "no_rope_layer_interval", "partial_rotary_factor", "rope_theta",
}  # fmt: skip
# of a rotary embedding: all that its module reads, which is tried
_ROPE = {
    "rope_theta", "factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate", "finetuned",
    "low_freq_factor", "high_freq_factor", "partial_rotary_factor",
}  # fmt: skip
GROWING = "llama_4_scaling_beta"  # queries are scaled by their position, from the original length on
KNOWN = _SIZES | _IDS | _NO_EFFECT | _READ


def check_config(config: PretrainedConfig) -> None:
    """Raise NotUnderstood for a number or switch that the configuration's class declares, that is on, and that nobody here knows."""
    declared = {field.name for field in dataclasses.fields(config)} - {field.name for field in dataclasses.fields(PretrainedConfig)}
    _check("its configuration", {name: getattr(config, name, None) for name in declared})


def check_module(what: str, module: nn.Module) -> None:
    """The same for a module's own attributes."""
    _check(what, {name: value for name, value in vars(module).items() if not name.startswith("_")})


def check_rope(config: PretrainedConfig) -> int:
    """The same for the numbers of its rotary embedding, whoever reads them; the positions up to which its queries are not scaled by theirs, 0 for any."""
    parameters: Any = getattr(config, "rope_parameters", None) or {}
    most = 0
    for rope in filter(lambda each: isinstance(each, dict), (parameters, *parameters.values())):
        _check("its rotary embedding", {name: value for name, value in rope.items() if name not in _ROPE | {GROWING}})
        if rope.get(GROWING):
            most = int(rope.get("original_max_position_embeddings") or 1)
    return most


def _check(what: str, values: dict[str, Any]) -> None:
    for name, value in sorted(values.items()):
        if isinstance(value, int | float) and value and name not in KNOWN:
            raise NotUnderstood(f"{what} sets {name} to {value}")
