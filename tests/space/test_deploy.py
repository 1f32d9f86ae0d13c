"""A whole deployment against a false Hub: what is checked before, what is made, what is said when it goes wrong or is stopped."""

from __future__ import annotations

import re

import pytest

from inference.cli import main as command_line
from inference.host.hardware import LaneNeed
from inference.space import model, session, watch
from tests.support.space_hub import Space, refuses, silent

GIB = 2**30
SMALL = {lane: LaneNeed(GIB // 2, GIB, GIB) for lane in ("cuda:nf4", "cuda:nf4 in float32", "cpu:nf4", "cpu:fp32")}
SECRET = "s3cr3t-value-of-mine"
OURS = {"app.py": b"old", "inference/settings.py": b"old", "inference/gone.py": b"old", "README.md": b"---\nsdk: gradio\n---\n", "mine.txt": b"kept"}


@pytest.fixture
def hub(space_hub, monkeypatch):
    monkeypatch.setattr(watch, "POLL_S", 0.01)
    monkeypatch.setattr(model, "judged", lambda asked, offline: model.Judged(asked.hardware.fit(SMALL), SMALL))
    monkeypatch.setattr("inference.space.ask.ask", lambda asked, prompt, token: {"lanes": {"cpu:fp32": {"runs": [{"text": "Good morning."}]}}})
    return space_hub


def deploy(capsys, *arguments: str) -> tuple[int, str, str]:
    code = command_line.main(["deploy", "you/demo", "--hardware", "t4-small", *arguments])
    told = capsys.readouterr()
    assert SECRET not in told.out + told.err and "Traceback" not in told.err and "hf_right" not in told.err
    return code, told.out, " ".join(told.err.split())


def made(hub) -> set[str]:
    """What was sent to change anything."""
    return {path for method, path in hub.asked if method in ("POST", "PUT")} - {"/api/validate-yaml"}


def test_a_new_space_has_its_hardware_variables_secrets_and_files_at_once(hub, capsys, monkeypatch):
    monkeypatch.setenv("MINE", SECRET)
    hub.models["you/tuned"] = {"id": "you/tuned", "gated": "manual"}
    code, out, said = deploy(capsys, "--model", "you/tuned", "--private", "--secret", "MINE", "--secret", f"HF_TOKEN={SECRET}", "--variable", "MODELS=menu")
    space = hub.spaces["you/demo"]
    assert (code, space.hardware, space.private) == (0, "t4-small", True), said
    assert space.variables == {"MODEL_ID": "you/tuned", "MODELS": "menu"} and space.secrets == {"MINE": SECRET, "HF_TOKEN": SECRET}
    assert {"app.py", "ui/build.py", "requirements.txt", "docs/page.png", "examples/menu/adapter/adapter_model.safetensors"} <= set(space.files)
    assert not [path for path in space.files if re.search(r"tests/|__pycache__|\.pyc|^\.git/|docs/.*\.md", path)]
    assert space.files["docs/page.png"].startswith(b"\x89PNG") and b"  - you/tuned\n" in space.files["README.md"]
    assert "$0.42 an hour (prices read 20" in said and "of the Hub itself" in said, "the Hub's own price, and when"
    assert "is being built (BUILDING)" in said and said.count("APP_STARTING") == 1 and f"{hub.url}/spaces/you/demo" in out and "Good morning." in out


def test_one_of_ours_is_brought_up_to_date_and_woken(hub, capsys):
    hub.spaces["you/demo"] = Space(files=dict(OURS), stages=["PAUSED"], hardware="l4x1", secrets={"HF_TOKEN": "x"})
    code, _, said = deploy(capsys, "--secret", f"MINE={SECRET}", "--private")
    space = hub.spaces["you/demo"]
    assert code == 0 and space.private and space.secrets["MINE"] == SECRET and space.variables["MODEL_ID"] == "menu", said
    assert space.hardware == "t4-small" and "inference/gone.py" not in space.files and space.files["app.py"] != b"old" and "mine.txt" in space.files
    assert "Started." in said and "1 removed" in said


@pytest.mark.parametrize(
    "other", [Space(sdk="docker", files={"Dockerfile": b""}), Space(files={"app.py": b"", "model.py": b""})], ids=["docker", "another page"]
)
def test_a_space_that_is_something_else_is_left_alone_unless_it_is_said(hub, capsys, other):
    hub.spaces["you/demo"] = other
    before = set(other.files)
    code, _, said = deploy(capsys)
    assert code == 1 and "is not this page" in said and "--replace" in said and not made(hub) and set(other.files) == before
    assert deploy(capsys, "--replace")[0] == 0 and not before & set(other.files) - {"app.py"}


@pytest.mark.parametrize(
    ("what", "behaviour", "words"),
    [
        (("GET", "whoami"), refuses(401, "Invalid user token."), "does not accept the token that is set (401"),
        (
            ("POST", "repos/create"),
            refuses(402, "Add a payment method"),
            "asks for payment for t4-small (402: Add a payment method): it wants a payment method",
        ),
        (("POST", "repos/create"), refuses(403, "Forbidden"), "may not be used for making the Space (403: Forbidden)"),
        (("POST", "repos/create"), refuses(409, "Name is taken"), "because of what is there already (409: Name is taken)"),
        (("POST", "repos/create"), refuses(429, "", **{"Retry-After": "7"}), "429: it was asked too often; it may be asked again in 7 s"),
        (("POST", "repos/create"), refuses(422, f"bad value {SECRET}"), "The Hub refuses making the Space (422: bad value ***)"),
        (("GET", "whoami"), refuses(503), "gives no answer now"),
        (("GET", "whoami"), lambda handler: handler.answer(b"<html>log in</html>"), "is not the Hub"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_each_refusal_of_the_hub_is_a_sentence_and_leaves_nothing_behind(hub, capsys, what, behaviour, words):
    hub.does[what] = behaviour
    code, _, said = deploy(capsys, "--secret", f"MINE={SECRET}")
    assert code == 1 and words in said and "Nothing was made or changed on the Hub." in said and not hub.spaces


def test_what_was_done_before_a_refusal_is_told(hub, capsys):
    hub.does["POST", "commit"] = refuses(404, "Repository not found")
    code, _, said = deploy(capsys)
    assert code == 1 and "knows no Space you/demo (404" in said and "Done by then: the Space you/demo made on t4-small" in said


def test_a_hub_that_is_silent_or_not_there_is_told(hub, capsys, monkeypatch):
    monkeypatch.setattr("inference.space.deploy.ANSWER_S", 0.2)
    hub.does["GET", "whoami"] = silent
    code, _, said = deploy(capsys)
    assert code == 1 and "did not answer in time" in said
    del hub.does["GET", "whoami"]
    hub.does["POST", "repos/create"] = silent
    assert "Not answered by then, so done or not: making the Space." in deploy(capsys)[2]
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert "can't be reached" in deploy(capsys)[2]
    monkeypatch.setattr("inference.space.hub.UPLOAD_S", 0.2)
    with pytest.raises(TimeoutError):
        session.within(0.05, hub.closing.wait)


@pytest.mark.parametrize(
    ("role", "fine", "space", "words"),
    [
        ("read", None, "you/demo", "may not write you/demo"),
        ("write", None, "readers/demo", "Name one of: you, team"),
        ("fineGrained", {"scoped": [{"entity": {"name": "team"}, "permissions": ["repo.write"]}]}, "you/demo", "may not write you/demo"),
        ("fineGrained", {"scoped": [{"entity": {"name": "team"}, "permissions": ["repo.write"]}]}, "team/demo", ""),
    ],
)
def test_a_token_that_may_not_write_there_is_told_before_anything_is_made(hub, capsys, role, fine, space, words):
    hub.role, hub.fine_grained = role, fine
    code = command_line.main(["deploy", space, "--hardware", "cpu-basic", "--wait", "0"])
    said = capsys.readouterr().err
    assert (code == 0) == (not words) and words in said and bool(hub.spaces) == (not words)


def test_no_token_at_all_is_told(hub, capsys, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    code, _, said = deploy(capsys)
    assert code == 1 and "No token is set" in said and "hf auth login" in said and not hub.asked


def test_a_model_that_the_space_can_t_read_or_hold_is_refused_before_anything_is_made(hub, capsys, monkeypatch):
    assert "knows no model you/none" in deploy(capsys, "--model", "you/none")[2]
    hub.models["you/locked"] = {"id": "you/locked", "private": True}
    assert "you/locked is private, and the Space would have no token" in deploy(capsys, "--model", "you/locked")[2]
    hub.models["you/gguf"] = {"id": "you/gguf", "siblings": [{"rfilename": "a.gguf"}]}
    assert "you/gguf has no file b.gguf" in deploy(capsys, "--model", "you/gguf/b.gguf")[2]
    big = {**SMALL, "cuda:nf4 in float32": LaneNeed(20 * GIB, 20 * GIB, GIB), "cpu:fp32": LaneNeed(40 * GIB, 40 * GIB, GIB)}
    monkeypatch.setattr(model, "judged", lambda asked, offline: model.Judged(asked.hardware.fit(big), big))
    said = deploy(capsys)[2]
    assert "menu does not fit on t4-small: cuda:nf4 does not fit: needs 21.00 GiB of 14.40 GiB. Choose --hardware a10g-large ($1.50 an hour" in said
    assert not hub.spaces and not made(hub)


@pytest.mark.parametrize("stage", ["BUILD_ERROR", "RUNTIME_ERROR", "CONFIG_ERROR"])
def test_a_space_that_fails_is_told_with_the_end_of_its_log(hub, capsys, stage):
    hub.after, hub.message, hub.log = ["BUILDING", stage], "job failed", [*(f"line {n}\n" for n in range(30)), f"no package at {SECRET}\n"]
    code, _, said = deploy(capsys, "--secret", f"MINE={SECRET}")
    assert code == 1 and f"({stage}: job failed)" in said and "no package at ***" in said and "line 29" in said and "line 3 " not in said
    assert "Done by then" in said and "?logs=" in said


def test_a_log_that_can_t_be_read_does_not_hide_the_failure(hub, capsys):
    hub.after, hub.does["GET", "/logs/"] = ["BUILD_ERROR"], refuses(500)
    assert "could not be built (BUILD_ERROR)" in deploy(capsys)[2]


def test_a_space_that_takes_too_long_is_left_to_itself_and_told(hub, capsys):
    hub.after = ["BUILDING"]
    code, _, said = deploy(capsys, "--wait", "0.003")
    assert code == 1 and "does not run after 180 ms (its stage: BUILDING)" in said and "--wait MINUTES" in said


def test_a_few_unanswered_questions_while_waiting_are_nothing_many_are_told(hub, capsys):
    left = [3]

    def sometimes(handler):
        left[0] -= 1
        space = hub.spaces["you/demo"]
        handler.answer({}, 502) if left[0] > 0 and space.commits else handler.answer(handler._runtime("you/demo", space))

    hub.does["GET", "/runtime"] = sometimes
    assert deploy(capsys)[0] == 0
    left[0] = 10**6
    assert "gives no answer now" in deploy(capsys)[2]


def test_ctrl_c_ends_it_and_says_what_was_done(hub, capsys, monkeypatch):
    hub.after = ["BUILDING"]

    def stopped(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "Clock", lambda real=watch.Clock: real(sleep=stopped))
    code, _, said = deploy(capsys, "--secret", f"MINE={SECRET}")
    assert code == 130 and "Done by then: the Space you/demo made on t4-small" in said and "uploaded" in said and said.endswith("Stopped.")


@pytest.mark.parametrize("record", [{}, {"lanes": {"a": {"runs": [{"text": 3}]}}}, {"lanes": {"a": {"runs": [{"text": "hi", "ttft_s": "x"}]}}}])
def test_an_answer_that_is_no_record_is_told(hub, capsys, monkeypatch, record):
    monkeypatch.setattr("inference.space.ask.ask", lambda *_: record)
    code, out, said = deploy(capsys)
    assert code == 1 and "you/demo runs, but its answer can't be read" in said and f"{hub.url}/spaces/you/demo" in out
