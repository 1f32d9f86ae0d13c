"""A GGUF file and, where it is allowed, pickled weights become a checkpoint once, losing nothing; what can't is told."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from inference.cache import manifest
from inference.errors import InferenceError
from inference.events import Request
from inference.settings import Settings
from inference.sources.formats import parsed_once
from tests.support.adapters import find
from tests.support.gguf_file import write_gguf
from tests.support.kinds import change_config
from tests.support.real import answer, loaded_lane
from tests.support.tiny import make_checkpoint


@pytest.fixture
def folder(tmp_path):
    return make_checkpoint(tmp_path / "m", "llama")


def weights(folder):
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def test_transformers_asks_gguf_for_what_is_read_once():
    from transformers import modeling_gguf_pytorch_utils

    source = inspect.getsource(modeling_gguf_pytorch_utils)
    assert "from gguf import GGUFReader" in source and "get_tensor_name_map" in source, "asked for at each call, so that ours is found"
    own = gguf.get_tensor_name_map
    with parsed_once():
        assert gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2) is gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    assert gguf.get_tensor_name_map is own


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_gguf_file_of_plain_values_loses_none_of_them(tmp_path, folder, settings, kind, dtype):
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + torch.rand_like(parameter) / 8)
    model.to(dtype).save_pretrained(folder)
    found = find(write_gguf(folder, tmp_path / "m.gguf", kind), settings)
    assert found.note.startswith(f"from a GGUF file, whose weights are {kind.name}") and "its tokenizer was rebuilt" in found.note
    as_written = {Kind.F32: torch.float32, Kind.F16: torch.float16, Kind.BF16: torch.bfloat16}[kind]
    own = {name: tensor.to(as_written) if tensor.dim() > 1 else tensor for name, tensor in weights(folder).items()}
    got = weights(found.folder)
    assert set(own) == set(got) and all(torch.equal(own[name].float(), got[name].float()) for name in own)
    assert {tensor.dtype for tensor in got.values()} == {_smallest(own)}


def _smallest(tensors):
    exact = [dtype for dtype in (torch.bfloat16, torch.float16) if all(torch.equal(one.to(dtype).float(), one.float()) for one in tensors.values())]
    return [*exact, torch.float32][0]


def test_values_that_no_16_bits_hold_stay_in_fp32(tmp_path, folder, settings):
    found = find(write_gguf(folder, tmp_path / "m.gguf", Kind.Q8_0), settings)
    assert "Q8_0" in found.note and {tensor.dtype for tensor in weights(found.folder).values()} == {torch.float32}
    matrix = "model.layers.0.mlp.down_proj.weight"
    own = weights(folder)[matrix].float().numpy()
    assert np.array_equal(weights(found.folder)[matrix].numpy(), gguf.dequantize(gguf.quantize(own, Kind.Q8_0), Kind.Q8_0))


def test_both_lanes_answer_from_a_gguf_file_as_from_the_folder_it_was_made_of(tmp_path, folder):
    file = write_gguf(folder, tmp_path / "m.gguf", Kind.BF16)
    request = Request("hello may i see the menu", format="raw", max_new_tokens=6)
    for name in ("cpu:fp32", "cpu:nf4"):
        lanes = [loaded_lane(name, str(source), tmp_path / "cache") for source in (file, folder)]
        assert lanes[0].source.encode(request) == lanes[1].source.encode(request)
        assert answer(lanes[0], request).token_ids == answer(lanes[1], request).token_ids
        assert "GGUF" in lanes[0].facts.note


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


def test_a_gguf_file_is_converted_once_and_anew_when_it_or_the_copy_changed(tmp_path, folder, settings):
    source = write_gguf(folder, tmp_path / "m.gguf", Kind.BF16)
    file = find(source, settings).folder / "model.safetensors"
    stamp, digest = file.stat().st_mtime_ns, manifest.digest(file)
    assert find(source, settings).folder == file.parent and file.stat().st_mtime_ns == stamp
    write_gguf(make_checkpoint(tmp_path / "m", "llama", seed=1), source, Kind.BF16)
    find(source, settings)
    assert manifest.digest(file) != digest
    file.write_bytes(b"")
    assert "made anew" in find(source, settings).note


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("m.gguf", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer"),
        ("m.gguf", b"", "is no GGUF file"),
        ("m-00001-of-00003.gguf", b"GGUF", "one of several parts"),
        ("notes.txt", b"hello", "is no GGUF file"),
        ("king-of-hearts.gguf", b"GGUF", "is a GGUF file that can't be read"),
    ],
)
def test_a_file_that_is_no_model_gets_a_sentence(tmp_path, settings, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InferenceError, match=words):
        find(tmp_path / name, settings)


def test_a_gguf_file_of_an_unknown_architecture_or_cut_short_gets_a_sentence(tmp_path, folder, settings):
    with pytest.raises(InferenceError, match="can't be read .*architecture starling.*safetensors instead"):
        find(write_gguf(folder, tmp_path / "m.gguf", Kind.F16, "starling"), settings)
    whole = write_gguf(folder, tmp_path / "cut.gguf", Kind.F16)
    whole.write_bytes(whole.read_bytes()[:50_000])
    with pytest.raises(InferenceError, match="cut.gguf"):
        find(whole, settings)


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
