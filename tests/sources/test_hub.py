"""Fetching holds: against a false Hub on loopback, only what is read is fetched, every refusal has its sentence, and nothing hangs."""

import errno
import json
import logging
import os
import subprocess
import sys
import threading
import time

import pytest
from huggingface_hub import constants, get_session

from inference import child
from inference.errors import InferenceError, Refused
from inference.settings import SMALL_MODEL, Settings
from inference.sources import checkpoints, default_model, fetching, hub, hub_cache
from inference.sources.headers import tensors_of
from tests.support.false_hub import COMMIT, FalseHub, Repository, answers, breaks_off, impatient, only, redirects, serving, silent, stalls
from tests.support.tiny import make_checkpoint

NAME = "owner/tiny"
SMALL = {"config.json": b"{}", "tokenizer.json": b"{ }"}
WEIGHTS = os.urandom(200_000)
GATED, NO_REPO = {"X-Error-Code": "GatedRepo"}, {"X-Error-Code": "RepoNotFound"}


@pytest.fixture
def tiny(false_hub) -> FalseHub:
    """A Hub that has one model, of two small files and its weights."""
    false_hub.repositories[NAME] = Repository({**SMALL, "model.safetensors": WEIGHTS})
    return false_hub


def fetch(name=NAME, revision=None, report=lambda _: None):
    return hub.fetch(name, revision, report)


def refusal(**asked) -> str:
    with pytest.raises(InferenceError) as raised:
        fetch(**asked)
    return str(raised.value)


def test_a_model_comes_into_the_hub_s_own_cache_and_is_found_there_by_branch_and_commit(tiny):
    folder = fetch()
    assert folder.name == COMMIT and (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert hub_cache.on_disk(NAME) == hub_cache.on_disk(NAME, COMMIT) == folder
    tiny.asked.clear()
    assert fetch() == folder and not any(path.endswith("model.safetensors") for method, path in tiny.asked if method == "GET")


def test_a_revision_is_that_branch_tag_or_commit(tiny):
    tiny.repositories[NAME].revisions["v1"] = other = COMMIT[::-1]
    assert fetch(revision="v1").name == other == hub_cache.on_disk(NAME, "v1").name
    assert fetch(revision=COMMIT).name == COMMIT


NOT_READ = {
    "model.fp16.safetensors": b"x", "consolidated.safetensors": b"x", "pytorch_model.bin": b"x", "model.gguf": b"x", "model.onnx": b"x",
    "onnx/model.onnx": b"x", "original/model.safetensors": b"x", "training_args.bin": b"x", "modeling_own.py": b"x", "README.md": b"x",
}  # fmt: skip


def test_only_what_is_read_is_fetched(tiny):
    tiny.repositories[NAME].files |= NOT_READ | {"model.safetensors.index.json": b'{"weight_map": {"a": "part.safetensors"}}', "part.safetensors": b"x"}
    fetch()
    assert tiny.downloaded() == {"config.json", "tokenizer.json", "model.safetensors"}


def test_of_weights_in_parts_those_that_the_index_names_are_fetched(tiny):
    parts = {f"model-{n}-of-2.safetensors": os.urandom(1000) for n in (1, 2)}
    index = {"model.safetensors.index.json": json.dumps({"weight_map": dict(zip("ab", parts, strict=True))}).encode()}
    fp16 = {"model.fp16-1-of-1.safetensors": b"x", "model.fp16.index.json": b"{}"}
    tiny.repositories[NAME] = Repository({**SMALL, **parts, **index, **NOT_READ, **fp16})
    folder = fetch()
    assert tiny.downloaded() == {*SMALL, *parts, *index} and hub_cache.on_disk(NAME) == folder
    del tiny.repositories[NAME].files["model-2-of-2.safetensors"]
    assert "lacks model-2-of-2.safetensors, which its model.safetensors.index.json names" in refusal_of_a_new_commit(tiny)


def refusal_of_a_new_commit(tiny) -> str:
    tiny.repositories[NAME].revisions["next"] = COMMIT[::-1]
    return refusal(revision="next")


def test_an_adapter_s_own_files_are_fetched(tiny):
    adapter = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"x", "tokenizer.json": b"{ }"}
    tiny.repositories[NAME] = Repository(adapter | {"adapter_model.bin": b"x", "optimizer.pt": b"x", "checkpoint-10/adapter_model.safetensors": b"x"})
    assert hub_cache.on_disk(NAME) is None
    assert fetch() == hub_cache.on_disk(NAME) and tiny.downloaded() == set(adapter)


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
def test_what_can_t_be_loaded_is_refused_before_its_weights_are_fetched(tiny, files, words):
    tiny.repositories[NAME] = Repository(files)
    with pytest.raises(InferenceError, match=words):
        fetch()
    assert not {file for file in tiny.downloaded() if len(files[file]) == len(WEIGHTS)}


def test_pickles_are_fetched_where_they_are_allowed_and_no_others_beside_them(tiny):
    parts = {f"pytorch_model-{n}-of-2.bin": os.urandom(1000) for n in (1, 2)}
    index = {"pytorch_model.bin.index.json": json.dumps({"weight_map": dict(zip("ab", parts, strict=True))}).encode()}
    tiny.repositories[NAME] = Repository({**SMALL, **parts, **index, "optimizer.bin": b"x", "training_args.bin": b"y"})
    folder = hub.fetch(NAME, None, lambda _: None, pickles=True)
    assert tiny.downloaded() == {*SMALL, *parts, *index} and hub_cache.on_disk(NAME) == folder


def test_the_progress_is_one_total_of_bytes_that_never_goes_back(tiny):
    parts = {f"model-{n}-of-3.safetensors": os.urandom(n * 50_000) for n in (1, 2, 3)}
    index = {"model.safetensors.index.json": json.dumps({"weight_map": dict(zip("abc", parts, strict=True))}).encode()}
    tiny.repositories[NAME] = Repository({**SMALL, **parts, **index})
    broken = parts["model-3-of-3.safetensors"]
    tiny.does["model-3"] = breaks_off(broken, 60_000, 2)
    told = []
    fetch(report=told.append)
    told = [loading for loading in told if loading.stage == "downloading"]
    total = sum(len(data) for data in tiny.repositories[NAME].files.values())
    assert {loading.total for loading in told} == {total} and {loading.unit for loading in told} == {"bytes"}
    done = [loading.done for loading in told]
    assert done == sorted(done) and done[-1] == total and len(done) > 3


def test_progress_bars_that_are_switched_off_change_nothing(tiny, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    told = []
    fetch(report=told.append)
    assert told[-1].done == told[-1].total > len(WEIGHTS)


def test_a_download_that_breaks_off_once_goes_on(tiny):
    tiny.does["model.safetensors"] = breaks_off(WEIGHTS, 50_000, 1)
    assert (fetch() / "model.safetensors").read_bytes() == WEIGHTS


def test_a_download_that_breaks_off_for_good_keeps_what_came_whole_and_leaves_no_piece(tiny):
    tiny.does["model.safetensors"] = breaks_off(WEIGHTS, 0, 99)
    assert "download of owner/tiny broke off (the connection broke off). The files that came whole are kept" in refusal()
    cache = hub_cache.hub_cache()
    assert not list(cache.rglob("*.incomplete")) and list(cache.rglob("config.json"))


@pytest.mark.parametrize("part", ["/api/", "/resolve/"])
def test_a_hub_that_accepts_and_is_silent_holds_nobody_up(tiny, monkeypatch, part):
    impatient(monkeypatch)
    tiny.does[part] = silent
    assert f"can't be reached ({tiny.url} did not answer in time), and owner/tiny is not on this machine" in refusal()


@pytest.mark.parametrize("part", ["/tree/", "model.safetensors"])
def test_a_hub_that_falls_silent_on_the_way_is_given_up(tiny, monkeypatch, part):
    impatient(monkeypatch)
    monkeypatch.setattr(hub, "SILENT_S", 1.0)  # the library tries again as often as it likes
    tiny.does[part] = silent if part == "/tree/" else stalls(WEIGHTS, 1000)
    sentence = refusal()
    assert "has sent nothing for 1 s" in sentence or "did not answer in time" in sentence
    assert "The files that came whole are kept" in sentence


def test_no_request_of_the_library_is_without_a_time_out(tiny):
    fetch()
    request = get_session().build_request("GET", tiny.url, timeout=None)
    for hook in get_session().event_hooks["request"]:
        hook(request)
    assert request.extensions["timeout"] == dict.fromkeys(("connect", "read", "write", "pool"), 5)


def test_what_brings_nothing_is_given_up_whatever_the_library_does(tiny, monkeypatch):
    """A Hub that asks for an hour's patience, which the library has."""
    monkeypatch.setattr(hub, "SILENT_S", 0.3)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: tiny.closing.wait())
    tiny.does["model.safetensors"] = answers(429, {"Retry-After": "3600"})
    assert "has sent nothing for 0.3 s" in refusal()


def test_a_slow_hub_that_goes_on_sending_is_waited_for(monkeypatch):
    monkeypatch.setattr(hub, "SILENT_S", 0.2)
    watch = hub._Watch()

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


REASONS = [
    # token, status, headers, words
    (None, 401, NO_REPO, "shows no model owner/tiny to somebody without a token"),
    (None, 401, {}, "shows no model owner/tiny to somebody without a token"),
    ("hf_wrong", 401, {"X-Error-Message": "Invalid credentials in Authorization header"}, "does not accept the token that is set"),
    ("hf_wrong", 401, {}, "does not accept the token that is set"),
    (None, 401, GATED, "is locked, and no token was given"),
    ("hf_right", 403, GATED, "this token's account may not read it. Accept its licence"),
    ("hf_right", 403, GATED | {"X-Error-Message": "Your request is awaiting a review from the repo authors."}, "still awaits its authors' review"),
    ("hf_right", 403, {"X-Error-Message": "Please enable access to public gated repositories in your fine-grained token settings"}, "lacks a permission"),
    ("hf_right", 403, {}, "lacks a permission"),
    (None, 403, {}, "or a proxy before it, refuses owner/tiny"),
    ("hf_right", 403, {"X-Error-Message": "Access to this resource is disabled."}, "has been disabled"),
    (None, 404, NO_REPO, "knows no model owner/tiny, or it is private: then set the secret HF_TOKEN"),
    (None, 404, {}, "knows no model owner/tiny, or it is private: then set the secret HF_TOKEN"),
    ("hf_right", 404, NO_REPO, "knows no model owner/tiny, or it is private and this token's account may not see it"),
    (None, 404, {"X-Error-Code": "RevisionNotFound"}, "has no revision main"),
    (None, 410, {"X-Error-Message": "gone for good"}, "refuses owner/tiny (410: gone for good)"),
    (None, 429, {"Retry-After": "77"}, "429: it was asked too often; it may be asked again in 77 s; with a token"),
    ("hf_right", 429, {"RateLimit": '"api";r=0;t=55'}, "asked again in 55 s), and"),
    (None, 503, {}, "503: a fault of its own), and owner/tiny is not on this machine. Ask again later"),
]


@pytest.mark.parametrize(("token", "status", "headers", "words"), REASONS)
@pytest.mark.parametrize("part", ["/api/", "/resolve/"])
def test_each_refusal_has_its_reason_and_the_log_its_trace_without_the_token(tiny, monkeypatch, caplog, part, token, status, headers, words):
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
        headers = {**headers, "X-Request-Id": f"echoes {token}"}
    tiny.tokens = {"hf_right", "hf_wrong"}
    tiny.does[part] = answers(status, headers)
    sentence = refusal()
    assert words in sentence and "Traceback" in caplog.text and f"{status}" in caplog.text
    assert not token or (token not in sentence and token not in caplog.text and "***" in caplog.text)


def test_a_locked_model_is_told_although_its_list_is_public(tiny, monkeypatch):
    tiny.repositories[NAME].gated = True
    assert "is locked, and no token was given" in refusal()
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert fetch().name == COMMIT


def test_a_revision_that_is_not_there_is_named(tiny):
    assert "owner/tiny has no revision v9" in refusal(revision="v9")


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_a_refusal_on_the_way_is_told_by_its_number(tiny, status):
    tiny.does["model.safetensors"] = answers(status)
    assert "The download of owner/tiny broke off (" in refusal() and f"{status}" in refusal()


def test_what_is_no_hub_is_told(tiny, monkeypatch):
    tiny.does["/api/"] = answers(200, body=b"<html>Please log in</html>")
    assert "is not the Hub, perhaps a proxy or a page to log in" in refusal()
    tiny.does["/api/"] = answers(200, body=b"[]")
    assert "is not the Hub" in refusal()
    tiny.does["/api/"] = redirects(tiny.url + "/api/models/owner/tiny")
    assert "sends from one address to the next without end" in refusal()
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "http://127.0.0.1:9 refuses the connection" in refusal()
    monkeypatch.setattr(constants, "ENDPOINT", "http://no-such-host.invalid")
    assert "there is no address for http://no-such-host.invalid" in refusal()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "may not be asked (HF_HUB_OFFLINE is set), and owner/tiny is not on this machine" in refusal()


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"http_proxy": "socks5://127.0.0.1:9"}, "is a SOCKS one, which this Python can't use"),
        ({"http_proxy": "http://[::1"}, "the address of the proxy that is set, or HF_ENDPOINT, is none"),
        ({"HF_TOKEN": "hf_s\u00e9same"}, "HF_TOKEN holds a character that no token has"),
        ({"SSL_CERT_FILE": "/no/such/file.pem"}, "no file of certificates where SSL_CERT_FILE says"),
    ],
)
def test_variables_that_the_library_can_t_use_are_named(variables, words, tmp_path):
    """The proxy of a shell (ALL_PROXY=socks5://...) ended the default model's load with a trace, where PyPI would have given it."""
    unset = dict.fromkeys(("NO_PROXY", "no_proxy", "http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"), "")
    program = "import sys; from inference.sources import hub\ntry: hub.listing('owner/tiny', None)\nexcept hub.InferenceError as error: print(error)"
    with serving() as running:
        environment = child.environment(HF_ENDPOINT=running.url, HF_HUB_CACHE=str(tmp_path), **{**unset, **variables})
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert words in done.stdout, done.stderr
    assert "same" not in done.stdout


def test_a_whole_copy_is_taken_where_the_hub_can_t_be_asked(tiny, caplog):
    folder = fetch()
    tiny.does["/"] = answers(503)
    with caplog.at_level(logging.WARNING):
        assert fetch() == folder and "The copy on this machine is used" in caplog.text
    (folder / "model.safetensors").unlink()
    assert "503" in refusal()


def test_a_cache_that_can_t_be_written_is_named_with_its_variables(tiny, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    cache = str(tmp_path / "file" / "hub")
    monkeypatch.setenv("HF_HUB_CACHE", cache)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", cache)
    sentence = refusal()
    assert f"{cache}, where downloads from the Hub go, can't be written" in sentence
    assert "HF_HUB_CACHE or HF_HOME" in sentence and "model.safetensors" not in tiny.downloaded()


def test_a_part_of_the_cache_that_belongs_to_another_user_is_named(tiny, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "/somewhere/models--owner--tiny")

    monkeypatch.setattr(hub, "snapshot_download", refuse)
    assert "(Permission denied: /somewhere/models--owner--tiny). Set HF_HUB_CACHE or HF_HOME" in refusal()


def test_a_disk_without_room_is_said_before_anything_is_fetched(tiny, monkeypatch, small_disk):
    monkeypatch.setenv("HF_HUB_CACHE", str(small_disk))
    tiny.repositories[NAME].files["model.safetensors"] = bytes(2 * 2**20)
    assert "disk is full" in (sentence := refusal()) and "owner/tiny needs about 2.0 MiB" in sentence and "HF_HOME" in sentence
    assert "model.safetensors" not in tiny.downloaded()


def test_what_a_killed_download_left_is_removed_and_what_one_is_writing_is_not(tiny, tmp_path):
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


def test_the_process_that_fetches_tells_the_same_and_ends(tiny, tmp_path):
    tiny.does["/api/"] = only("GET", answers(401))
    fetched = fetching.begin(NAME, Settings(cache_dir=str(tmp_path / "ours")))
    with pytest.raises(Refused, match="shows no model owner/tiny"):
        fetched.result(lambda _: None)
    assert fetched._process.wait(20) == 0 and threading.active_count() < 50
