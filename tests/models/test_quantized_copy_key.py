"""What a 4-bit copy is known again by: other weights, files, versions or another commit make another one, and nothing else does."""

import json
import os
from dataclasses import replace

import pytest

from inference.cache import manifest
from inference.models import loading, quantized_copy
from inference.sources import files
from inference.sources.at_hand import Checkpoint
from tests.support.tiny import make_checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint("owner/tiny", make_checkpoint(tmp_path / "tiny", "llama"), "r1")


def key(checkpoint):
    return quantized_copy.key_of(checkpoint, loading.model_arguments("cpu:nf4"))


def test_a_retrained_bin_checkpoint_has_another_key(checkpoint):
    folder = checkpoint.folder
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"weights")
    before = key(checkpoint)
    (folder / "pytorch_model.bin").write_bytes(b"others!")
    assert key(checkpoint) != before


def test_other_weights_of_the_same_length_and_time_have_another_key(checkpoint):
    """An image of a container may give all files one time, and a model that was trained on is as long as before."""
    file = checkpoint.folder / "model.safetensors"
    with file.open("ab") as longer:
        longer.truncate(manifest.SMALL_BYTES * 2)
    keys = set()
    for byte in (b"a", b"b"):
        with file.open("r+b") as stream:
            stream.seek(manifest.SMALL_BYTES)
            stream.write(byte * 100_000)
        os.utime(file, (1, 1))
        keys.add(json.dumps([key(checkpoint), files.identity(checkpoint.folder)]))
    assert len(keys) == 2


def test_files_that_the_model_is_not_read_from_leave_the_key_alone(checkpoint):
    before = key(checkpoint)
    (checkpoint.folder / "model.fp16.safetensors").write_bytes(b"a second variant")
    (checkpoint.folder / "pytorch_model.bin").write_bytes(b"an older form")
    assert key(checkpoint) == before


def test_other_versions_and_another_revision_have_another_key(checkpoint, monkeypatch):
    before = key(checkpoint)
    assert key(replace(checkpoint, revision="r2")) != before
    monkeypatch.setattr(quantized_copy.importlib.metadata, "version", lambda name: "9.9" if name == "torch" else "1")
    assert key(checkpoint) != before
