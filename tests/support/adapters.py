"""Adapters over tiny checkpoints, made by peft, with random weights in every part that training would change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftConfig, get_peft_model
from transformers import AutoModelForCausalLM

TARGETS = ["q_proj", "v_proj", "down_proj"]


def lora(**more: Any) -> LoraConfig:
    return LoraConfig(**{"r": 4, "lora_alpha": 8, "target_modules": TARGETS, "task_type": "CAUSAL_LM", **more})


def make_adapter(folder: Path, base: Path, config: PeftConfig | None = None, rows: int = 0, seed: int = 1) -> Path:
    """An adapter over the checkpoint in `base`, its embeddings resized to `rows` before; returns the folder."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    if rows:
        model.resize_token_embeddings(rows)
        model.get_input_embeddings().weight.data[512:].normal_(0, 0.02)
    own = {id(parameter) for parameter in model.parameters()}
    tuned = get_peft_model(model, config or lora())
    with torch.no_grad():
        for parameter in tuned.parameters():
            if id(parameter) not in own and parameter.is_floating_point():
                parameter.add_(torch.randn_like(parameter), alpha=0.02)
    tuned.save_pretrained(folder)
    return folder
