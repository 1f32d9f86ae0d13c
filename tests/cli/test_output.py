"""Files of the command line: a bad target is told before anything runs, and one that fails at the end takes nothing with it."""

from __future__ import annotations

import argparse
import json
import os

import pytest

from inference.cli import main as command_line
from inference.cli import output
from inference.cli import prompts as prompts_command
from inference.errors import InferenceError
from inference.record.export import as_json, to_json
from tests.support.records import ended, record_of
from tests.support.scripted import ScriptedEngine


def targets(json=None, csv=None, markdown=None, report=None):
    found = {"json": json, "csv": csv, "markdown": markdown, "report": report}
    return argparse.Namespace(**{name: value and str(value) for name, value in found.items()})


@pytest.mark.parametrize("flag", ["--json", "--csv", "--markdown", "--report"])
@pytest.mark.parametrize(("name", "words"), [("folder", "is a folder"), ("none/a", "does not exist"), ("x" * 300, "can't be written")])
def test_a_target_that_can_not_be_written_is_told_before_anything_runs(monkeypatch, capsys, tmp_path, flag, name, words):
    (tmp_path / "folder").mkdir()
    (tmp_path / "p.txt").write_text("hello")
    for module in (command_line, prompts_command):
        monkeypatch.setattr(module, "Engine", lambda settings: pytest.fail("a lane was started"))
    for asked in (("--prompt", "hello"), ("--prompts", str(tmp_path / "p.txt"))):
        assert command_line.main(["compare", *asked, flag, str(tmp_path / name)]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["csv", "markdown", "report"])
def test_only_json_goes_to_stdout(flag):
    with pytest.raises(InferenceError, match=f"--{flag} can't go to stdout"):
        output.check_targets(targets(**{flag: "-"}))
    output.check_targets(targets(json="-"))


def test_looking_leaves_no_file_and_keeps_what_is_there(tmp_path):
    (tmp_path / "old.csv").write_text("kept")
    (tmp_path / "link.md").symlink_to(tmp_path / "new.md")
    os.mkfifo(tmp_path / "pipe")
    output.check_targets(targets(tmp_path / "new.json", tmp_path / "old.csv", tmp_path / "link.md"))
    output.check_file(str(tmp_path / "pipe"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.md", "old.csv", "pipe"]
    assert (tmp_path / "old.csv").read_text() == "kept"


def test_every_file_is_tried_after_the_tables_are_printed(tmp_path, capsys):
    record = record_of(cpu_nf4=ended(5), cpu_fp32=ended(10))
    (tmp_path / "full").mkdir()
    assert output.give(targets(tmp_path / "full", tmp_path / "full", tmp_path / "a.md"), [record], to_json([record]), "the tables") is False
    printed = capsys.readouterr()
    assert printed.out == "the tables\n" and printed.err.count("full can't be written (Is a directory). Name another file.\n") == 2
    assert "## Summary" in (tmp_path / "a.md").read_text("utf-8")
    assert output.give(targets("-", tmp_path / "a.csv"), [record], to_json([record]), "the tables") is True
    assert json.loads(capsys.readouterr().out) == as_json(record) and (tmp_path / "a.csv").exists()


def test_text_that_no_file_can_hold_is_a_sentence(tmp_path, capsys):
    assert output.put(str(tmp_path / "a"), "\ud800") is False
    assert "can't be written" in capsys.readouterr().err


def test_a_file_lost_at_the_end_makes_exit_code_1_and_the_result_is_shown(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command_line, "Engine", ScriptedEngine)
    monkeypatch.setattr(output, "check_targets", lambda options: None)
    assert command_line.main(["compare", "--prompt", "hello", "--csv", str(tmp_path), "--json", str(tmp_path / "a.json")]) == 1
    assert "10.0 tok/s" in capsys.readouterr().out and json.loads((tmp_path / "a.json").read_text("utf-8"))["lanes"]
