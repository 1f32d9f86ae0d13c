"""What a model, a checkpoint or a file says is shown on a terminal, and moves, colours, links and erases nothing there, whichever command shows it."""

from __future__ import annotations

import io
import json
import sys
from contextlib import closing

import pytest

from inference.cli import main, output
from inference.cli.progress import Line
from inference.doctor import report as doctor
from inference.errors import InferenceError
from inference.settings import Settings
from tests.test_log import HOSTILE, NEVER


def refused(*_):
    raise InferenceError(f"{HOSTILE} can't be loaded.")


def said(monkeypatch, command, words) -> None:
    monkeypatch.setitem(main.COMMANDS, command, words)
    main.main(
        [
            command,
            *{
                "compare": ["hi"],
                "decide": ["a.json", "--answers-per-day", "9", "--price", "cpu:fp32=1"],
                "quality": ["--text", "a"],
                "deploy": ["a/b", "--hardware", "cpu-basic"],
            }.get(command, []),
        ]
    )


@pytest.mark.parametrize("command", sorted(main.COMMANDS))
def test_a_refusal(monkeypatch, capsys, command):
    said(monkeypatch, command, refused)
    shown = capsys.readouterr()
    assert "name\\x1b[2J" in shown.err and not set(NEVER) & set(shown.err + shown.out)


@pytest.mark.parametrize("give", [lambda: output.show(HOSTILE), lambda: output.give_json(None, HOSTILE, json.dumps({"model": HOSTILE}))])
def test_tables(capsys, give):
    assert give()
    shown = capsys.readouterr().out
    assert "name\\x1b[2J" in shown and not set(NEVER) & set(shown)


def test_json_that_goes_to_the_terminal(capsys):
    assert output.show("", json.dumps({"text": HOSTILE}, ensure_ascii=False))
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"text": HOSTILE} and not set(NEVER) & set(shown)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("words", [HOSTILE, f"{HOSTILE}.", f"a table\n{HOSTILE}"])
def test_progress(monkeypatch, live, words):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: live)
    monkeypatch.setattr(sys, "stderr", stream)
    with closing(Line()) as line:
        line.say(words)
    ours = stream.getvalue().replace("\r\033[K", "")
    assert "name" in ours and not set(NEVER) & set(ours)


def test_doctor(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "report", lambda _: ([f"Model {HOSTILE}"], True))
    assert doctor._print(Settings()) == 0
    shown = capsys.readouterr().out
    assert "name\\x1b[2J" in shown and not set(NEVER) & set(shown)
