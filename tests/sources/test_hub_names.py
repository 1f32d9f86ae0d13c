"""What MODEL_ID says of the Hub: an id, a revision, one file of it; adapters and other formats from there; the commit that was used is told."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType

from inference.cache import manifest
from inference.errors import InferenceError
from inference.settings import Settings, from_env
from inference.sources import checkpoints, fetching
from inference.sources.at_hand import HubName, at_hand
from tests.support.adapters import make_adapter
from tests.support.false_hub import COMMIT, Repository
from tests.support.gguf_file import write_gguf
from tests.support.tiny import make_checkpoint

OTHER = COMMIT[::-1]


@pytest.fixture
def settings(tmp_path):
    return Settings(cache_dir=str(tmp_path / "cache"))


def find(name, settings):
    return checkpoints.find(name, settings, lambda _: None)


@pytest.fixture
def hub(false_hub, tmp_path):
    """A Hub with a model and, over it, an adapter whose configuration names it with a revision."""
    base = make_checkpoint(tmp_path / "base", "llama")
    false_hub.repositories["owner/base"] = Repository.of(base)
    false_hub.repositories["owner/base"].revisions |= {"v1": OTHER}
    adapter = make_adapter(tmp_path / "adapter", base)
    config = (adapter / "adapter_config.json").read_text().replace(f'"{base}"', '"owner/base"').replace('"revision": null', '"revision": "v1"')
    (adapter / "adapter_config.json").write_text(config)
    false_hub.repositories["owner/adapter"] = Repository.of(adapter)
    return false_hub


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("owner/name", ("owner/name", None, None)),
        ("owner/name@main", ("owner/name", None, "main")),
        ("owner/name@refs/pr/1", ("owner/name", None, "refs/pr/1")),
        ("owner/name/m.Q4_K_M.gguf@v1", ("owner/name", "m.Q4_K_M.gguf", "v1")),
    ],
)
def test_a_name_says_id_file_and_revision(name, parts):
    assert HubName.of(name) == HubName(*parts)


@pytest.mark.parametrize(("asked", "commit"), [("owner/base", COMMIT), ("owner/base@main", COMMIT), ("owner/base@v1", OTHER), (f"owner/base@{OTHER}", OTHER)])
def test_the_revision_told_is_the_commit_that_was_used(hub, settings, asked, commit):
    found = find(asked, settings)
    assert (found.id, found.revision, found.folder.name) == ("owner/base", commit, commit)
    assert at_hand(found.name, settings) == found, "a commit that is here is not asked for again"


def test_a_revision_that_is_not_there_is_told_and_so_is_a_path_with_a_mark_in_it(hub, settings, tmp_path):
    with pytest.raises(InferenceError, match="v9"):
        find("owner/base@v9", settings)
    folder = make_checkpoint(tmp_path / "m@2", "llama")
    assert find(str(folder), settings).folder == folder


def test_an_adapter_comes_from_the_hub_with_the_base_and_revision_that_it_names(hub, settings):
    found = find("owner/adapter", settings)
    assert (found.id, found.revision, found.base) == ("owner/adapter", COMMIT, f"owner/base@{OTHER}")
    assert found.adapter == f"owner/adapter@{COMMIT} (LORA, rank 4)" and "merged into owner/base@v1" in found.note
    stamp = (found.folder / "model.safetensors").stat().st_mtime_ns
    hub.asked.clear()
    again = fetching.begin(found.name, settings)
    assert again._process is None and again.result(lambda _: None) == found and not hub.asked
    assert (found.folder / "model.safetensors").stat().st_mtime_ns == stamp


def test_a_local_adapter_over_a_base_on_the_hub_is_found_again_without_a_process(hub, settings, tmp_path):
    adapter = str(tmp_path / "adapter")
    found = fetching.begin(adapter, settings).result(lambda _: None)
    hub.asked.clear()
    again = fetching.begin(adapter, settings)
    assert again._process is None and again.result(lambda _: None).folder == found.folder and not hub.asked


def test_a_commit_that_another_lane_has_had_is_taken_though_the_branch_moved(hub, settings):
    first = find("owner/base", settings)
    hub.repositories["owner/base"].revisions |= {"main": OTHER, "old": COMMIT}
    later = replace(settings, pinned=(f"owner/base={first.name}",))
    assert Settings(pinned=from_env(later.to_env()).pinned).pin_of("owner/base") == first.name
    assert fetching.begin("owner/base", later).result(lambda _: None) == first and find("owner/base", settings).revision == OTHER


def test_a_damaged_merge_of_an_adapter_on_the_hub_is_made_anew_of_the_same_revision(hub, settings):
    found = find("owner/adapter", settings)
    file = found.folder / "model.safetensors"
    digest = manifest.digest(file)
    file.write_bytes(file.read_bytes()[:-100])

    def load(checkpoint):
        if manifest.digest(checkpoint.folder / "model.safetensors") != digest:
            raise ValueError("not what it was")
        return "model"

    checkpoint, _ = fetching.load_sound(found, settings, lambda _: None, load)
    assert checkpoint.revision == COMMIT and manifest.digest(file) == digest


def test_an_adapter_whose_base_the_hub_does_not_have_is_refused_with_the_setting(hub, settings):
    del hub.repositories["owner/base"]
    with pytest.raises(InferenceError, match="its base owner/base@v1 can't be had. Set BASE_MODEL_ID"):
        find("owner/adapter", settings)


def test_one_gguf_file_of_many_is_fetched_and_converted(hub, settings, tmp_path):
    file = write_gguf(tmp_path / "base", tmp_path / "m.BF16.gguf", GGMLQuantizationType.BF16)
    hub.repositories["owner/gguf"] = Repository({name: file.read_bytes() for name in ("m.BF16.gguf", "m.F16.gguf")})
    found = find("owner/gguf/m.BF16.gguf", settings)
    assert (found.id, found.revision) == ("owner/gguf/m.BF16.gguf", COMMIT) and hub.downloaded() == {"m.BF16.gguf"}
    assert at_hand(found.name, settings) == found
    with pytest.raises(InferenceError, match="Set MODEL_ID to one of them, such as owner/gguf/m.BF16.gguf"):
        find("owner/gguf", settings)
    with pytest.raises(InferenceError, match="no file m.Q4_0.gguf, but m.BF16.gguf, m.F16.gguf"):
        find("owner/gguf/m.Q4_0.gguf", settings)


def test_pickled_weights_are_fetched_only_where_they_are_allowed(hub, settings, tmp_path):
    import torch
    from safetensors.torch import load_file

    files = {path.name: path.read_bytes() for path in (tmp_path / "base").iterdir() if path.suffix != ".safetensors"}
    torch.save(load_file(tmp_path / "base" / "model.safetensors"), tmp_path / "weights")
    hub.repositories["owner/pickled"] = Repository({**files, "pytorch_model.bin": (tmp_path / "weights").read_bytes()})
    with pytest.raises(InferenceError, match="ALLOW_PICKLE=on"):
        find("owner/pickled", settings)
    found = find("owner/pickled", Settings(cache_dir=settings.cache_dir, allow_pickle=True))
    assert found.revision == COMMIT and "pickle" in found.note and isinstance(found.folder, Path)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("https://huggingface.co/owner/name", "owner/name"),
        ("hf.co/owner/na.me-4b/", "owner/na.me-4b"),
        ("https://huggingface.co/owner/name/tree/main", "owner/name"),
        ("https://huggingface.co/owner/name/blob/v1/config.json?x=1", "owner/name@v1"),
        ("owner/name/", "owner/name"),
        ("hf://owner/name@v1", "owner/name@v1"),
        ("hf://models/owner/name", "owner/name"),
        ("https://huggingface.co/owner/name.git", "owner/name"),
        ("https://huggingface.co/owner/name/discussions/3", "owner/name"),
        ("https://huggingface.co/owner/name/tree/refs%2Fpr%2F1", "owner/name@refs/pr/1"),
        ("https://huggingface.co/owner/name/blob/main/m.Q4_K_M.gguf", "owner/name/m.Q4_K_M.gguf"),
        ("https://huggingface.co/owner/name/resolve/v1/m.gguf?download=true", "owner/name/m.gguf@v1"),
        ("hf.co/owner/name:Q4_K_M", "owner/name/FILE.gguf, with the whole name of one of its files"),
    ],
)
def test_the_address_of_a_model_is_told_how_to_be_written(name, meant, settings):
    with pytest.raises(InferenceError, match=re.escape(f"set MODEL_ID to {meant}.")):
        at_hand(name, settings)


@pytest.mark.parametrize(
    ("name", "within"),
    [
        ("owner/name/checkpoint-500", "checkpoint-500"),
        ("https://huggingface.co/owner/name/tree/main/a/b", "a/b"),
        ("https://huggingface.co/owner/name/blob/main/a/config.json", "a"),
        ("owner/name/Q4/m.gguf", "Q4/m.gguf"),
    ],
)
def test_a_model_in_a_folder_of_a_repository_is_not_taken_for_the_one_above_it(name, within, settings):
    with pytest.raises(InferenceError, match=re.escape(f"then set MODEL_ID to FOLDER/{within}.")) as raised:
        at_hand(name, settings)
    assert f"hf download owner/name --include '{within}{'' if within.endswith('.gguf') else '/*'}'" in str(raised.value)


@pytest.mark.parametrize(
    "name", ["https://example.com/owner/name", "https://huggingface.co/spaces/owner/name", "datasets/owner/name", "./owner/name", "/owner/name/", "a/b/c/d"]
)
def test_what_is_no_address_of_a_model_is_no_hub_id_either(name, settings):
    with pytest.raises(InferenceError, match="Set MODEL_ID to an existing one or to a Hub id"):
        at_hand(name, settings)
