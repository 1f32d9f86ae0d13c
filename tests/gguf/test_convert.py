"""A GGUF file becomes a checkpoint once, losing nothing; what is no such file is told."""

from __future__ import annotations

import inspect

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from inference.cache import manifest
from inference.errors import InferenceError
from inference.events import Request
from inference.gguf.reader import parsed_once
from tests.support.adapters import find
from tests.support.gguf_file import write_gguf
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
        ("m.gguf", b"", "is no GGUF file; download it again"),
        ("m-00001-of-00003.gguf", b"GGUF", "one of several parts"),
        ("model.safetensors", b"hello", "is no GGUF file; name the folder that it is in"),
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
