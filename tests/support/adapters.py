"""Adapters over tiny checkpoints, made by peft, with random weights in every part that training would change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from inference.sources import checkpoints

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


PROMPT_IDS = torch.tensor([[0, 5, 70, 300, 12, 33]])


def find(folder, settings):
    return checkpoints.find(str(folder), settings, lambda _: None)


def in_fp32(base, adapter, rows=0):
    """The adapter on the base, all of it in FP32, not merged."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    if rows:
        model.resize_token_embeddings(rows)
    return PeftModel.from_pretrained(model, adapter).eval()


def logits(model):
    with torch.no_grad():
        return model(PROMPT_IDS).logits


def changed(adapter, **values):
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**config, **values}))
