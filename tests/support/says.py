"""A tiny checkpoint that says fixed words: its untied head maps each token of a list to the next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def make_says(folder: Path, tokenizer: Any, chain: Sequence[int], rows: int = 512) -> Path:
    """A saved checkpoint that goes on from `chain[0]` (a prompt's last id) with the rest of the chain, whose ids are all different."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    assert len(set(chain)) == len(chain)
    config = AutoConfig.for_model(
        "llama", vocab_size=rows, hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        max_position_embeddings=512, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1, pad_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed" in name:
                parameter.normal_(0, 1)
            elif parameter.dim() > 1:
                parameter.normal_(0, 1e-4)
        words, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        for this, following in zip(chain, chain[1:], strict=False):
            head[following] = torch.nn.functional.normalize(words[this], dim=0)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return folder
