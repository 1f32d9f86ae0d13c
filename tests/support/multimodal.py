"""A tiny Gemma-3 with a vision part, as the Hub has the larger ones."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import Gemma3Config, Gemma3ForConditionalGeneration

from tests.support.tiny import make_tokenizer

TEXT = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 32, "max_position_embeddings": 512,
}  # fmt: skip
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}


def make_multimodal(folder: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    """A saved checkpoint with its tokenizer; returns the folder."""
    config = Gemma3Config(text_config=TEXT, vision_config=VISION, mm_tokens_per_image=4, boi_token_index=508, eoi_token_index=509, image_token_index=510)
    torch.manual_seed(0)
    model = Gemma3ForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.02 if "embed" in name else 0.2)
            elif "post_" in name:
                parameter.fill_(3.0)
    model.to(dtype).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder
