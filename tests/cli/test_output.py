"""Files of the command line: a bad target is told before anything runs, and one that fails at the end takes nothing with it."""

from __future__ import annotations

import argparse
import json
import os
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from inference.cli import main as command_line
from inference.cli import output
from inference.cli import prompts as prompts_command
from inference.errors import InferenceError
from inference.record.export import as_json, to_json
from inference.series.series import Series
from tests.support.records import ended, record_of
from tests.support.scripted import ScriptedEngine

pytestmark = pytest.mark.usefixtures("temporary")  # where what can't be written is kept


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
    assert printed.out == "the tables\n" and printed.err.count("full can't be written (Is a directory). It is kept in ") == 2
    assert "## Summary" in (tmp_path / "a.md").read_text("utf-8")
    assert output.give(targets("-", tmp_path / "a.csv"), [record], to_json([record]), "the tables") is True
    assert json.loads(capsys.readouterr().out) == as_json(record) and (tmp_path / "a.csv").exists()


@pytest.mark.parametrize("asked", [("--json", "a", "--csv", "a"), ("--csv", "p.txt"), ("--markdown", "b/../a", "--report", "link")])
def test_a_file_is_not_written_over_another_that_the_command_reads_or_writes(monkeypatch, capsys, tmp_path, asked):
    (tmp_path / "p.txt").write_text("hello")
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to("a")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prompts_command, "Engine", lambda settings: pytest.fail("a lane was started"))
    assert command_line.main(["compare", "--prompts", "p.txt", *asked]) == 2
    assert "names the file that --" in capsys.readouterr().err and (tmp_path / "p.txt").read_text() == "hello"
    os.mkfifo("pipe")
    output.check_targets(targets(csv="pipe", markdown="pipe"))


@pytest.mark.parametrize("where", [("--prompt",), ("hello", "--system")])
def test_half_a_character_in_a_prompt_is_refused_before_anything_runs_and_no_file_is_touched(monkeypatch, capsys, tmp_path, where):
    (tmp_path / "r.json").write_text("older")
    monkeypatch.setattr(command_line, "Engine", lambda settings: pytest.fail("a lane was started"))
    assert command_line.main(["compare", *where, os.fsdecode(b"caf\351"), "--json", str(tmp_path / "r.json")]) == 2
    printed = capsys.readouterr()
    assert "half a character" in printed.err and printed.err.count("\n") == 1 and not printed.out
    assert (tmp_path / "r.json").read_text() == "older"


def test_a_file_lost_at_the_end_makes_exit_code_1_and_the_result_is_shown(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command_line, "Engine", ScriptedEngine)
    monkeypatch.setattr(output, "check_targets", lambda options: None)
    assert command_line.main(["compare", "--prompt", "hello", "--csv", str(tmp_path), "--json", str(tmp_path / "a.json")]) == 1
    assert "10.0 tok/s" in capsys.readouterr().out and json.loads((tmp_path / "a.json").read_text("utf-8"))["lanes"]


@pytest.fixture
def two_prompts(monkeypatch, tmp_path):
    """Answers a file of two prompts by no lane: the series ends after the records that are given, with an error if one is given."""

    def answer(records, error=None):
        def run(series, *_):
            for record in records:
                series.records.append(record)
                yield record
            if error:
                raise error

        monkeypatch.setattr(Series, "run", run)
        monkeypatch.setattr(prompts_command, "Engine", lambda settings: nullcontext(SimpleNamespace(status=list)))
        (tmp_path / "p.txt").write_text("hello\ngood morning\n")
        (tmp_path / "a.json").write_text("older")
        code = command_line.main(["compare", "--prompts", str(tmp_path / "p.txt"), "--json", str(tmp_path / "a.json")])
        return code, (tmp_path / "a.json").read_text("utf-8")

    return answer


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (InferenceError("The lanes disagree."), 1)])
def test_what_is_done_of_a_series_is_kept_whatever_ends_it(error, code, two_prompts, capsys):
    ended_with, text = two_prompts([record_of(cpu_nf4=ended(5), cpu_fp32=ended(10))], error)
    found = json.loads(text)
    assert ended_with == code and (found["prompts"], found["done"]) == (2, 1) and "10.0" in capsys.readouterr().out


def test_a_series_of_which_nothing_is_done_leaves_the_older_file(two_prompts):
    assert two_prompts([]) == (130, "older")
