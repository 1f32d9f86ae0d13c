"""One tiny fine-tune in every form in which people bring one: each lane answers alike from all of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from peft import get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from inference.lane.lane import Lane
from inference.settings import Settings
from tests.support.adapters import lora
from tests.support.gguf_file import write_gguf
from tests.support.tiny import make_checkpoint

PROMPT_IDS = torch.tensor([[0, 5, 70, 300, 12, 33]])


def steps_of(parameter, largest):
    """Whole steps of 1/256, few enough for 16 bits of either kind."""
    return torch.randint(-largest, largest + 1, parameter.shape).to(parameter.dtype) / 256


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A base, an adapter over it, and the two merged by peft, all of whose values 16 bits of either kind hold."""
    folder = tmp_path_factory.mktemp("forms")
    base = make_checkpoint(folder / "base", "llama")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(steps_of(parameter, 50) if parameter.dim() > 1 else torch.ones_like(parameter))
        model.to(torch.bfloat16).save_pretrained(base)
        tuned = get_peft_model(model.float(), lora(r=1, lora_alpha=2))
        tuned.base_model.model.name_or_path = str(base)
        for name, parameter in tuned.named_parameters():
            if "lora_A" in name:
                parameter.copy_(torch.randint(-1, 2, parameter.shape))
            elif "lora_B" in name:
                parameter.copy_(torch.randint(-3, 4, parameter.shape) / 512)
        tuned.save_pretrained(folder / "adapter")
        tuned.merge_and_unload().save_pretrained(folder / "merged")
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(base / file, folder / "merged" / file)
    return folder


def saved(made: Path, out: Path, dtype: torch.dtype, **more) -> Path:
    shutil.copytree(made / "merged", out)
    (out / "model.safetensors").unlink()
    AutoModelForCausalLM.from_pretrained(made / "merged", dtype=dtype).save_pretrained(out, **more)
    return out


def untied(made: Path, out: Path) -> Path:
    shutil.copytree(made / "merged", out)
    model = AutoModelForCausalLM.from_pretrained(made / "merged", tie_word_embeddings=False)
    model.lm_head.weight = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    model.save_pretrained(out)
    assert "lm_head.weight" in load_file(out / "model.safetensors")
    return out


def pickled(made: Path, out: Path) -> Path:
    shutil.copytree(made / "merged", out)
    torch.save(load_file(out / "model.safetensors"), out / "pytorch_model.bin")
    (out / "model.safetensors").unlink()
    return out


def with_its_adapter_left_behind(made: Path, out: Path) -> Path:
    shutil.copytree(made / "merged", out)
    for file in (made / "adapter").iterdir():
        shutil.copy(file, out / file.name)
    return out


def over_a_base_in_fp32(made: Path, out: Path) -> Path:
    shutil.copytree(made / "base", out / "base")
    shutil.copytree(made / "adapter", out / "adapter")
    AutoModelForCausalLM.from_pretrained(made / "base", dtype=torch.float32).save_pretrained(out / "base")
    config = json.loads((out / "adapter" / "adapter_config.json").read_text())
    (out / "adapter" / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": str(out / "base")}))
    return out / "adapter"


FORMS: dict[str, Callable[[Path, Path], Path]] = {
    "adapter": lambda made, _: made / "adapter",
    "adapter over a base in FP32": over_a_base_in_fp32,
    "bf16": lambda made, out: saved(made, out, torch.bfloat16),
    "fp16": lambda made, out: saved(made, out, torch.float16),
    "sharded": lambda made, out: saved(made, out, torch.bfloat16, max_shard_size="50KB"),
    "untied": untied,
    "merged, its adapter left behind": with_its_adapter_left_behind,
    "pickle": pickled,
    "GGUF, F32": lambda made, out: write_gguf(made / "merged", out.with_suffix(".gguf"), Kind.F32),
    "GGUF, F16": lambda made, out: write_gguf(made / "merged", out.with_suffix(".gguf"), Kind.F16),
    "GGUF, BF16": lambda made, out: write_gguf(made / "merged", out.with_suffix(".gguf"), Kind.BF16),
}


def logits(lane: str, source: Path, cache: Path) -> torch.Tensor:
    loaded = Lane(lane, Settings(model_id=str(source), cache_dir=str(cache), allow_pickle=True, fast=()))
    loaded.load(lambda _: None)
    with torch.no_grad():
        return loaded.model(PROMPT_IDS).logits.float()


@pytest.fixture(scope="module")
def wanted(made, tmp_path_factory) -> dict[str, torch.Tensor]:
    """The logits of each lane from the whole model in FP32."""
    return {lane: logits(lane, made / "merged", tmp_path_factory.mktemp("cache")) for lane in ("cpu:fp32", "cpu:nf4")}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lane", ["cpu:fp32", "cpu:nf4"])
def test_every_form_of_one_fine_tune_gives_a_lane_the_same_logits(made, wanted, tmp_path, form, lane):
    got = logits(lane, FORMS[form](made, tmp_path / "form"), tmp_path / "cache")
    assert (got - wanted[lane]).abs().max() <= 1e-5 * wanted[lane].abs().max()
    assert (logits(lane, made / "base", tmp_path / "cache") - wanted[lane]).abs().max() > 0.1, "else the adapter changes nothing"
