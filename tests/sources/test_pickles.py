"""Pickled weights become a checkpoint once, where that is allowed, and nothing in them is run; elsewhere they are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from inference.errors import InferenceError
from inference.settings import Settings
from tests.support.adapters import find
from tests.support.tiny import make_checkpoint


@pytest.fixture
def folder(tmp_path):
    return make_checkpoint(tmp_path / "m", "llama")


def weights(folder):
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def pickled(folder: Path, shards: int = 1) -> Path:
    """The checkpoint in `folder` with its weights as pickles instead, the tied head beside them."""
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    (folder / "model.safetensors").unlink()
    if shards == 1:
        torch.save(tensors, folder / "pytorch_model.bin")
        return folder
    weight_map = {name: f"pytorch_model-{number % shards + 1:05}-of-{shards:05}.bin" for number, name in enumerate(tensors)}
    for file in set(weight_map.values()):
        torch.save({name: tensors[name] for name in tensors if weight_map[name] == file}, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def test_pickled_weights_are_refused_with_how_to_save_them_again(folder, settings):
    with pytest.raises(InferenceError, match="pickle files .*can run code.*save_pretrained.*ALLOW_PICKLE"):
        find(pickled(folder), settings)


@pytest.mark.parametrize("shards", [1, 3])
def test_where_pickles_are_allowed_they_are_converted_once_tensor_for_tensor(tmp_path, folder, shards):
    own, logits_of = weights(folder), lambda at: AutoModelForCausalLM.from_pretrained(at)(torch.tensor([[0, 5, 7]])).logits
    expected = logits_of(folder)
    settings = Settings(cache_dir=str(tmp_path / "cache"), allow_pickle=True)
    found = find(pickled(folder, shards), settings)
    got = weights(found.folder)
    assert all(torch.equal(got[name], tensor) and got[name].dtype == tensor.dtype for name, tensor in own.items())
    assert torch.equal(logits_of(found.folder), expected) and "pickle" in found.note
    assert AutoTokenizer.from_pretrained(found.folder).chat_template
    stamp = next(found.folder.glob("*.safetensors")).stat().st_mtime_ns
    assert next(find(folder, settings).folder.glob("*.safetensors")).stat().st_mtime_ns == stamp


def test_a_pickle_of_the_old_format_is_read_too(tmp_path, folder):
    """torch before 1.6 wrote no zip archive; many .bin files on the Hub are of that time."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    found = find(folder, Settings(cache_dir=str(tmp_path / "cache"), allow_pickle=True))
    got = weights(found.folder)
    assert all(torch.equal(got[name], tensor) for name, tensor in tensors.items())


def test_a_pickle_that_would_run_something_is_not_read(tmp_path, folder):
    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    pickled(folder)
    torch.save({"model.norm.weight": Trap()}, folder / "pytorch_model.bin")
    with pytest.raises(InferenceError, match="holds more than tensors"):
        find(folder, Settings(cache_dir=str(tmp_path / "cache"), allow_pickle=True))
    assert not (tmp_path / "ran").exists()
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert (tmp_path / "ran").exists(), "else this test shows nothing"
