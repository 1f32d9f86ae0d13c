"""The commands and a lane that is a server: compare takes it, with a file of prompts too; doctor says whether it answers; bench and quality refuse it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

import app
from inference.cli import main as command_line
from inference.doctor import report as doctor
from inference.endpoint.look import look
from inference.settings import from_env
from tests.support.false_server import KEY, FalseServer, piece

VARIABLES = {"LANES": "endpoint:far", "ENDPOINT_FAR_KEY": KEY, "ENDPOINT_FAR_TITLE": "The far one"}


@pytest.fixture
def server(monkeypatch, tmp_path) -> Iterator[FalseServer]:
    found = FalseServer()
    for name, value in {**VARIABLES, "ENDPOINT_FAR_URL": found.url, "CACHE_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    yield found
    found.close()


def test_compare_prints_a_server_s_answer_and_neither_its_address_nor_its_key(server, tmp_path, capfd):
    assert command_line.main(["compare", "two biryanis", "--full", "--json", str(tmp_path / "r.json"), "-v"]) == 0
    out, err = capfd.readouterr()
    record = json.loads((tmp_path / "r.json").read_text())
    assert "Two biryanis." in out and "The far one" in out and record["model"]["id"] == "menu-4bit"
    assert record["lanes"]["endpoint:far"]["runs"][0]["token_ids"] is None
    for secret in (KEY, server.url, str(server.server_address[1])):
        assert secret not in out + err + json.dumps(record)


def test_a_file_of_prompts_is_answered_by_a_server(server, tmp_path, capfd):
    (tmp_path / "p.txt").write_text("one\ntwo\n")
    assert command_line.main(["compare", "--prompts", str(tmp_path / "p.txt"), "--csv", str(tmp_path / "r.csv")]) == 0
    rows = (tmp_path / "r.csv").read_text().splitlines()
    assert len(rows) == 3 and all("endpoint:far,endpoint," in row for row in rows[1:]) and "2 of 2 prompts done" in capfd.readouterr().out


def test_a_server_that_fails_makes_the_command_fail_with_its_sentence(server, capfd):
    server.script = lambda handler: (handler.begin(), handler.say(piece("Two ")), setattr(handler, "close_connection", True))
    assert command_line.main(["compare", "two biryanis"]) == 1
    out = capfd.readouterr().out
    assert "Two" in out and "broke before the answer was complete" in out


@pytest.mark.parametrize(("arguments", "words"), [
    (["quality", "--text", "t.txt"], "no log-probabilities.*endpoint:far"),
    (["bench"], "endpoint:far: a server can't be held against plain generate"),
])  # fmt: skip
def test_what_needs_ids_or_weights_refuses_a_server_before_anything_starts(arguments, words, server, capsys):
    assert command_line.main(arguments) == 2
    assert re.search(words, capsys.readouterr().err) and not server.seen


def test_a_server_without_an_address_is_a_wrong_setting(monkeypatch, capsys):
    monkeypatch.delenv("ENDPOINT_FAR_URL", raising=False)
    assert command_line.main(["compare", "hi", "--lanes", "endpoint:far"]) == 2 and app.main(["--lanes", "endpoint:far"]) == 2
    assert capsys.readouterr().err.count("needs ENDPOINT_FAR_URL") == 2


def test_doctor_says_whether_a_server_answers(server):
    settings = from_env()
    assert look("endpoint:far", settings) == ("the server answers; it has menu-4bit", True)
    lines, well = doctor.report(settings)
    assert well and "  endpoint:far: the server answers; it has menu-4bit" in lines
    server.listing = lambda handler: handler.status(401)
    lines, well = doctor.report(settings)
    assert not well and "endpoint:far: The server does not take the key in ENDPOINT_FAR_KEY (401)" in lines[-1]
