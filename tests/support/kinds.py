"""Tiny random checkpoints of many kinds of model, and the forms in which one and the same model is saved."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from tests.support.tiny import make_tokenizer

IDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
FORMER = IDS | {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
PLAIN = FORMER | {"intermediate_size": 128, "max_position_embeddings": 512}
GROUPED = PLAIN | {"num_key_value_heads": 2}
WIDE = GROUPED | {"head_dim": 32}
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
KINDS: dict[str, tuple[str, dict]] = {
    "llama, tied": ("llama", WIDE | {"tie_word_embeddings": True}),
    "llama, untied": ("llama", WIDE | {"tie_word_embeddings": False}),
    "gemma3_text": ("gemma3_text", WIDE),
    "gemma3, multimodal": ("gemma3", {"text_config": WIDE, "vision_config": VISION, "mm_tokens_per_image": 4}),
    "qwen2, biases": ("qwen2", GROUPED),
    "qwen3": ("qwen3", WIDE),
    "qwen3_moe": ("qwen3_moe", WIDE | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}),
    "mixtral": ("mixtral", GROUPED | {"num_local_experts": 4}),
    "mistral": ("mistral", WIDE),
    "phi3": ("phi3", GROUPED),
    "olmo2": ("olmo2", GROUPED),
    "gemma2": ("gemma2", WIDE),
    "gpt2, Conv1D": ("gpt2", IDS | {"vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}),
    "gpt_neox": ("gpt_neox", PLAIN),
    "opt": ("opt", FORMER | {"ffn_dim": 128, "word_embed_proj_dim": 64, "max_position_embeddings": 512}),
    "falcon, own linear": ("falcon", FORMER),
}  # fmt: skip
NOT_IN_4_BITS = {"falcon, own linear"}
FORMS = ("text", "multimodal", "multimodal, the Hub's names", "multimodal, sharded", "text, sharded")


def make_kind(folder: Path, name: str, dtype: torch.dtype = torch.bfloat16) -> Path:
    """A saved checkpoint of the kind `name`, without a tokenizer."""
    kind, values = KINDS[name]
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **values), dtype=dtype).save_pretrained(folder)
    return folder


def make_form(folder: Path, form: str, dtype: torch.dtype = torch.bfloat16, tied: bool = True) -> Path:
    """The one tiny Gemma-3, its values exact in both 16-bit formats, in one of the FORMS."""
    text = {**WIDE, "tie_word_embeddings": tied}
    if form.startswith("multimodal"):
        config = AutoConfig.for_model("gemma3", text_config=text, vision_config=VISION, mm_tokens_per_image=4, tie_word_embeddings=tied, **IDS)
    else:
        config = AutoConfig.for_model("gemma3_text", **text)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    _fill(model)
    model.to(dtype).save_pretrained(folder, max_shard_size="100KB" if "sharded" in form else "5GB")
    make_tokenizer().save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if "Hub" in form:
        tensors = load_file(folder / "model.safetensors")
        save_file({_hub_name(name): tensor for name, tensor in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    return folder


def _hub_name(name: str) -> str:
    for new, old in (("model.language_model.", "language_model.model."), ("lm_head.", "language_model.lm_head."), ("model.", "")):
        if name.startswith(new):
            return old + name.removeprefix(new)
    return name


def _fill(model: PreTrainedModel) -> None:
    """Values by the parameter's own name in a text model, so that every form has the same."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            short = name.replace("language_model.", "")
            torch.manual_seed(sum(short.encode()))
            scale = 0.02 if "embed" in short else 0.2
            values = torch.randn(parameter.shape) * scale if parameter.dim() > 1 else torch.full(parameter.shape, 3.0 if "post_" in short else 0.5)
            values = values.bfloat16().float()
            parameter.copy_(torch.where(values.abs() < 2**-14, 0.0, values))


def change_config(folder: Path, **values: object) -> Path:
    """Set fields of a checkpoint's config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    return folder
