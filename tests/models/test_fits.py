"""A container of 8 GiB and a model of 15 GB: refused in a sentence before anything is loaded, the other lane unharmed."""

import json
import shutil
import struct
from pathlib import Path

import psutil
import pytest
import torch
from transformers import AutoConfig

from inference import fast
from inference.errors import Refused
from inference.events import Done, Request
from inference.host import machine
from inference.lane.lane import Lane
from inference.models.skeleton import skeleton
from inference.settings import Settings
from tests.support.tiny import make_checkpoint

GIB = 2**30
LARGE = {"hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 40}


def write_large(folder: Path, small: Path) -> Path:
    """A checkpoint of 15 GB whose bytes take no disk; the tokenizer and the configuration are those of `small`."""
    shutil.copytree(small, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((small / "config.json").read_text()) | LARGE
    config["layer_types"] = ["full_attention"] * LARGE["num_hidden_layers"]
    (folder / "config.json").write_text(json.dumps(config))
    entries, end = {}, 0
    for name, parameter in skeleton(AutoConfig.from_pretrained(folder), (), torch.float32).model.named_parameters():
        entries[name] = {"dtype": "F32", "shape": list(parameter.shape), "data_offsets": [end, end := end + 4 * parameter.numel()]}
    header = json.dumps(entries).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + end)
    return folder


@pytest.fixture
def container(tmp_path, monkeypatch):
    """8 GiB by cgroup files, 1 of them in use."""
    root = tmp_path / "cgroup"
    root.mkdir()
    for name, value in (("memory.max", 8 * GIB), ("memory.current", GIB), ("memory.stat", "inactive_file 0")):
        (root / name).write_text(f"{value}\n")
    read = machine.ram_available_bytes
    monkeypatch.setattr(machine, "ram_available_bytes", lambda: read(root))


def ask(lane: Lane) -> Done:
    return [event for event in lane.generate("run", Request("hello", max_new_tokens=5), lambda: False) if isinstance(event, Done)][0]


def test_a_model_that_does_not_fit_is_refused_and_the_other_lane_goes_on(tmp_path, container):
    small = make_checkpoint(tmp_path / "small")
    large = write_large(tmp_path / "large", small)
    settings = {"cache_dir": str(tmp_path / "cache"), "fast": fast.parse("products,nf4")}
    other = Lane("cpu:nf4", Settings(model_id=str(small), **settings))
    other.load(lambda _: None)
    before, ids = psutil.Process().memory_info().rss, ask(other).token_ids

    with pytest.raises(Refused) as refused:
        Lane("cpu:fp32", Settings(model_id=str(large), **settings)).load(lambda _: None)

    sentence = str(refused.value)
    assert "needs about 15" in sentence and "7.00 GiB is free" in sentence and "not loaded" in sentence
    assert "Choose a smaller model" in sentence and "more memory" in sentence
    assert psutil.Process().memory_info().rss - before < GIB / 4
    assert ask(other).token_ids == ids
