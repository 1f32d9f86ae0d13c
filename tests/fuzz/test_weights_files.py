"""Damaged weights are a sentence, or a model with exactly the values that lie in the file: no trace, no hang, no memory for what is only claimed."""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inference.errors import InferenceError
from inference.fast import ALL, FastWays
from inference.models import loading
from inference.sources.at_hand import Checkpoint
from inference.sources.headers import tensors_of
from tests.support.hostile import changed, damaged, tries
from tests.support.tiny import make_checkpoint

KINDS = {"BF16": torch.bfloat16, "F16": torch.float16}  # as long as what was there


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("weights") / "whole", "llama")


def split(raw: bytes) -> tuple[dict, bytes]:
    length = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def joined(header: object, data: bytes) -> bytes:
    made = json.dumps(header).encode()
    return struct.pack("<Q", len(made)) + made + data


@st.composite
def broken(draw, raw: bytes) -> bytes:
    """A file of weights with its header changed, two of its entries or their places swapped, other dtypes, huge claims, or bytes flipped, lost or added."""
    header, data = split(raw)
    names = [name for name in header if name != "__metadata__"]
    how = draw(st.sampled_from(["bytes", "start", "header", "swapped", "places", "dtype", "claim", "shape"]))
    one, other = draw(st.sampled_from(names)), draw(st.sampled_from(names))
    if how == "bytes":
        return draw(damaged(raw))
    if how == "start":
        return draw(damaged(raw[:200])) + raw[200:]
    if how == "header":
        return joined(draw(changed(header)), data)
    if how == "swapped":
        header[one], header[other] = header[other], header[one]
    elif how == "places":
        header[one]["data_offsets"], header[other]["data_offsets"] = header[other]["data_offsets"], header[one]["data_offsets"]
    elif how == "dtype":
        header[one]["dtype"] = draw(st.sampled_from(["F16", "F32", "I16", "U8", "F8_E4M3", "F8_E8M0", "F4", "C64", "X", ""]))
    elif how == "claim":
        header[one]["shape"] = [draw(st.sampled_from([2**20, 2**31, 2**60])), draw(st.sampled_from([0, 1, 2**31]))]
        header[one]["data_offsets"][1] = draw(st.sampled_from([2**40, 2**60, 0]))
    else:
        header[one]["shape"] = header[one]["shape"][::-1]
    return joined(header, data)


@pytest.mark.parametrize("lane", ["cpu:fp32", "cpu:nf4"])
@given(st.data())
@tries(12)
def test_damaged_weights_are_a_sentence_or_the_values_of_the_file(checkpoint, lane, data):
    with tempfile.TemporaryDirectory() as work:
        folder = Path(shutil.copytree(checkpoint, Path(work) / "m"))
        (folder / "model.safetensors").write_bytes(data.draw(broken((checkpoint / "model.safetensors").read_bytes())))
        try:
            model = loading.load(Checkpoint("a/b", folder), lane, lambda _: None, FastWays(lane, ALL))
        except InferenceError as error:
            assert str(error).strip() and "Traceback" not in str(error) and len(str(error)) < 2000
            return
        raw = (folder / "model.safetensors").read_bytes()
        parameters = dict(model.named_parameters())
        for name, stored in tensors_of(folder).items():
            if name in parameters and not (lane.endswith("nf4") and len(stored.shape) > 1):  # a matrix in 4 bits has other values
                there = torch.frombuffer(bytearray(raw[stored.offset : stored.offset + stored.bytes]), dtype=KINDS[stored.dtype]).reshape(stored.shape)
                assert torch.allclose(parameters[name].float(), there.float(), rtol=0, atol=0, equal_nan=True), name
