"""Fetching in a process of its own: light to begin, told as it goes, ended with its parent; what is at hand costs no process."""

import json
import subprocess
import sys

import psutil
import pytest

from inference.cache import cache, manifest
from inference.errors import DeviceLost, InferenceError, OutOfMemory, Refused
from inference.host import child
from inference.host.child import ROOT
from inference.settings import SMALL_MODEL, Settings
from inference.sources import checkpoints, default_model, fetching
from inference.sources.at_hand import Checkpoint
from inference.sources.files import weights_files
from inference.sources.hub_cache import on_disk
from tests.support.tiny import make_checkpoint
from tests.support.until import until


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return Settings(cache_dir=str(tmp_path / "cache"))


@pytest.fixture
def downloaded(tmp_path, settings):
    """A model that the Hub's cache holds."""
    repository = tmp_path / "hub" / "models--owner--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc123")
    return make_checkpoint(repository / "snapshots" / "abc123")


def restored(settings):
    folder = make_checkpoint(default_model.entry(cache.of(settings)).path)
    manifest.seal(folder, default_model.REVISION)
    return folder


def entry_of(name, settings):
    return cache.of(settings).entry("hub", name)


def test_to_begin_brings_no_heavy_library():
    code = "import sys, inference.sources.fetching; print(sorted({'torch', 'transformers', 'huggingface_hub', 'safetensors'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


OTHERS = "import sys; from pathlib import Path; from inference.cache.cache import Cache; print([e.path.name for e in Cache(Path(sys.argv[1]), 0).empty()[0]])"


def removed_by_another(settings):
    """What another process's --empty-cache removes."""
    done = subprocess.run([sys.executable, "-c", OTHERS, settings.cache_dir], cwd=ROOT, capture_output=True, text=True, env=child.environment(), timeout=20)
    return done.stdout.strip()


def test_what_a_lane_loads_is_in_use_from_the_beginning_also_where_it_is_still_to_be_fetched(settings):
    folder = restored(settings)
    away = folder.rename(folder.parent.parent / "away")
    with default_model.entry(cache.of(settings)).locked():
        fetch = fetching.begin(SMALL_MODEL, settings)
        away.rename(folder)  # the process that fetches finds it, and ends
    assert fetch.result(lambda _: None).folder == folder
    assert removed_by_another(settings) == "[]" and folder.exists()


def test_what_is_about_to_be_loaded_is_not_tidied_away(settings, monkeypatch):
    monkeypatch.setattr(cache, "DEFAULT_LIMIT_GIB", 0)
    monkeypatch.setattr(fetching.subprocess, "Popen", None)
    folder = restored(settings)
    assert fetching.begin(SMALL_MODEL, settings).result(lambda _: None).folder == folder and folder.exists()


def test_a_folder_of_our_cache_that_is_named_by_its_path_is_in_use_too(settings):
    folder = restored(settings)
    fetching.begin(str(folder), settings).result(lambda _: None)
    assert removed_by_another(settings) == "[]"


def test_what_is_at_hand_costs_no_process(settings, tmp_path, downloaded, monkeypatch):
    monkeypatch.setattr(fetching.subprocess, "Popen", None)
    folder = make_checkpoint(tmp_path / "m")
    assert fetching.begin(str(folder), settings).result(lambda _: None) == Checkpoint(str(folder), folder)
    assert fetching.begin(SMALL_MODEL, Settings(cache_dir=str(restored(settings).parent.parent))).result(lambda _: None).note == default_model.NOTE
    for name, words in (("/no/such/folder", "no folder"), ("shape:none", "no shape")):
        with pytest.raises(InferenceError, match=words):
            fetching.begin(name, settings).result(lambda _: None)


def test_the_hub_s_cache_is_read_as_the_hub_does(downloaded):
    assert on_disk("owner/tiny") == downloaded
    (downloaded / "model.safetensors").rename(downloaded / "aside")
    assert on_disk("owner/tiny") is None and on_disk("owner/other") is None
    (downloaded / "aside").rename(downloaded / "model.safetensors")
    (downloaded / "tokenizer.json").rename(downloaded / "vocab.json")
    assert on_disk("owner/tiny")
    (downloaded / "vocab.json").unlink()
    assert on_disk("owner/tiny") is None, "a download that was cut before the tokenizer isn't whole"


def test_a_revision_is_a_branch_or_tag_that_the_cache_noted_or_a_commit(downloaded):
    (downloaded.parent.parent / "refs" / "v1").write_text("abc123")
    assert on_disk("owner/tiny", "v1") == on_disk("owner/tiny", "abc123") == downloaded
    assert on_disk("owner/tiny", "v2") is None and on_disk("owner/tiny", "../../..") is None


def test_an_adapter_is_whole_without_a_model(downloaded):
    for file in downloaded.iterdir():
        file.unlink()
    (downloaded / "adapter_config.json").write_text("{}")
    assert on_disk("owner/tiny") is None
    (downloaded / "adapter_model.safetensors").touch()
    assert on_disk("owner/tiny") == downloaded


def test_the_weights_are_those_that_the_index_names(tmp_path):
    for name in ("model-1.safetensors", "model-2.safetensors", "other.safetensors"):
        (tmp_path / name).touch()
    assert len(weights_files(tmp_path)) == 3
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}))
    assert [path.name for path in weights_files(tmp_path)] == ["model-1.safetensors", "model-2.safetensors"]
    (tmp_path / "model.safetensors").touch()
    assert [path.name for path in weights_files(tmp_path)] == ["model.safetensors"]


def test_a_fetched_checkpoint_comes_with_its_progress(settings, downloaded):
    told = []
    found = fetching.begin("owner/tiny", settings).result(lambda loading: told.append(loading.stage))
    assert found == Checkpoint("owner/tiny", downloaded, "abc123") and told


def test_a_refusal_is_the_same_sentence(settings):
    with pytest.raises(InferenceError, match="HF_HUB_OFFLINE is set.*owner/none is not on this machine"):
        fetching.begin("owner/none", settings).result(lambda _: None)


def test_the_second_lane_waits_for_the_first_and_is_told_so(settings, downloaded):
    told, lock = [], entry_of("owner/tiny", settings).locked()

    def report(loading):
        told.append(loading.stage)
        if loading.stage == "another lane is fetching it":
            lock.free()

    assert fetching.begin("owner/tiny", settings).result(report).folder == downloaded
    assert told[0] == "another lane is fetching it"


def test_a_process_that_dies_or_is_cancelled_is_told(settings):
    with entry_of("owner/none", settings).locked():
        killed, cancelled = (fetching.begin("owner/none", settings) for _ in range(2))
        killed._process.kill()
        cancelled.cancel()
        for fetch, words in ((killed, r"was killed \(signal 9\)"), (cancelled, "ended unexpectedly")):
            with pytest.raises(InferenceError, match=words):
                fetch.result(lambda _: None)


@pytest.mark.parametrize("says", ["no JSON", '{"unknown": 1}', '{"loading": {"no such": 1}}', ""])
def test_what_can_t_be_understood_ends_the_wait(says):
    code = f"import sys; print({says!r}, flush=True); sys.stdin.read()" if says else "pass"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with pytest.raises(InferenceError, match="ended unexpectedly"):
        fetching.Fetch("owner/none", None, other).result(lambda _: None)


def test_a_process_that_can_t_be_started_is_told(settings, monkeypatch):
    monkeypatch.setattr(fetching.sys, "executable", "/no/such/python")
    with pytest.raises(InferenceError, match="can't be looked at"):
        fetching.begin("owner/none", settings).result(lambda _: None)


def test_it_ends_with_the_process_that_began_it(settings):
    code = (
        "import sys; from inference.sources import fetching; from inference.settings import from_env\n"
        "print(fetching.begin('owner/none', from_env())._process.pid, flush=True); sys.stdin.read()"
    )
    with entry_of("owner/none", settings).locked():
        parent = subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child.environment(**settings.to_env())
        )
        fetching_process = psutil.Process(int(parent.stdout.readline()))
        assert fetching_process.is_running()
        parent.kill()
        parent.communicate()
        until(lambda: not fetching_process.is_running() or fetching_process.status() == psutil.STATUS_ZOMBIE, 20)


def test_a_damaged_folder_of_ours_is_made_anew_once_it_can_t_be_read(settings, monkeypatch):
    folder, tries, told = restored(settings), [], []
    monkeypatch.setattr(manifest, "SMALL_BYTES", 2**14)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:8] + b"x" * 40 + weights[48:])
    checkpoint = fetching.begin(SMALL_MODEL, settings).result(lambda _: None)

    def begin(name, _):
        assert name == SMALL_MODEL and not folder.exists()
        return fetching.Fetch(name, Checkpoint(name, restored(settings)))

    def load(found):
        tries.append(found)
        if manifest.damaged(found.folder):
            raise ValueError("header")
        return "model"

    monkeypatch.setattr(fetching, "begin", begin)
    assert fetching.load_sound(checkpoint, settings, lambda loading: told.append(loading.stage), load) == (tries[1], "model")
    assert len(tries) == 2 and any("damaged" in stage for stage in told)


def test_a_damaged_folder_that_is_not_in_our_cache_is_left_alone(settings, tmp_path):
    folder = make_checkpoint(tmp_path / "copied out of the cache")
    manifest.seal(folder, default_model.REVISION)
    (folder / "model.safetensors").write_bytes(b"x")

    def load(_):
        raise ValueError("header")

    with pytest.raises(ValueError, match="header"):
        fetching.load_sound(Checkpoint(str(folder), folder), settings, lambda _: None, load)
    assert folder.exists()


@pytest.mark.parametrize("error", [OutOfMemory("the GPU ran out"), MemoryError(), DeviceLost("lost"), RuntimeError("CUDA out of memory")])
def test_want_of_memory_and_a_lost_device_have_no_file_read(settings, monkeypatch, error):
    folder = restored(settings)

    def load(_):
        raise error

    monkeypatch.setattr(manifest, "digest", None)
    with pytest.raises(type(error)):
        fetching.load_sound(Checkpoint(SMALL_MODEL, folder), settings, lambda _: None, load)


@pytest.mark.parametrize("error", [Refused("does not fit"), InferenceError("lacks weights"), RuntimeError("kernel")])
def test_a_whole_folder_is_not_blamed_for_a_load_that_fails(settings, error):
    folder = restored(settings)

    def load(_):
        raise error

    with pytest.raises(type(error)):
        fetching.load_sound(Checkpoint(SMALL_MODEL, folder), settings, lambda _: None, load)
    assert folder.exists()


def test_a_full_disk_reaches_the_lane_as_a_sentence_and_nothing_is_left(settings, small_disk):
    with pytest.raises(OSError):
        (small_disk / "full").write_bytes(bytes(2 * 2**20))
    with pytest.raises(InferenceError, match=r"disk is full: .* has 0 B free, and SmolLM2.* needs about 480 MiB"):
        fetching.begin(SMALL_MODEL, Settings(cache_dir=str(small_disk))).result(lambda _: None)
    assert not list(small_disk.rglob(".new-*"))


def test_a_folder_that_can_t_be_read_is_told_and_ends_nothing(settings, tmp_path):
    folder = make_checkpoint(tmp_path / "m")
    (folder / "shape.json").mkdir()
    with pytest.raises(InferenceError, match="can't be looked at"):
        fetching.begin(str(folder), settings).result(lambda _: None)


@pytest.mark.parametrize("name", ["~nobody-of-this-name/m", "x" * 5000, "a/b" + "x" * 5000, "C:\\models\\m", "owner/na me", "owner/name/", "\u4f60/\u597d"])
def test_a_name_that_can_be_no_path_of_this_machine_gets_a_sentence(settings, monkeypatch, name):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InferenceError, match="no folder or file|neither an existing folder nor a Hub id"):
        checkpoints.find(name, settings, lambda _: None)


def test_what_nobody_foresaw_in_a_folder_ends_no_lane(settings, tmp_path, monkeypatch):
    def break_off(*_):
        raise RecursionError("of a file that holds what nobody foresaw")

    monkeypatch.setattr(fetching, "at_hand", break_off)
    with pytest.raises(InferenceError, match="m can't be looked at .RecursionError: of a file"):
        fetching.begin(str(tmp_path / "m"), settings).result(lambda _: None)
