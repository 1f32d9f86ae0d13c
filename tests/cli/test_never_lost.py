"""What a command measured is kept where its next step, or its last, fails or is interrupted: every command that measures for minutes, and `decide`."""

from __future__ import annotations

import json

import pytest

from inference.cli import bench, load, quality
from inference.cli import main as command_line
from inference.decide import words
from inference.engine.engine import Engine
from inference.errors import InferenceError
from inference.load.clients import LaneLoad
from inference.record.export import to_json
from tests.support.page_fixtures import start_fake_lane
from tests.support.records import ended, record_of

RECORD = record_of(cpu_nf4=ended(20), cpu_fp32=ended(10))
TWO_LANES = ("--lanes", "cpu:nf4,cpu:fp32")
QUICK = {"load_s": 0, "first_s": 0.001, "token_s": 0.001, "tokens": 5}


def fails(*_, **__):
    raise ZeroDivisionError


def a_bench(settings, plan, say, found):
    found["cpu:nf4"] = {"plain": {}, "ours": {}, "peers": {}}
    raise InferenceError("The second lane does not fit.")


def equal_tokens(settings, requests, repeats, say, found):
    found["cpu:nf4"] = {"equal": 3}
    raise KeyboardInterrupt


def under_load(*_):
    yield LaneLoad("cpu:nf4", why_not="It was not there.")
    raise KeyboardInterrupt


def measure_text(engine, text, base, say, keep):
    keep("the figures")
    raise KeyboardInterrupt


COMMANDS = {
    "a second lane of bench": (("bench", *TWO_LANES), [(bench, "bench", a_bench)], 1, lambda kept: kept["lanes"]["cpu:nf4"]["peers"] == {}),
    "a second lane of bench's tokens": (("bench", *TWO_LANES, "--prompts", "p.txt"), [(bench, "equal", equal_tokens)], 130, lambda kept: kept["lanes"]["cpu:nf4"]["equal"] == 3),
    "a second lane of bench under load": (("bench", *TWO_LANES, "--clients", "1"), [(load, "under_load", under_load)], 130, lambda kept: kept["why_not"]),
    "the table of bench under load": (
        ("bench", "--lanes", "cpu:nf4", "--clients", "1"),
        [(load, "under_load", lambda *_: [LaneLoad("cpu:nf4")]), (load, "load_table", fails)], ZeroDivisionError, lambda kept: kept["clients"] == {"cpu:nf4": []},
    ),
    "the base that quality asks for": (
        ("quality", *TWO_LANES, "--text", "p.txt"),
        [(quality, "measure_text", measure_text), (quality, "quality_as_json", lambda found: {"figures": found})], 130, lambda kept: kept["quality"]["figures"] == "the figures",
    ),
    "the words of a decision": (("decide", "--answers-per-day", "9", "--price", "cpu:fp32=1", "r.json"), [(words, "text", fails)], ZeroDivisionError, lambda kept: kept["asked"]["answers_per_day"] == 9),
}  # fmt: skip


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch):
    """One that holds a file of each kind."""
    (tmp_path / "p.txt").write_text("hello\n")
    (tmp_path / "r.json").write_text(to_json([RECORD]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command_line.signal, "signal", lambda *_: None)


@pytest.mark.parametrize("what", COMMANDS)
def test_what_a_command_measured_is_kept_where_the_next_step_fails(what, temporary, monkeypatch, capsys):
    arguments, broken, end, is_it = COMMANDS[what]
    for module, name, function in broken:
        monkeypatch.setattr(module, name, function)
    if isinstance(end, int):
        assert command_line.main([*arguments]) == end
    else:
        with pytest.raises(end):
            command_line.main([*arguments])
    (kept,) = temporary.glob("*.json")
    assert is_it(json.loads(kept.read_text())) and f"It is kept in {kept}." in capsys.readouterr().err


def test_a_comparison_whose_scoring_is_interrupted_keeps_the_answers(temporary, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    script = {"*": QUICK}
    monkeypatch.setattr(
        command_line, "Engine", lambda settings: Engine(settings, lambda lane, given: start_fake_lane(lane, given, FAKE_LANE=json.dumps(script)))
    )
    monkeypatch.setattr(command_line, "scored_or_why_not", interrupted)
    assert command_line.main(["compare", "hi", *TWO_LANES, "--quality"]) == 130
    (kept,) = temporary.glob("*.json")
    assert {len(lane["runs"]) for lane in json.loads(kept.read_text())["lanes"].values()} == {1}
    assert capsys.readouterr().err.endswith("\nStopped.\n")
