"""The 4-bit copy on a real tiny model: equal bit for bit, never stale, never thrown away for want of memory, never half there."""

import json
import os
from types import SimpleNamespace

import pytest
import torch

from inference.cache import manifest
from inference.cache.cache import Cache
from inference.cache.manifest import State
from inference.errors import DeviceLost, InferenceError, OutOfMemory, Refused
from inference.fast import FastWays
from inference.host.machine import SET_BACK, RamWatch
from inference.models import loading, quantized_copy
from inference.sources.at_hand import Checkpoint
from tests.support.tiny import make_checkpoint

LANE = "cpu:nf4"
WAYS = FastWays(LANE, ())  # so that the models answer without our kernels
ARGUMENTS = loading.model_arguments(LANE)


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint("owner/tiny", make_checkpoint(tmp_path / "tiny", "llama"), "r1")


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache", 2**30)


def entry_of(checkpoint, cache):
    return quantized_copy.entry_of(checkpoint, ARGUMENTS, cache)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Pieces are written without waiting until nothing was asked for a while."""
    monkeypatch.setattr(quantized_copy, "IDLE_S", 0.0)


def load_with(checkpoint, cache, load=None):
    """(model, writer, folders that were read, stages that were told)."""
    read, told = [], []

    def by(found):
        read.append(found.folder)
        return load(found) if load else loading.load(found, LANE, lambda _: None, WAYS)

    model, writer = quantized_copy.load_through(checkpoint, ARGUMENTS, cache, by, lambda loading: told.append(loading.stage))
    return model, writer, read, told


def write(writer):
    while writer.step():
        pass


def written(checkpoint, cache):
    """The model that was quantized, its copy in the cache."""
    model, writer, _, _ = load_with(checkpoint, cache)
    write(writer)
    return model


def tensors(model):
    return dict(model.state_dict())


@pytest.mark.parametrize("part_bytes", [1, 2**30])
def test_what_is_read_from_the_copy_is_what_was_quantized(checkpoint, cache, monkeypatch, part_bytes):
    monkeypatch.setattr(quantized_copy, "PART_BYTES", part_bytes)
    first = written(checkpoint, cache)
    again, writer, read, _ = load_with(checkpoint, cache)
    assert read == [entry_of(checkpoint, cache).path] and writer is None
    left, right = tensors(first), tensors(again)
    assert left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
    assert sum(name.endswith("bitsandbytes__nf4") for name in left) == 14
    ids = torch.tensor([[0, 5, 7]])
    assert torch.equal(first(ids).logits, again(ids).logits)


def test_a_tied_embedding_is_written_once_and_stays_tied(checkpoint, cache):
    written(checkpoint, cache)
    names = json.loads((entry_of(checkpoint, cache).path / "model.safetensors.index.json").read_text())["weight_map"]
    assert "lm_head.weight" not in names and "model.embed_tokens.weight" in names
    again = load_with(checkpoint, cache)[0]
    assert again.lm_head.weight is again.model.embed_tokens.weight


def test_a_step_writes_no_more_than_a_part_and_nothing_is_seen_before_the_last(checkpoint, cache, monkeypatch):
    monkeypatch.setattr(quantized_copy, "PART_BYTES", 1)
    _, writer, _, _ = load_with(checkpoint, cache)
    entry, steps, seen = entry_of(checkpoint, cache), 0, []
    while writer.step():
        steps += 1
        assert not entry.path.exists()
        seen.append(len(list(entry.path.parent.glob(".new-*/copy/*.safetensors"))))
    assert seen == list(range(5)) and sorted(path.name for path in entry.path.parent.iterdir()) == [entry.path.name]


def change_config(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_theta": 1234.0}))


def add_end_marks(folder):
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 4]}')


def train_again(folder):
    make_checkpoint(folder, "llama", seed=5)


@pytest.mark.parametrize("change", [change_config, add_end_marks, train_again])
def test_a_changed_checkpoint_is_not_answered_for_by_its_old_copy(checkpoint, cache, change):
    written(checkpoint, cache)
    change(checkpoint.folder)
    _, writer, read, _ = load_with(checkpoint, cache)
    assert read == [checkpoint.folder] and writer is not None
    write(writer)
    assert load_with(checkpoint, cache)[2] == [entry_of(checkpoint, cache).path]


@pytest.mark.parametrize(
    "error", [Refused("does not fit"), OutOfMemory("the GPU ran out"), MemoryError(), RuntimeError("CUDA error: out of memory"), DeviceLost("lost")]
)
def test_a_copy_that_does_not_fit_now_is_kept(checkpoint, cache, error):
    written(checkpoint, cache)

    def short_of_memory(_):
        raise error

    with pytest.raises(type(error)):
        load_with(checkpoint, cache, short_of_memory)
    assert load_with(checkpoint, cache)[2] == [entry_of(checkpoint, cache).path]


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def spoil_header(path):
    path.write_bytes(path.read_bytes()[:8] + b"x" * 40 + path.read_bytes()[48:])


@pytest.mark.parametrize("damage", [cut, spoil_header])
def test_a_damaged_copy_is_told_and_made_anew(checkpoint, cache, damage, caplog, monkeypatch):
    first = written(checkpoint, cache)
    monkeypatch.setattr(manifest, "SMALL_BYTES", 2**14)  # so that a header is only looked at once the load has failed
    place = entry_of(checkpoint, cache).path
    damage(next(place.glob("*.safetensors")))
    model, writer, read, told = load_with(checkpoint, cache)
    assert read[-1] == checkpoint.folder and any("damaged" in stage for stage in told) and "damaged" in caplog.text
    assert all(torch.equal(tensor, tensors(first)[name]) for name, tensor in tensors(model).items())
    write(writer)
    assert load_with(checkpoint, cache)[2] == [place]


def test_a_copy_that_lacks_weights_is_not_used_again(checkpoint, cache):
    written(checkpoint, cache)

    def lacks(found):
        if found.folder != checkpoint.folder:
            raise InferenceError("lacks 3 of the weights")
        return loading.load(found, LANE, lambda _: None, WAYS)

    model, writer, read, _ = load_with(checkpoint, cache, lacks)
    assert len(read) == 2 and model is not None and writer is not None


@pytest.mark.parametrize("cause", [OSError("I/O error"), ValueError("not now")])
def test_a_whole_copy_that_can_t_be_read_just_now_is_kept_and_the_checkpoint_read(checkpoint, cache, cause, caplog):
    written(checkpoint, cache)

    def fails_once(found):
        if found.folder != checkpoint.folder:
            raise InferenceError("could not be loaded") from cause
        return loading.load(found, LANE, lambda _: None, WAYS)

    model, writer, read, told = load_with(checkpoint, cache, fails_once)
    assert model is not None and writer is None and read[-1] == checkpoint.folder and not told and "could not be loaded" in caplog.text
    assert load_with(checkpoint, cache)[2] == [entry_of(checkpoint, cache).path]


def test_a_piece_is_begun_only_once_nothing_else_was_done_for_a_while(checkpoint, cache, monkeypatch):
    monkeypatch.setattr(quantized_copy, "IDLE_S", 3.0)
    monkeypatch.setattr(quantized_copy, "PART_BYTES", 1)
    now = [100.0]
    monkeypatch.setattr(quantized_copy, "time", SimpleNamespace(monotonic=lambda: now[0]))
    _, writer, _, _ = load_with(checkpoint, cache)
    begun = []

    def polled(seconds):
        for _ in range(round(seconds * 10)):
            now[0] += 0.1
            assert writer.step()
            begun.append(entry_of(checkpoint, cache).path.parent.exists())
        return begun[-1]

    now[0] += 60.0  # the load
    assert not polled(2.9)
    now[0] += 1.0  # a run
    assert not polled(2.9) and polled(0.3)
    parts = len(list(cache.root.rglob("*.safetensors")))
    polled(2.9)
    assert len(list(cache.root.rglob("*.safetensors"))) == parts, "a piece is a while after the one before, too"
    polled(0.3)
    assert len(list(cache.root.rglob("*.safetensors"))) == parts + 1


@pytest.mark.parametrize(("words", "goes_on"), [("CUDA error: an illegal memory access was encountered", False), ("CUDA out of memory", True), ("shape", True)])
def test_a_device_past_use_is_not_taken_for_a_copy_that_can_t_be_saved(checkpoint, cache, monkeypatch, words, goes_on):
    _, writer, _, _ = load_with(checkpoint, cache)
    assert writer.step()
    monkeypatch.setattr(quantized_copy, "_save", lambda *_: (_ for _ in ()).throw(RuntimeError(words)))
    if goes_on:
        assert not writer.step()
    else:
        with pytest.raises(RuntimeError, match="illegal memory access"):
            writer.step()
    assert not list(entry_of(checkpoint, cache).path.parent.iterdir()) and entry_of(checkpoint, cache).try_lock() is not None


def test_what_a_piece_takes_is_in_no_later_peak(checkpoint, cache, monkeypatch):
    _, writer, _, _ = load_with(checkpoint, cache)
    assert writer.step()
    save, watch = quantized_copy._save, RamWatch()
    monkeypatch.setattr(RamWatch, "_before_kib", 0)  # what other tests held must not hide what is held here
    before = watch.peak()

    def large(*arguments):
        assert bytearray(600 * 2**20)
        save(*arguments)

    monkeypatch.setattr(quantized_copy, "_save", large)
    write(writer)
    if not os.access(SET_BACK, os.W_OK):
        pytest.skip("the system's mark can't be set back here")
    assert watch.peak() < before + 300 * 2**20


def test_a_writer_that_is_closed_leaves_nothing(checkpoint, cache):
    _, writer, _, _ = load_with(checkpoint, cache)
    assert writer.step() and any(entry_of(checkpoint, cache).path.parent.iterdir())
    writer.close()
    assert not list(entry_of(checkpoint, cache).path.parent.iterdir())


def test_of_two_lanes_one_writes(checkpoint, cache):
    _, one, _, _ = load_with(checkpoint, cache)
    _, other, _, _ = load_with(checkpoint, cache)
    assert one.step() and not other.step()
    write(one)
    place = entry_of(checkpoint, cache).path
    assert manifest.state(place, quantized_copy.key_of(checkpoint, ARGUMENTS)) is State.WHOLE


def test_a_fault_while_writing_costs_nothing_but_the_copy(checkpoint, cache, monkeypatch, caplog):
    _, writer, _, _ = load_with(checkpoint, cache)
    assert writer.step()
    monkeypatch.setattr(quantized_copy, "_save", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert not writer.step() and "disk is full" in caplog.text
    assert not list(entry_of(checkpoint, cache).path.parent.iterdir())
