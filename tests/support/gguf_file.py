"""A tiny checkpoint as a GGUF file, as llama.cpp's converter writes it: a Llama, or another of the families that it stores under the same names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.torch import load_file


def write_gguf(
    checkpoint: Path,
    file: Path,
    kind: gguf.GGMLQuantizationType,
    architecture: str = "llama",
    template: str = "",
    scaling: float | list[float] = 1,
    **said: int,
) -> Path:
    """`checkpoint` as the GGUF file `file`, its matrices stored as `kind`; `scaling`: the rotary one, linear or a divisor a frequency; `said`: keys of its family."""
    config = json.loads((checkpoint / "config.json").read_text())
    writer = gguf.GGUFWriter(file, architecture)
    _add_settings(writer, config)
    for key, value in said.items():
        writer.add_uint32(f"{architecture}.{key.replace('__', '.')}", value)
    _add_tokenizer(writer, checkpoint, config["vocab_size"])
    if isinstance(scaling, list):
        writer.add_tensor("rope_freqs.weight", np.array(scaling, dtype=np.float32))
    elif scaling != 1:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling)
    if template:
        writer.add_chat_template(template)
        writer.add_add_bos_token(False)
        writer.add_tokenizer_pre("gpt-2")
    _add_weights(writer, checkpoint, config, kind, architecture)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _add_settings(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rope = config["rope_parameters"].get("full_attention", config["rope_parameters"])
    writer.add_name("tiny")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config.get("rms_norm_eps", 1e-5))
    writer.add_layer_norm_eps(config.get("norm_epsilon", 1e-5))
    writer.add_key_length(head_dim)
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])


def _add_weights(writer: gguf.GGUFWriter, checkpoint: Path, config: dict[str, Any], kind: gguf.GGMLQuantizationType, architecture: str) -> None:
    known = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(known.get(architecture, gguf.MODEL_ARCH.LLAMA), config["num_hidden_layers"])
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        values = tensor.float().numpy()
        for part, heads in (("q_proj", config["num_attention_heads"]), ("k_proj", config["num_key_value_heads"])):
            if part in name and architecture == "llama":
                values = values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            values = values + 1
        stored = kind if values.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), gguf.quantize(np.ascontiguousarray(values), stored), raw_dtype=stored)


def _add_tokenizer(writer: gguf.GGUFWriter, checkpoint: Path, rows: int) -> None:
    found: dict[str, Any] = json.loads((checkpoint / "tokenizer.json").read_text())
    ids = {**found["model"]["vocab"], **{token["content"]: token["id"] for token in found["added_tokens"]}}
    by_id = {id: token for token, id in ids.items()}
    special = {token["id"] for token in found["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([by_id.get(id, f"[unused{id}]") for id in range(rows)])
    writer.add_token_types([gguf.TokenType.CONTROL if id in special else gguf.TokenType.NORMAL for id in range(rows)])
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in found["model"]["merges"]])
    for add, id in ((writer.add_bos_token_id, 0), (writer.add_eos_token_id, 1), (writer.add_pad_token_id, 2)):
        add(id)
