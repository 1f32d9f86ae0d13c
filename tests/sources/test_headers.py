"""The headers of safetensors files, and what is said of a file that is none or not whole."""

import json
import re
import struct

import pytest
import torch
from safetensors.torch import save_file

from inference.errors import InferenceError
from inference.settings import Settings
from inference.sources import files
from inference.sources.at_hand import at_hand
from inference.sources.headers import tensors_in, tensors_of

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3), "b": torch.zeros(5, dtype=torch.uint8)}, path, {"format": "pt"})
    return path


def test_shapes_dtypes_and_places_are_those_of_the_file(file):
    found = tensors_of(file.parent)
    assert {name: (stored.shape, stored.dtype, stored.bytes) for name, stored in found.items()} == {"a": ((2, 3), "BF16", 12), "b": ((5,), "U8", 5)}
    raw = file.read_bytes()[found["a"].offset :][:12]
    assert torch.equal(torch.frombuffer(bytearray(raw), dtype=torch.bfloat16), torch.arange(6, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (POINTER, "Git LFS pointer.*git lfs pull"),
        (b"", "is empty"),
        (b"abc", "no safetensors file"),
        (b"PK\x03\x04" + bytes(100), "no safetensors file but a zip archive, as PyTorch's pickles are"),
        (b"<!DOCTYPE html><html></html>", "no safetensors file but a web page"),
        (b"GGUF" + bytes(100), "no safetensors file but a GGUF file"),
        (struct.pack("<Q", 2) + b"[]", "no safetensors file"),
        (struct.pack("<Q", 21) + b'{"__metadata__": [3]}', "no safetensors file"),
        (struct.pack("<Q", 5) + b'{"a":', "no safetensors file"),
        (struct.pack("<Q", 500) + b"{}", "cut short: its header alone"),
    ],
)
def test_a_file_that_is_no_whole_safetensors_file_is_told_as_what_it_is(file, content, words):
    """A Git LFS pointer was "a fault of the lane; the log has the trace"."""
    file.write_bytes(content)
    with pytest.raises(InferenceError, match=f"model.safetensors .*{words}"):
        tensors_of(file.parent)


def test_a_cut_file_is_told(file):
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(InferenceError, match="cut short.*Copy or download it again"):
        tensors_in(file)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["b"].update(data_offsets=[7, 12]),
        lambda header: header.update(c=dict(header["b"])),
        lambda header: header["a"].update(dtype="F16", shape=[0], data_offsets=[0, 0]),
        lambda header: header.pop("b"),
    ],
    ids=["overlapping", "two names for the same bytes", "a hole", "bytes at the end"],
)
def test_tensors_that_do_not_lie_side_by_side_are_a_damaged_file(file, change):
    raw = file.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    change(header)
    made = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(made)) + made + raw[8 + length :])
    with pytest.raises(InferenceError, match="is damaged: its tensors overlap, or bytes of it belong to none"):
        tensors_in(file)


def test_a_tensor_that_two_files_hold_is_told_with_both(file):
    for name in ("one", "two"):
        file.with_name(f"{name}.safetensors").write_bytes(file.read_bytes())
    file.rename(file.with_name("kept"))
    (file.parent / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
    with pytest.raises(InferenceError, match="two.safetensors holds a, and so does .*one.safetensors: it can't be told which is meant"):
        tensors_of(file.parent)


def test_an_index_that_names_a_missing_file_is_told(file):
    file.rename(file.with_name("one.safetensors"))
    (file.parent / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "one.safetensors", "c": "two.safetensors"}}))
    with pytest.raises(InferenceError, match="two.safetensors is named by the index .* not in"):
        tensors_of(file.parent)
    (file.parent / "two.safetensors").symlink_to("../../blobs/0")
    with pytest.raises(InferenceError, match="two.safetensors in .* is a link to a file that is not there"):
        tensors_of(file.parent)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "is empty"),
        (b"[]", "is no JSON object"),
        (b"{}", "is no index: its weight_map names no files"),
        (b'{"weight_map": 3}', "is no index"),
        (b'{"weight_map": {"a": 5, "b": "one.safetensors"}}', "is no index"),
        (b'{"weight_map": "\xe9', "is cut off or damaged"),
        (b"[" * 20_000, "is cut off or damaged"),
        (b"version https://git-lfs.github.com/spec/v1", "is a Git LFS pointer"),
        (b'{"weight_map": {"a": "../one.safetensors"}}', "no index of files in its own folder: it names '../one.safetensors'"),
        (b'{"weight_map": {"a": "/etc/passwd"}}', "no index of files in its own folder: it names '/etc/passwd'"),
        (b'{"weight_map": {"a": ""}}', "no index of files in its own folder"),
    ],
)
def test_an_index_that_is_none_is_told_by_every_reader_of_the_folder(file, text, words):
    (file.parent.parent / "one.safetensors").write_bytes(file.read_bytes())
    file.rename(file.with_name("one.safetensors"))
    (file.parent / "model.safetensors.index.json").write_bytes(text)
    (file.parent / "config.json").write_text("{}")
    for read in (tensors_of, files.weights_files, lambda folder: at_hand(str(folder), Settings())):
        with pytest.raises(InferenceError, match=f"model.safetensors.index.json of .* {re.escape(words)}"):
            read(file.parent)


def test_a_file_that_lacks_a_few_bytes_of_many_is_not_said_to_have_as_many_as_it_should(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(2**20, dtype=torch.uint8)}, path)
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InferenceError, match=f"its header tells of {whole:,} B, and it has {whole - 3:,} B"):
        tensors_in(path)
