"""Files of a checkpoint with anything in them are a model, or one of our own sentences: no trace, no hang, no memory for what is not there."""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
import tracemalloc
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.cache import manifest
from inference.errors import InferenceError
from inference.events import Request
from inference.host.hardware import from_file
from inference.settings import Settings
from inference.sources import adapter, at_hand, files, headers
from inference.sources.at_hand import Checkpoint
from tests.support.hostile import changed, damaged, places, tries, values
from tests.support.tiny import make_checkpoint

HEADER = {
    "__metadata__": {"format": "pt"},
    "a.weight": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]},
    "b.weight": {"dtype": "F32", "shape": [2], "data_offsets": [64, 72]},
}
INDEX = {"metadata": {"total_size": 8}, "weight_map": {"a.weight": "one.safetensors", "b.weight": "two.safetensors"}}
ADAPTER = {
    "peft_type": "LORA",
    "r": 8,
    "base_model_name_or_path": "none/such",
    "task_type": "CAUSAL_LM",
    "target_modules": ["q_proj"],
    "init_lora_weights": True,
}
MOST_BYTES = 8 * 2**20


def safetensors(header: bytes, rest: int = 72, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + bytes(rest)


def as_file(header: object) -> bytes:
    return safetensors(json.dumps(header).encode())


weights = st.one_of(
    st.binary(max_size=40), changed(HEADER).map(as_file), damaged(as_file(HEADER)),
    st.tuples(st.binary(max_size=40), st.integers(0, 2**64 - 1)).map(lambda found: safetensors(found[0], length=found[1])),
)  # fmt: skip


def small(value: object, given_json: object) -> st.SearchStrategy[bytes]:
    """The bytes of a JSON file: changed, damaged, or something else."""
    return st.one_of(changed(value).map(lambda made: json.dumps(made).encode()), damaged(json.dumps(value).encode()), st.binary(max_size=40))


@contextmanager
def little_memory():
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


@contextmanager
def folder_of(**contents: bytes):
    """A folder with files; __ stands for a dot in their names."""
    with tempfile.TemporaryDirectory() as made:
        for name, data in contents.items():
            (Path(made) / name.replace("__", ".")).write_bytes(data)
        yield Path(made)


@contextmanager
def or_a_sentence():
    try:
        yield
    except InferenceError as error:
        assert str(error).strip() and "Traceback" not in str(error) and len(str(error)) < 2000


@given(weights)
@tries(100)
def test_a_header_is_tensors_that_lie_in_the_file_or_a_sentence(data):
    with folder_of(model__safetensors=data) as folder, little_memory(), or_a_sentence():
        for stored in headers.tensors_of(folder).values():
            assert all(isinstance(size, int) and size >= 0 for size in stored.shape) and isinstance(stored.dtype, str)
            assert 0 <= stored.offset <= len(data) and (stored.dtype not in headers.BITS or stored.offset + stored.bytes <= len(data))


@pytest.mark.parametrize("deep", [b"[" * 200_000, b'{"a":' * 200_000, b'{"a": {"dtype": "F32", "shape": [' + b"9" * 5000 + b'], "data_offsets": [0, 4]}}'])
def test_a_header_that_python_can_not_read_is_a_sentence(deep):
    with folder_of(model__safetensors=safetensors(deep)) as folder, pytest.raises(InferenceError, match="is no safetensors file"):
        headers.tensors_of(folder)


@given(small(INDEX, values), weights, st.booleans())
@tries(100)
def test_an_index_is_files_in_its_own_folder_or_a_sentence(index, data, whole):
    with folder_of(model__safetensors__index__json=index, one__safetensors=data, two__safetensors=as_file(HEADER)) as folder:
        with little_memory(), or_a_sentence():
            assert all(file.parent.is_relative_to(folder) and ".." not in file.parts for file in files.weights_files(folder))
        with or_a_sentence():
            headers.tensors_of(folder)
        with or_a_sentence():
            at_hand.whole(Checkpoint("a/b", folder), Settings(cache_dir=str(folder / "cache")))


@given(small(ADAPTER, values), weights)
@tries(100)
def test_an_adapter_is_one_that_can_be_merged_or_a_sentence(config, data):
    with folder_of(adapter_config__json=config, adapter_model__safetensors=data) as folder, or_a_sentence():
        tuned = adapter.read("a/b", folder, None, "")
        assert isinstance(tuned.base, str) and tuned.base and isinstance(tuned.what, str)
        at_hand.whole(Checkpoint("a/b", folder), Settings(cache_dir=str(folder / "cache")))


@given(small({"format": 1, "key": [1, "a"], "files": {"a": [4, "00"]}}, values))
@tries(60)
def test_a_manifest_of_our_cache_is_a_state(data):
    with folder_of(**{"made-of__json": data, "a": b"abcd"}) as folder:
        assert isinstance(manifest.state(folder, [1, "a"]), manifest.State)
        assert isinstance(manifest.damaged(folder), bool)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("tiny") / "whole")


SMALL = ("config.json", "tokenizer_config.json", "tokenizer.json")


@st.composite
def edited(draw, folder: Path):
    """The name of a small file of a checkpoint, and its content with a place or two changed, of the vocabulary's places none: they are most of all."""
    name = draw(st.sampled_from(SMALL))
    value = json.loads((folder / name).read_text("utf-8"))
    ways = [way for way in places(value) if way and (len(way) < 3 or way[1] not in ("vocab", "merges"))]
    for _ in range(draw(st.integers(1, 2))):
        *before, last = draw(st.sampled_from(ways))
        with suppress(KeyError, IndexError, TypeError):  # gone with an earlier change
            reduce(lambda holder, key: holder[key], before, value)[last] = draw(values)
    return name, json.dumps(value).encode()


@contextmanager
def copy_with(checkpoint: Path, name: str, data: bytes):
    with tempfile.TemporaryDirectory() as work:
        folder = Path(shutil.copytree(checkpoint, Path(work) / "model"))
        (folder / name).write_bytes(data)
        yield folder, Settings(model_id=str(folder), cache_dir=str(checkpoint.parent / "cache"))


@given(st.data())
@tries(10)
def test_a_changed_configuration_or_tokenizer_is_judged_in_sentences(checkpoint, monkeypatch, data):
    from inference.doctor import judge

    monkeypatch.setattr(judge, "catalog", from_file)
    with copy_with(checkpoint, *data.draw(edited(checkpoint))) as (folder, settings):
        lines, _ = judge.judge(str(folder), ["cpu:fp32", "cpu:nf4"], settings, {"cpu:fp32": 2**30, "cpu:nf4": 2**30})
        assert lines and all(isinstance(line, str) for line in lines)


@given(st.data())
@tries(15)
def test_a_changed_configuration_or_tokenizer_is_read_and_used_or_a_sentence(checkpoint, data):
    from inference.lane.source import Source

    with copy_with(checkpoint, *data.draw(edited(checkpoint))) as (_, settings):
        source = Source("cpu:fp32", settings)
        with or_a_sentence():
            source.read(lambda _: None)
            source.warm_up_ids(4)
            for request in (Request("hello <bos> \x00"), Request("hi", "be good"), Request("hi", format="raw")):
                with or_a_sentence():
                    assert isinstance(source.shown(source.encode(request).ids), str)


@pytest.mark.parametrize("deep", [b"[" * 200_000, b'{"a":' * 200_000, b'{"model_type": ' + b"9" * 5000 + b"}"])
@pytest.mark.parametrize("name", [*SMALL, "generation_config.json", "special_tokens_map.json"])
def test_a_small_file_that_python_can_not_read_is_named(checkpoint, name, deep):
    from inference.lane.source import Source

    with copy_with(checkpoint, name, deep) as (_, settings), pytest.raises(InferenceError, match=name):
        Source("cpu:fp32", settings).read(lambda _: None)


def test_a_length_that_is_no_number_is_a_tokenizer_that_can_not_be_read(checkpoint):
    from inference.lane.source import Source

    found = json.loads((checkpoint / "tokenizer_config.json").read_text("utf-8"))
    data = json.dumps({**found, "model_max_length": {}}).encode()
    with copy_with(checkpoint, "tokenizer_config.json", data) as (_, settings), pytest.raises(InferenceError, match="has no tokenizer that can be read"):
        Source("cpu:fp32", settings).read(lambda _: None)
