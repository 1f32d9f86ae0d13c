"""What comes from the Hub is whole and of the commit that was listed, or it is said: whatever moves, fails or lies on the way, and whatever a cache lacks."""

import fcntl
import json
import os
import shutil
import threading
import time

import pytest
from huggingface_hub import constants

from inference.errors import InferenceError
from inference.host import patience
from inference.settings import Settings
from inference.sources import checkpoints, hub, hub_cache
from inference.sources.at_hand import at_hand
from tests.support.false_hub import COMMIT, Repository, answers, etag, only
from tests.support.tiny import make_checkpoint
from tests.support.tiny_hub import NAME, SMALL, WEIGHTS, fetch, refusal

NEXT = COMMIT[::-1]
NEW = os.urandom(200_000)


def push(tiny_hub, **files: bytes) -> None:
    """A new commit on main; the old one can still be had."""
    repository = tiny_hub.repositories[NAME]
    repository.revisions = {"main": NEXT, "old": COMMIT}
    repository.files = {**SMALL, "model.safetensors": NEW, **files}


def after_the_list(tiny_hub, what):
    """A behaviour: `what` of every question that follows the first for what is there."""
    asked = []

    def behaviour(handler) -> bool:
        asked.append(handler.path)
        return len(asked) > 1 and what(handler)

    tiny_hub.does["/api/"] = behaviour


@pytest.mark.parametrize("status", [401, 500, 503])
def test_a_hub_that_fails_once_the_new_commit_is_listed_gives_no_older_one(tiny_hub, status):
    fetch()
    push(tiny_hub)
    after_the_list(tiny_hub, lambda handler: answers(status)(handler) if "/tree" not in handler.path else False)
    assert fetch().name == NEXT


def test_a_list_of_files_that_can_t_be_had_is_told_and_gives_no_older_commit(tiny_hub):
    fetch()
    push(tiny_hub)
    tiny_hub.does["/tree/"] = answers(503)
    assert "broke off (503: a fault of its own)" in refusal()


def test_a_push_between_two_questions_gives_the_commit_that_was_listed(tiny_hub):
    revisions = tiny_hub.repositories[NAME].revisions
    after_the_list(tiny_hub, lambda _: bool(revisions.update(main=NEXT, old=COMMIT)))
    folder = fetch()
    assert folder.name == COMMIT and (folder / "model.safetensors").exists()
    assert hub_cache.on_disk(NAME) == hub_cache.on_disk(NAME, "main") == folder, "a branch is found again though it was fetched by its commit"


def test_a_file_that_did_not_come_is_told(tiny_hub, monkeypatch):
    monkeypatch.setattr(hub, "snapshot_download", lambda *_, **__: str(hub_cache.hub_cache()))
    assert "broke off (config.json did not come)" in refusal()


def test_other_content_of_the_same_length_is_refused_removed_and_fetched_anew(tiny_hub):
    wrong = only("GET", answers(200, {"X-Repo-Commit": COMMIT, "ETag": f'"{etag(WEIGHTS)}"'}, NEW))
    tiny_hub.does["model.safetensors"] = wrong
    assert "model.safetensors came with other content than the Hub says it has (SHA-256), so it was removed" in refusal()
    assert hub_cache.on_disk(NAME) is None and not list(hub_cache.hub_cache().rglob(etag(WEIGHTS)))
    del tiny_hub.does["model.safetensors"]
    assert (fetch() / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("linked", [True, False])
def test_a_file_in_the_hub_s_cache_that_a_crash_cut_is_fetched_anew(tiny_hub, tmp_path, file, linked):
    content = tiny_hub.repositories[NAME].files[file]
    path = fetch() / file
    if not linked:  # as where a system has no links
        shutil.copy(path, tmp_path / "copy")
        path.resolve().unlink()
        path.unlink()
        shutil.move(tmp_path / "copy", path)
    path.write_bytes(content[:-1])
    assert hub_cache.lacking(path.parent) == [file]
    assert fetch() == path.parent and path.read_bytes() == content and hub_cache.lacking(path.parent) == []


def test_files_whose_size_a_mirror_does_not_say_are_kept(tiny_hub, monkeypatch):
    folder = fetch()
    unsaid = {file: hub.Remote(0, etag(content)) for file, content in tiny_hub.repositories[NAME].files.items()}
    monkeypatch.setattr(hub, "listing", lambda *_: hub.Listing(NAME, COMMIT, unsaid))
    tiny_hub.asked.clear()
    assert fetch() == folder and tiny_hub.downloaded() == {"config.json"}, "which is asked for to see whether the model is locked"


def test_another_program_that_downloads_the_same_is_waited_for_as_long_as_it_gets_on(tiny_hub, monkeypatch):
    monkeypatch.setattr(hub, "SILENT_S", 1.0)
    monkeypatch.setattr(patience, "LOOK_S", 0.1)
    cache = hub_cache.hub_cache()
    (locks := cache / ".locks" / "models--owner--tiny").mkdir(parents=True)
    (blobs := hub_cache.repository_of(NAME) / "blobs").mkdir(parents=True)
    held = os.open(locks / f"{etag(WEIGHTS)}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)

    def other() -> None:
        for begin in range(0, len(WEIGHTS), 20_000):
            with (blobs / "other.incomplete").open("ab") as piece:
                piece.write(WEIGHTS[begin : begin + 20_000])
            time.sleep(0.15)
        (blobs / "other.incomplete").rename(blobs / etag(WEIGHTS))
        os.close(held)

    thread = threading.Thread(target=other)
    thread.start()
    told = []
    folder = fetch(report=told.append)
    thread.join()
    assert folder.name == COMMIT and "another program is downloading it" in {loading.stage for loading in told}


def test_a_snapshot_that_lacks_a_small_file_is_completed_though_its_commit_is_named(tiny_hub, tmp_path):
    settings = Settings(cache_dir=str(tmp_path / "ours"))
    tiny_hub.repositories[NAME] = Repository.of(make_checkpoint(tmp_path / "m"))
    name = f"{NAME}@{COMMIT}"
    folder = fetch()
    assert at_hand(name, settings)
    (folder / "chat_template.jinja").unlink()  # whoever fetched it was interrupted
    assert at_hand(name, settings) is None
    assert (checkpoints.find(name, settings, lambda _: None).folder / "chat_template.jinja").exists()
    (folder / "chat_template.jinja").unlink()
    tiny_hub.does["/"] = answers(503)
    assert checkpoints.find(name, settings, lambda _: None).note == "its copy on this machine lacks chat_template.jinja"


@pytest.mark.parametrize("kept", ["{", "[]", '{"files": 1}', '{"files": {"a": 1}}', '{"files": {"a": {"size": "x"}}}', None])
def test_a_list_of_the_library_s_that_can_t_be_read_is_no_reason_to_ask(tiny_hub, kept):
    folder = fetch()
    lists = folder.parent.parent / "trees"
    shutil.rmtree(lists, ignore_errors=True)
    if kept:
        lists.mkdir()
        (lists / f"{COMMIT}.json").write_text(kept)
    assert hub_cache.lacking(folder) == []


NOT_ASKED, NOT_GIVEN = "could not be asked", "gave nothing that can be loaded (the log says why)"


@pytest.mark.parametrize(
    ("part", "refused", "why"),
    [
        ("/", answers(503), NOT_ASKED), ("/", answers(200, body=b"<html>"), NOT_ASKED), ("/", answers(404, {"X-Error-Code": "RevisionNotFound"}), NOT_GIVEN),
        ("/", answers(401), NOT_GIVEN), ("/resolve/", answers(403), NOT_GIVEN),
    ],
)  # fmt: skip
def test_a_copy_that_may_be_an_older_one_is_said_wherever_its_answers_are_shown(tiny_hub, tmp_path, monkeypatch, part, refused, why):
    settings = Settings(cache_dir=str(tmp_path / "ours"))
    tiny_hub.repositories[NAME] = Repository.of(make_checkpoint(tmp_path / "m"))
    assert checkpoints.find(NAME, settings, lambda _: None).note is None
    tiny_hub.does[part] = refused
    found = checkpoints.find(NAME, settings, lambda _: None)
    assert found.note == f"the Hub {why}: this is main as this machine last had it ({COMMIT[:12]})" and found.revision == COMMIT
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert checkpoints.find(NAME, settings, lambda _: None).note is None, "so it was set"


def test_a_newer_commit_that_can_t_be_loaded_is_no_hub_that_could_not_be_asked(tiny_hub, tmp_path):
    tiny_hub.repositories[NAME] = Repository.of(make_checkpoint(tmp_path / "m"))
    fetch()
    tiny_hub.repositories[NAME] = Repository({"config.json": b"{}", "pytorch_model.bin": b""}, revisions={"main": "f" * 40})
    note = checkpoints.find(NAME, Settings(cache_dir=str(tmp_path / "ours")), lambda _: None).note
    assert note == f"the Hub {NOT_GIVEN}: this is main as this machine last had it ({COMMIT[:12]})"


def test_an_empty_variable_for_the_hub_s_cache_is_none(tiny_hub, tmp_path, monkeypatch):
    """As a compose file sets one that is not set itself; the library then wrote to the working folder, where nothing was found again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", "")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", "")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    assert fetch() == hub_cache.on_disk(NAME) and [path.name for path in tmp_path.iterdir() if path.name not in ("ours", "hub")] == ["home"]


def test_models_in_folders_of_a_repository_are_told_with_how_to_fetch_one(tiny_hub):
    files = {f"checkpoint-{n}/{file}": b"{}" for n in (500, 1000) for file in ("adapter_config.json", "adapter_model.safetensors")}
    tiny_hub.repositories[NAME] = Repository({"README.md": b"", **files})
    with pytest.raises(InferenceError) as raised:
        fetch()
    assert "in folders of their own (checkpoint-500, checkpoint-1000)" in str(raised.value)
    assert f"hf download {NAME} --include 'checkpoint-1000/*' --local-dir FOLDER) and set MODEL_ID to FOLDER/checkpoint-1000." in str(raised.value)


def test_a_ref_is_noted_as_the_library_does_and_nowhere_else(tiny_hub, tmp_path):
    hub_cache.note_ref(NAME, "refs/pr/1", COMMIT)
    assert (hub_cache.repository_of(NAME) / "refs" / "refs" / "pr" / "1").read_text() == COMMIT
    hub_cache.note_ref(NAME, "../../../out", COMMIT)
    hub_cache.note_ref(NAME, COMMIT, COMMIT)
    assert [path.name for path in hub_cache.repository_of(NAME).rglob("*") if path.is_file()] == ["1"] and not (tmp_path / "out").exists()
    assert json.dumps(hub_cache.lacking(tmp_path)) == "[]"
