"""A file of prompts over scripted lane processes: all of it, with failures told, and stopped in the middle without a loss."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from inference.cli import main as command_line
from inference.cli import prompts as prompts_command
from inference.engine.engine import Engine
from inference.events import Request
from inference.host.child import ROOT
from inference.record.model import Row
from inference.series import table
from inference.series.prompts import LeftOut, Prompt, Skipped
from inference.series.series import Series
from inference.settings import Settings
from tests.support.page_fixtures import start_fake_lane
from tests.support.records import ended, record_of, saying

QUICK = {"*": {"load_s": 0, "first_s": 0.001, "token_s": 0.001, "tokens": 5}}


@pytest.fixture
def engine():
    with Engine(Settings(lanes=("cpu:nf4", "cpu:fp32")), lambda lane, settings: start_fake_lane(lane, settings, FAKE_LANE=json.dumps(QUICK))) as engine:
        yield engine


def prompts(count: int) -> list[Prompt]:
    return [Prompt(line, f"prompt {line}", "we have chicken biryani, mutton" if line % 2 else None) for line in range(1, count + 1)]


def test_every_prompt_gives_a_record_and_the_medians_count_them_all(engine):
    series = Series(prompts(20), LeftOut([Skipped(21, "not JSON")], more=3))
    records = list(series.run(engine, Request("", max_new_tokens=5), mode="together"))
    assert [record.row.line for record in records] == list(range(1, 21)) and series.done == 20
    whole = series.as_json()
    assert whole["lanes"]["cpu:fp32"]["n"] == 20 and whole["stopped"] is False
    assert whole["skipped"] == [{"line": 21, "reason": "not JSON"}] and whole["skipped_more"] == 3
    assert whole["lanes"]["cpu:nf4"]["expected"] == 10
    assert json.loads(json.dumps(whole)) == whole
    assert "20 of 20 prompts done; 4 lines left out." in table.text(series, 80)
    assert series.skipped.words() == ["Line 21 was left out: not JSON.", "And 3 more lines were left out."]
    assert len([line for line in table.markdown(series).splitlines() if line.startswith("| ")]) == 20 + 2 + 2 + 2


@pytest.mark.parametrize(
    ("reason", "expected", "cell"),
    [("stop", None, "abc"), ("stop", "abc", "as expected: abc"), ("length", None, "cut: abc"), ("length", "abcd", "not as expected, cut: abc")],
)
def test_an_answers_cell_says_whether_it_is_as_expected_and_whether_it_was_cut(reason, expected, cell):
    record = replace(record_of(cpu_fp32=ended(10, reason=reason)), row=Row(7, expected))
    assert table.prompt_cells(record) == ["7", "hi", "100 ms", "10.0 tok/s", "300 ms", cell]


def test_an_answer_that_only_holds_what_is_expected_is_marked_as_that_in_its_cell():
    record = replace(record_of(cpu_fp32=saying("yes, abc")), row=Row(7, "abc"))
    assert table.prompt_cells(record)[-1] == "holds what is expected: yes, abc"


def test_a_lane_that_was_not_run_has_as_many_cells_as_the_others():
    record = record_of(cpu_nf4=[], cpu_fp32=ended(10))
    assert table.prompt_cells(record)[2:6] == ["n/a"] * 4 and len(table.prompt_cells(record)) == len(table.prompt_heads(record))


def test_a_line_that_is_too_long_for_the_terminal_goes_on_further_in():
    first, *others = table.text(Series(prompts(20)), 14).splitlines()
    assert first == "0 of 20" and others == ["  prompts", "  done."]


def test_a_stop_keeps_what_is_done(engine):
    series = Series(prompts(50))
    for number, _ in enumerate(series.run(engine, Request("", max_new_tokens=5), mode="together"), 1):
        if number == 7:
            series.stop.set()
    assert series.done == len(series.records) == 7 and series.as_json()["stopped"] is True
    assert "7 of 50 prompts done, then stopped" in table.how_far(series)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=["Ctrl+C", "a closed terminal"])
def test_ctrl_c_keeps_what_is_done_on_the_command_line(tmp_path, number):
    (tmp_path / "p.txt").write_text("\n".join(f"prompt {n}" for n in range(500)))
    program = (
        "import sys; from tests.support.page_fixtures import start_fake_lane; from inference.engine import engine; from inference.cli import prompts, main; "
        "prompts.Engine = lambda settings: engine.Engine(settings, start_fake_lane); sys.exit(main.main(sys.argv[1:]))"
    )
    out = tmp_path / "out.json"
    command = [
        sys.executable,
        "-c",
        program,
        "compare",
        "--prompts",
        str(tmp_path / "p.txt"),
        "--mode",
        "together",
        "--json",
        str(out),
        "--csv",
        str(tmp_path / "out.csv"),
    ]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "FAKE_LANE": json.dumps(QUICK)})
    for line in process.stderr:
        if "10 of 500 prompts" in line:
            break
    if number == signal.SIGHUP:
        process.stderr.close()  # nobody reads it any more
    process.send_signal(number)
    began = time.monotonic()
    text, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in (errors or ""), errors
    assert time.monotonic() - began < 10
    whole = json.loads(out.read_text("utf-8"))
    assert whole["stopped"] and 10 <= whole["done"] < 500 and "then stopped; what was done is kept" in text
    assert len((tmp_path / "out.csv").read_text("utf-8").splitlines()) == 1 + 2 * len(whole["records"])


def test_a_system_prompt_too_long_for_one_of_the_prompts_is_told_before_the_first_is_asked(tmp_path, monkeypatch, capsys):
    (tmp_path / "p.txt").write_text("short\n" + "x" * 150_000)
    monkeypatch.setattr(prompts_command, "Engine", lambda settings: pytest.fail("a lane was started"))
    assert command_line.main(["compare", "--prompts", str(tmp_path / "p.txt"), "--system", "y" * 60_000]) == 2
    assert "210,000 characters" in capsys.readouterr().err
