"""Checkpoints of two layers with random weights and a real byte-level tokenizer, for tests that need files and numbers."""

from __future__ import annotations

from pathlib import Path

TEMPLATE = "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m['role'] }}\n{{ m['content'] }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
SPECIAL = ["<bos>", "<eos>", "<pad>", "<start_of_turn>", "<end_of_turn>"]
TEXTS = ["hello good morning may i see the menu", "ok i want two chicken biryani with couple of drinks", "def f(x):\n    return x\n\n"]


def make_tokenizer(with_template: bool = True):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        extra_special_tokens=SPECIAL[3:],
        clean_up_tokenization_spaces=False,
    )
    if with_template:
        fast.chat_template = TEMPLATE
    return fast


def make_checkpoint(folder: Path, kind: str = "gemma3_text", seed: int = 0, with_template: bool = True, context: int = 512) -> Path:
    """A saved bf16 checkpoint with its tokenizer; returns the folder."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = make_tokenizer(with_template)
    config = AutoConfig.for_model(
        kind, vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, max_position_embeddings=context, tie_word_embeddings=True, bos_token_id=0, eos_token_id=1, pad_token_id=2,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.02 if "embed" in name else 0.2)  # tied weights as they come repeat one token
            elif "post_" in name and kind.startswith("gemma"):
                parameter.fill_(3.0)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return folder
