"""Of a GGUF file of each family the converted checkpoint computes what the file's source does, or the file is refused: transformers leaves settings out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from inference.errors import InferenceError
from tests.support import families
from tests.support.adapters import find
from tests.support.gguf_file import write_gguf
from tests.support.kinds import change_config
from tests.support.tiny import make_checkpoint, make_tokenizer

SHORT, TIED = families.SHORT, {"tie_word_embeddings": True}
WINDOW = {"attention__sliding_window": 12}


def rope(theta: float = 1e4, **more: float) -> dict:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}


def gguf_of(kind: str, values: dict, folder: Path, **said: int) -> Path:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **values), dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter) * (0.05 if "embed" in name else 0.2))
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return write_gguf(folder, folder.with_suffix(".gguf"), Kind.F32, kind.removesuffix("_text"), **said)


@pytest.mark.parametrize(
    ("kind", "values", "said", "words"),
    [
        ("llama", families.WIDE | TIED, {}, ""),
        ("qwen2", SHORT | rope(1e6), {}, ""),
        ("qwen3", SHORT | {"head_dim": 128}, {}, ""),
        ("gemma2", families.WIDE | TIED | {"sliding_window": 12}, WINDOW, ""),
        ("gemma3_text", families.WIDE | TIED | {"sliding_window": 12, "num_hidden_layers": 7}, WINDOW, ""),
        ("gemma2", families.WIDE | TIED | {"num_hidden_layers": 46, "sliding_window": 12, "query_pre_attn_scalar": 16}, WINDOW, "query_pre_attn_scalar=16"),
        ("phi3", SHORT | rope(partial_rotary_factor=0.5), {}, '"partial_rotary_factor": 0.5'),
        ("phi3", SHORT | {"sliding_window": 12}, WINDOW, "sliding_window=12"),
        ("starcoder2", SHORT | TIED | rope(1e5), {}, '"rope_theta": 100000.0'),
        ("stablelm", SHORT | rope(1e5, partial_rotary_factor=0.5), {}, '"rope_theta": 100000.0, "partial_rotary_factor": 0.5'),
    ],
)
@torch.no_grad()
def test_a_converted_model_is_its_source(kind: str, values: dict, said: dict, words: str, tmp_path, settings) -> None:
    """StarCoder 2's rotary base, Phi-3's window, the part of a head that is rotated, the scale of a Gemma of 27B were others, without a word."""
    found = find(gguf_of(kind, values, tmp_path / "m", **said), settings)
    own, got = (load_file(folder / "model.safetensors") for folder in (tmp_path / "m", found.folder))
    assert set(own) == set(got) and all(torch.allclose(own[name], got[name].float(), atol=1e-6) for name in own)
    ids = torch.randint(3, 400, (1, 100), generator=torch.Generator().manual_seed(0))
    right, ours = (AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(ids).logits for folder in (tmp_path / "m", found.folder))
    assert (ours - right).norm() < 1e-4 * right.norm()
    assert words in found.note and bool(words) == ("are put in" in found.note)


@pytest.mark.parametrize(("bias", "name"), [("attention_bias", "attn_k.bias"), ("mlp_bias", "ffn_down.bias")])
def test_a_tensor_that_would_be_left_out_is_told(bias: str, name: str, tmp_path, settings) -> None:
    with pytest.raises(InferenceError, match=rf"tensors that transformers leaves out, the first of them blk\.0\.{name}"):
        find(gguf_of("llama", families.WIDE | {bias: True}, tmp_path / "m"), settings)


@pytest.fixture
def folder(tmp_path):
    return make_checkpoint(tmp_path / "m", "llama")


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def divisors(folder, scaling):
    """What llama.cpp's converter makes of Llama 3's scaling: what each frequency is divided by."""
    plain = AutoModelForCausalLM.from_pretrained(folder).model.rotary_emb.inv_freq
    change_config(folder, rope_parameters={"rope_theta": 1e4, **scaling})
    return (plain / AutoModelForCausalLM.from_pretrained(folder).model.rotary_emb.inv_freq).tolist()


@pytest.mark.parametrize("scaling", [{"rope_type": "linear", "factor": 4.0}, LLAMA3], ids=["linear", "llama3"])
def test_the_rotary_scaling_of_a_gguf_file_is_kept_and_told(tmp_path, folder, settings, scaling):
    """transformers leaves it out: a Llama 3.2 or a Gemma 3 4B from a GGUF file answered as another model, without a word."""
    change_config(folder, rope_parameters={"rope_theta": 1e4, "rope_type": "default"})
    each = divisors(folder, scaling)
    found = find(write_gguf(folder, tmp_path / "m.gguf", Kind.BF16, scaling=each if scaling is LLAMA3 else scaling["factor"]), settings)
    assert "its settings that transformers leaves out are put in: rope_parameters=" in found.note
    ids = torch.arange(5, 200)[None]
    ours, right = (AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32)(ids).logits for where in (found.folder, folder))
    assert (ours - right).abs().max() < 1e-4 * right.abs().max()


def test_a_rotary_scaling_that_is_not_known_is_refused(tmp_path, folder, settings):
    with pytest.raises(InferenceError, match="not Llama 3's"):
        find(write_gguf(folder, tmp_path / "m.gguf", Kind.BF16, scaling=[1.0] * 8 + [3.0] * 8), settings)
