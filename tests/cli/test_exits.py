"""Exit codes, the same in `app.py` and `python -m inference`: 0 done, 1 could not be done, 2 wrong arguments or settings, 130 stopped; and the helps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

import app
from inference.cli import main as command_line
from inference.cli import parser
from inference.cli import prompts as prompts_command
from inference.cli import quality as quality_command
from inference.engine.engine import Engine
from inference.errors import InferenceError
from inference.host.child import ROOT
from tests.support.page_fixtures import start_fake_lane

VERBS = ("compare", "bench", "quality", "doctor", "deploy", "decide")
BOTH = [
    (["--lanes", "tpu:int8"], {}, "Unknown lane 'tpu:int8'"),
    (["--lanes", "cpu:fp32,cpu:fp32"], {}, "each once"),
    (["--speed", "9"], {}, "Unrecognized arguments: --speed 9"),
    (["--model", "shape:nonsense"], {}, "There is no shape 'nonsense'. Shapes are: "),
    ([], {"LANES": "tpu:int8"}, "Unknown lane"),
    ([], {"MODEL_ID": "shape:nonsense"}, "There is no shape"),
    ([], {"CPU_THREADS": "many"}, "CPU_THREADS must be a whole number"),
]
WRONG = [
    ([], "COMMAND"),
    (["dance"], "Argument COMMAND: invalid choice: 'dance'"),
    (["compare"], "No prompt is given. Give one: python -m inference compare "),
    (["compare", "hello", "--prompt", "hello"], "More than one prompt is given."),
    (["compare", "hello", "--prompts", "p.txt"], "More than one prompt is given."),
    (["compare", "hello", "good", "morning"], "Unrecognized arguments: good morning. A prompt of several words stands in quotes."),
    (["compare", ""], "The prompt is empty"),
    (["compare", "hi", "--max-new-tokens", "ten"], "invalid int value: 'ten'"),
    (["compare", "hi", "--temperature", "nan"], "Temperature must be from 0"),
    (["compare", "hi", "--seed", "-1"], "The seed must be"),
    (["compare", "hi", "--repeats", "0"], "--repeats must be 1 or more"),
    (["compare", "hi", "--mode", "sideways"], "invalid choice: 'sideways'"),
    (["compare", "hi", "--csv", "-"], "only --json can"),
    (["bench", "--shape", "nonsense"], "There is no shape 'nonsense'"),
    (["bench", "--peer", "nonsense"], "invalid choice: 'nonsense'"),
    (["bench", "--rounds", "1.5"], "invalid int value"),
    (["quality"], "--text"),
    (["quality", "--text", ""], "--text has no file's name"),
    (["compare", "--prompts", ""], "--prompts has no file's name"),
    (["compare", "hi", "--json", ""], "--json has no file's name"),
    (["compare", "hi", "--report", ""], "--report has no file's name"),
    (["bench", "--json", ""], "--json has no file's name"),
    (["decide", "a.json", "", "--answers-per-day", "5", "--price", "cpu:fp32=1"], "A record has no file's name"),
    (["quality", "--prompts", "p.txt", "--text", "t.txt"], "not allowed with"),
    (["doctor", "shape:nonsense"], "There is no shape 'nonsense'"),
    (["doctor", "menu", "--empty-cache"], "--empty-cache empties the whole cache"),
]


@pytest.fixture
def no_lane(monkeypatch):
    for module in (command_line, prompts_command, quality_command):
        monkeypatch.setattr(module, "Engine", lambda settings: pytest.fail("a lane was started"))


def said_once(capsys, words):
    printed = capsys.readouterr()
    assert words in printed.err and printed.err.count("\n") == 1 and not printed.out
    return True


@pytest.mark.parametrize("start", [lambda more: app.main([*more, "--port", "0"]), lambda more: command_line.main(["compare", "hi", *more])], ids=["app", "cli"])
@pytest.mark.parametrize(("arguments", "environment", "words"), BOTH)
def test_what_both_programs_can_not_use_ends_both_with_2(start, arguments, environment, words, monkeypatch, no_lane, capsys):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert start(arguments) == 2 and said_once(capsys, words)


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_wrong_arguments_end_with_2_and_one_sentence(arguments, words, no_lane, capsys):
    assert command_line.main(arguments) == 2 and said_once(capsys, words)


@pytest.mark.parametrize("arguments", [["compare", "hi"], ["bench"], ["quality", "--text", "t.txt"], ["doctor"]])
def test_a_cache_that_can_t_be_written_is_a_setting_to_change(arguments, no_lane, monkeypatch, capsys):
    monkeypatch.setenv("CACHE_DIR", "/dev/null/cache")
    assert command_line.main(arguments) == 2 and said_once(capsys, "No writable cache folder (/dev/null/cache). Set CACHE_DIR to one.")


def fail(error):
    def open_engine(settings):
        raise error

    return open_engine


@pytest.mark.parametrize(("error", "code", "words"), [(InferenceError("No disk. Buy one."), 1, "No disk. Buy one."), (KeyboardInterrupt(), 130, "Stopped.")])
def test_what_can_not_be_done_ends_with_1_and_what_is_stopped_with_130(error, code, words, monkeypatch, capsys):
    monkeypatch.setattr(command_line, "Engine", fail(error))
    assert command_line.main(["compare", "hi"]) == code and capsys.readouterr().err.strip() == words
    monkeypatch.setattr(app, "build_page", lambda *_: fail(error)(None))
    assert app.main(["--port", "0"]) == code


@pytest.mark.parametrize("prompt", [["hello"], ["--prompt", "hello"]])
def test_a_prompt_is_given_with_or_without_its_option(prompt, monkeypatch, capsys):
    monkeypatch.setattr(command_line, "Engine", lambda settings: Engine(settings, start_fake_lane))
    monkeypatch.setenv("FAKE_LANE", json.dumps({"*": {"load_s": 0.01, "first_s": 0.01, "token_s": 0.002, "tokens": 5}}))
    assert command_line.main(["compare", *prompt, "--lanes", "cpu:nf4,cpu:fp32"]) == 0
    assert capsys.readouterr().out.startswith("Writing speed  ")


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_has_a_help_with_its_default_and_every_command_an_example(verb, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "300")
    assert command_line.main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    options = re.split(r"\n  (?=-)", shown.split("options:")[1].split("examples:")[0])[1:]
    without = [
        words for words in options if "(default: " not in words and not re.match(r"-h|--prompts? |--text |--hardware |--answers-per-day |--price ", words)
    ]
    assert len(options) > 4 and not without
    assert f"{parser.PROGRAM} {verb}" in shown.split("examples:")[1] and shown.split("\n")[2].endswith(".") and shown.endswith(f"\n{parser.EXITS}\n")


def test_an_example_of_a_help_is_a_command_that_is_understood(capsys):
    for verb in VERBS:
        command_line.main([verb, "--help"])
        for line in capsys.readouterr().out.split("examples:")[1].split("exit codes:")[0].strip().splitlines():
            words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', line)]
            assert parser.parse(words[3:]).command == verb


ASCII = {
    **os.environ,
    "PYTHONIOENCODING": "ascii",
    "LC_ALL": "C",
    "FAKE_LANE": json.dumps({"*": {"load_s": 0.01, "first_s": 0.01, "tokens": 5, "say": "café 漢字"}}),
}
PROGRAM = (
    "import sys; from tests.support.page_fixtures import start_fake_lane; from inference.engine import engine; from inference.cli import main; "
    "main.Engine = lambda settings: engine.Engine(settings, start_fake_lane); sys.exit(main.main(sys.argv[1:]))"
)


def shell(words):
    command = words.replace("PYTHON", f'{sys.executable} -c "$PROGRAM" compare hi --lanes cpu:nf4,cpu:fp32')
    return subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, timeout=60, env={**ASCII, "PROGRAM": PROGRAM})


def test_a_terminal_of_ascii_shows_all_figures_and_json_stays_whole(tmp_path):
    done = shell(f"PYTHON --json {tmp_path}/a.json")
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
    assert b"caf\\xe9" in done.stdout and b" tok/s" in done.stdout and done.stdout.isascii()
    assert "café" in json.loads((tmp_path / "a.json").read_text("utf-8"))["lanes"]["cpu:fp32"]["runs"][0]["text"]
    assert "漢字" in json.loads(shell("PYTHON --json -").stdout.decode("utf-8"))["lanes"]["cpu:fp32"]["runs"][0]["text"]


@pytest.mark.parametrize("words", ["PYTHON --full | head -1", "PYTHON --full | true", "PYTHON --full 2>&1 | true", "PYTHON --json - | true"])
def test_a_reader_that_goes_ends_a_command_without_a_trace(words):
    done = shell(words)
    assert done.returncode in (0, 1) and b"Traceback" not in done.stderr and b"BrokenPipe" not in done.stderr and b"can't be printed" not in done.stderr


@pytest.mark.parametrize("words", ["PYTHON --full 2> /dev/full", "PYTHON --json - 2> /dev/full"])
def test_progress_that_can_not_be_written_costs_no_result(words):
    done = shell(words)
    assert done.returncode == 0 and b"tok" in done.stdout
