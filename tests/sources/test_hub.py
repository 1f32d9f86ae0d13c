"""Fetching holds: against a false Hub on loopback, only what is read is fetched, every refusal has its sentence, and nothing hangs."""

import errno
import json
import logging
import os
import threading
import time

import pytest
from huggingface_hub import constants, get_session

from inference.errors import InferenceError, Refused
from inference.host.patience import Watch
from inference.settings import SMALL_MODEL, Settings
from inference.sources import checkpoints, default_model, fetching, hub, hub_cache
from inference.sources.headers import tensors_of
from tests.support.false_hub import COMMIT, Repository, answers, breaks_off, impatient, only, silent, stalls
from tests.support.tiny import make_checkpoint
from tests.support.tiny_hub import NAME, SMALL, WEIGHTS, fetch, refusal


def test_a_model_comes_into_the_hub_s_own_cache_and_is_found_there_by_branch_and_commit(tiny_hub):
    folder = fetch()
    assert folder.name == COMMIT and (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert hub_cache.on_disk(NAME) == hub_cache.on_disk(NAME, COMMIT) == folder
    tiny_hub.asked.clear()
    assert fetch() == folder and not any(path.endswith("model.safetensors") for method, path in tiny_hub.asked if method == "GET")


def test_a_revision_is_that_branch_tag_or_commit(tiny_hub):
    tiny_hub.repositories[NAME].revisions["v1"] = other = COMMIT[::-1]
    assert fetch(revision="v1").name == other == hub_cache.on_disk(NAME, "v1").name
    assert fetch(revision=COMMIT).name == COMMIT


NOT_READ = {
    "model.fp16.safetensors": b"x", "consolidated.safetensors": b"x", "pytorch_model.bin": b"x", "model.gguf": b"x", "model.onnx": b"x",
    "onnx/model.onnx": b"x", "original/model.safetensors": b"x", "training_args.bin": b"x", "modeling_own.py": b"x", "README.md": b"x",
}  # fmt: skip


def test_only_what_is_read_is_fetched(tiny_hub):
    tiny_hub.repositories[NAME].files |= NOT_READ | {"model.safetensors.index.json": b'{"weight_map": {"a": "part.safetensors"}}', "part.safetensors": b"x"}
    fetch()
    assert tiny_hub.downloaded() == {"config.json", "tokenizer.json", "model.safetensors"}


def test_of_weights_in_parts_those_that_the_index_names_are_fetched(tiny_hub):
    parts = {f"model-{n}-of-2.safetensors": os.urandom(1000) for n in (1, 2)}
    index = {"model.safetensors.index.json": json.dumps({"weight_map": dict(zip("ab", parts, strict=True))}).encode()}
    fp16 = {"model.fp16-1-of-1.safetensors": b"x", "model.fp16.index.json": b"{}"}
    tiny_hub.repositories[NAME] = Repository({**SMALL, **parts, **index, **NOT_READ, **fp16})
    folder = fetch()
    assert tiny_hub.downloaded() == {*SMALL, *parts, *index} and hub_cache.on_disk(NAME) == folder
    del tiny_hub.repositories[NAME].files["model-2-of-2.safetensors"]
    assert "lacks model-2-of-2.safetensors, which its model.safetensors.index.json names" in refusal_of_a_new_commit(tiny_hub)


def refusal_of_a_new_commit(tiny_hub) -> str:
    tiny_hub.repositories[NAME].revisions["next"] = COMMIT[::-1]
    return refusal(revision="next")


def test_an_adapter_s_own_files_are_fetched(tiny_hub):
    adapter = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"x", "tokenizer.json": b"{ }"}
    tiny_hub.repositories[NAME] = Repository(adapter | {"adapter_model.bin": b"x", "optimizer.pt": b"x", "checkpoint-10/adapter_model.safetensors": b"x"})
    assert hub_cache.on_disk(NAME) is None
    assert fetch() == hub_cache.on_disk(NAME) and tiny_hub.downloaded() == set(adapter)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({**SMALL, "pytorch_model.bin": WEIGHTS}, "as pickle files.*ALLOW_PICKLE"),
        ({**SMALL, "pytorch_model-00001-of-00002.bin": WEIGHTS, "pytorch_model.bin.index.json": b"{}"}, "as pickle files.*ALLOW_PICKLE"),
        ({"adapter_config.json": b"{}", "adapter_model.bin": WEIGHTS}, "an adapter whose weights are a pickle"),
        ({"a.Q4_0.gguf": WEIGHTS, "README.md": b""}, "holds GGUF files alone"),
        ({"consolidated.safetensors": WEIGHTS, "params.json": b"{}"}, "holds no model that can be loaded.*consolidated"),
        ({}, "but nothing"),
        ({**SMALL, "model.safetensors.index.json": b"<html>"}, "model.safetensors.index.json is cut off or damaged"),
        ({**SMALL, "model.safetensors.index.json": b"[]"}, "model.safetensors.index.json is no JSON object"),
    ],
)
def test_what_can_t_be_loaded_is_refused_before_its_weights_are_fetched(tiny_hub, files, words):
    tiny_hub.repositories[NAME] = Repository(files)
    with pytest.raises(InferenceError, match=words):
        fetch()
    assert not {file for file in tiny_hub.downloaded() if len(files[file]) == len(WEIGHTS)}


def test_pickles_are_fetched_where_they_are_allowed_and_no_others_beside_them(tiny_hub):
    parts = {f"pytorch_model-{n}-of-2.bin": os.urandom(1000) for n in (1, 2)}
    index = {"pytorch_model.bin.index.json": json.dumps({"weight_map": dict(zip("ab", parts, strict=True))}).encode()}
    tiny_hub.repositories[NAME] = Repository({**SMALL, **parts, **index, "optimizer.bin": b"x", "training_args.bin": b"y"})
    folder = hub.fetch(NAME, None, lambda _: None, pickles=True).folder
    assert tiny_hub.downloaded() == {*SMALL, *parts, *index} and hub_cache.on_disk(NAME) == folder


def test_the_progress_is_one_total_of_bytes_that_never_goes_back(tiny_hub):
    parts = {f"model-{n}-of-3.safetensors": os.urandom(n * 50_000) for n in (1, 2, 3)}
    index = {"model.safetensors.index.json": json.dumps({"weight_map": dict(zip("abc", parts, strict=True))}).encode()}
    tiny_hub.repositories[NAME] = Repository({**SMALL, **parts, **index})
    broken = parts["model-3-of-3.safetensors"]
    tiny_hub.does["model-3"] = breaks_off(broken, 60_000, 2)
    told = []
    fetch(report=told.append)
    told = [loading for loading in told if loading.stage == "downloading"]
    total = sum(len(data) for data in tiny_hub.repositories[NAME].files.values())
    assert {loading.total for loading in told} == {total} and {loading.unit for loading in told} == {"bytes"}
    done = [loading.done for loading in told]
    assert done == sorted(done) and done[-1] == total and len(done) > 3


def test_progress_bars_that_are_switched_off_change_nothing(tiny_hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    told = []
    fetch(report=told.append)
    told = [loading for loading in told if loading.stage == "downloading"]
    assert told[-1].done == told[-1].total > len(WEIGHTS)


def test_a_download_that_breaks_off_once_goes_on(tiny_hub):
    tiny_hub.does["model.safetensors"] = breaks_off(WEIGHTS, 50_000, 1)
    assert (fetch() / "model.safetensors").read_bytes() == WEIGHTS


def test_a_download_that_breaks_off_for_good_keeps_what_came_whole_and_leaves_no_piece(tiny_hub):
    tiny_hub.does["model.safetensors"] = breaks_off(WEIGHTS, 0, 99)
    assert "download of owner/tiny broke off (the connection broke off). The files that came whole are kept" in refusal()
    cache = hub_cache.hub_cache()
    assert not list(cache.rglob("*.incomplete")) and list(cache.rglob("config.json"))


@pytest.mark.parametrize("part", ["/api/", "/resolve/"])
def test_a_hub_that_accepts_and_is_silent_holds_nobody_up(tiny_hub, monkeypatch, part):
    impatient(monkeypatch)
    tiny_hub.does[part] = silent
    assert f"can't be reached ({tiny_hub.url} did not answer in time), and owner/tiny is not on this machine" in refusal()


@pytest.mark.parametrize("part", ["/tree/", "model.safetensors"])
def test_a_hub_that_falls_silent_on_the_way_is_given_up(tiny_hub, monkeypatch, part):
    impatient(monkeypatch)
    monkeypatch.setattr(hub, "SILENT_S", 1.0)  # the library tries again as often as it likes
    tiny_hub.does[part] = silent if part == "/tree/" else stalls(WEIGHTS, 1000)
    sentence = refusal()
    assert "has sent nothing for 1 s" in sentence or "did not answer in time" in sentence
    assert "The files that came whole are kept" in sentence


def test_no_request_of_the_library_is_without_a_time_out(tiny_hub):
    fetch()
    request = get_session().build_request("GET", tiny_hub.url, timeout=None)
    for hook in get_session().event_hooks["request"]:
        hook(request)
    assert request.extensions["timeout"] == dict.fromkeys(("connect", "read", "write", "pool"), 5)


def test_what_brings_nothing_is_given_up_whatever_the_library_does(tiny_hub, monkeypatch):
    """A Hub that asks for an hour's patience, which the library has."""
    monkeypatch.setattr(hub, "SILENT_S", 0.3)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: tiny_hub.closing.wait())
    tiny_hub.does["model.safetensors"] = answers(429, {"Retry-After": "3600"})
    assert "has sent nothing for 0.3 s" in refusal()


def test_a_slow_hub_that_goes_on_sending_is_waited_for():
    watch = Watch(0.2, TimeoutError)

    def slowly():
        for _ in range(6):
            time.sleep(0.06)
            watch.moved()
        return "all"

    assert watch.run(slowly) == "all"


def test_the_default_model_comes_the_packaged_way_where_the_hub_is_silent(false_hub, monkeypatch, tmp_path):
    impatient(monkeypatch)
    false_hub.does["/"] = silent
    monkeypatch.setattr(default_model, "restore", lambda entry, _: entry.path.mkdir(parents=True))
    found = checkpoints.find(SMALL_MODEL, Settings(cache_dir=str(tmp_path / "ours")), lambda _: None)
    assert found.note == default_model.NOTE


def test_a_whole_copy_is_taken_where_the_hub_can_t_be_asked(tiny_hub, caplog):
    folder = fetch()
    tiny_hub.does["/"] = answers(503)
    with caplog.at_level(logging.WARNING):
        assert fetch() == folder and "The copy on this machine is used" in caplog.text
    (folder / "model.safetensors").unlink()
    assert "503" in refusal()


def test_a_cache_that_can_t_be_written_is_named_with_its_variables(tiny_hub, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    cache = str(tmp_path / "file" / "hub")
    monkeypatch.setenv("HF_HUB_CACHE", cache)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", cache)
    sentence = refusal()
    assert f"{cache}, where downloads from the Hub go, can't be written" in sentence
    assert "HF_HUB_CACHE or HF_HOME" in sentence and "model.safetensors" not in tiny_hub.downloaded()


def test_a_part_of_the_cache_that_belongs_to_another_user_is_named(tiny_hub, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "/somewhere/models--owner--tiny")

    monkeypatch.setattr(hub, "snapshot_download", refuse)
    assert "(Permission denied: /somewhere/models--owner--tiny). Set HF_HUB_CACHE or HF_HOME" in refusal()


def test_a_disk_without_room_is_said_before_anything_is_fetched(tiny_hub, monkeypatch, small_disk):
    monkeypatch.setenv("HF_HUB_CACHE", str(small_disk))
    tiny_hub.repositories[NAME].files["model.safetensors"] = bytes(2 * 2**20)
    assert "disk is full" in (sentence := refusal()) and "owner/tiny needs about 2.0 MiB" in sentence and "HF_HOME" in sentence
    assert "model.safetensors" not in tiny_hub.downloaded()


def test_what_a_killed_download_left_is_removed_and_what_one_is_writing_is_not(tiny_hub, tmp_path):
    blobs = tmp_path / "hub" / "models--owner--tiny" / "blobs"
    blobs.mkdir(parents=True)
    for name, age in (("old.incomplete", 7200), ("new.incomplete", 0)):
        (blobs / name).write_bytes(b"x")
        os.utime(blobs / name, (time.time() - age,) * 2)
    fetch()
    assert [file.name for file in blobs.glob("*.incomplete")] == ["new.incomplete"]


def test_tensors_are_read_off_the_files_first_bytes(false_hub, tmp_path):
    folder = make_checkpoint(tmp_path / "m")
    false_hub.repositories[NAME] = Repository.of(folder)
    found = hub.listing(NAME, None)
    stored = hub.tensors(found, hub.weights(found))
    assert {name: (found.shape, found.dtype) for name, found in stored.items()} == {
        name: (found.shape, found.dtype) for name, found in tensors_of(folder).items()
    } and false_hub.ranges["model.safetensors"] == "0-100000"
    false_hub.repositories[NAME].files["model.safetensors"] = b"version https://git-lfs.github.com/spec/v1\n"
    with pytest.raises(Refused, match="model.safetensors is no safetensors file"):
        hub.tensors(found, ["model.safetensors"])


def test_the_process_that_fetches_tells_the_same_and_ends(tiny_hub, tmp_path):
    tiny_hub.does["/api/"] = only("GET", answers(401))
    before = threading.active_count()  # earlier tests' among them
    fetched = fetching.begin(NAME, Settings(cache_dir=str(tmp_path / "ours")))
    with pytest.raises(Refused, match="shows no model owner/tiny"):
        fetched.result(lambda _: None)
    assert fetched._process.wait(20) == 0 and threading.active_count() < before + 10
