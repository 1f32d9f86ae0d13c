"""A prompts file scored over scripted lanes: a prompt that one lane can't answer is told and left out, and the rest is kept."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from inference.cli import main as command_line
from inference.cli import quality as quality_command
from inference.engine.engine import Engine
from inference.engine.process import why_it_died
from inference.errors import InferenceError, nothing_kept
from inference.events import Request
from inference.quality.prompts import quality_of_prompts
from inference.record.export import quality_as_json
from inference.record.missing import what_happened
from inference.record.quality import quality_table
from inference.series.prompts import Prompt
from inference.settings import Settings
from tests.support.page_fixtures import start_fake_lane

QUICK = {"load_s": 0, "first_s": 0.001, "token_s": 0.001, "tokens": 3}
PROMPTS = [Prompt(1, "one", "we have chicken"), Prompt(3, "too long", "we have"), Prompt(4, "three"), Prompt(6, "four", "nothing")]
LANES = ("cpu:nf4", "cpu:fp32")


@pytest.fixture
def measure() -> Iterator[object]:
    """Scores `PROMPTS` on lanes with these scripts; gives the quality and what was said."""
    engines = []

    def measured(**scripts):
        script = {"*": QUICK, **{name.replace("_", ":"): {**QUICK, **each} for name, each in scripts.items()}}
        engines.append(Engine(Settings(lanes=LANES), lambda lane, settings: start_fake_lane(lane, settings, FAKE_LANE=json.dumps(script))))
        engines[-1].start()
        said: list[str] = []
        try:
            return quality_of_prompts(engines[-1], PROMPTS, Request("-", max_new_tokens=5), said.append), said
        except InferenceError as error:
            return error, said

    yield measured
    for engine in engines:
        engine.close()


@pytest.mark.parametrize(("lane", "name"), [("cpu_nf4", "cpu:nf4"), ("cpu_fp32", "cpu:fp32")])
def test_a_prompt_that_one_lane_can_not_answer_is_told_and_the_others_are_scored(measure, lane, name):
    quality, said = measure(**{lane: {"fails_on": "long"}})
    sentence = f"Line 3 is in no figure: {name}: The scripted lane can't answer this one."
    assert sentence in said and sentence in quality_table(quality)
    assert quality.figures.positions == 9 and [row.prompt for row in quality.unanswered] == [1]
    assert quality.answers.n == 3 and [fork.prompt for fork in quality.answers.each] == [0, 2, 3]
    held = quality.expected["contains"]
    assert (held.answers, held.right_reference) == (2, 1), "the prompt left out is judged by nobody"
    json.dumps(quality_as_json(quality), allow_nan=False)


def test_indices_are_those_of_the_file_whatever_was_left_out(measure):
    quality, _ = measure(cpu_nf4={"fork_at": 2, "fails_on": "long"})
    assert quality.expected["exact"].right_to_wrong == (0,) and {fork.first_divergence for fork in quality.answers.each} == {1}


def test_an_answer_that_nobody_can_read_is_scored_like_any_other(measure):
    quality, _ = measure(cpu_nf4={"say": "<pad>"})
    assert quality.answers.n == 4 and quality.unanswered == () and quality.expected["contains"].right_to_wrong == (0, 1)


def test_answers_that_can_not_be_scored_are_told_and_without_any_there_is_a_sentence(measure):
    error, said = measure(cpu_nf4={"score_fails": "The logits are not finite."})
    assert "Not one prompt could be answered and scored. Line 1" in str(error) and "not finite" in str(error)
    assert sum("is in no figure" in words for words in said) == len(PROMPTS)


@pytest.mark.parametrize("lane", LANES)
def test_an_answer_that_a_lane_can_not_score_names_that_lane_once(measure, lane):
    _, said = measure(**{lane.replace(":", "_"): {"score_fails": "The logits are not finite."}})
    assert [words for words in said if "Line 3" in words] == [f"Line 3 is in no figure: {lane}: The logits are not finite."]


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(("number", "line"), [(2, 3), (4, 6)])
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"score_fails": "The logits are not finite. Ask again."}, "The logits are not finite."),
        ({"score_dies": True}, nothing_kept(why_it_died(-signal.SIGKILL))),
    ],
)
def test_the_lane_at_fault_stands_in_the_record(tmp_path, lane, number, line, fault, error):
    script = tmp_path / "script.json"

    def say(words: str) -> None:  # one of the four answers can't be scored
        bad = fault if words == f"answer {number} of 4" else {}
        if words.startswith("answer "):
            script.write_text(json.dumps({"*": QUICK, lane: {**QUICK, **bad}}))

    script.write_text(json.dumps({"*": QUICK}))
    with Engine(Settings(lanes=LANES), lambda name, settings: start_fake_lane(name, settings, FAKE_LANE_FILE=str(script))) as engine:
        quality = quality_of_prompts(engine, PROMPTS, Request("-", max_new_tokens=5), say)
    assert [(row.line, row.lane, row.error) for row in quality.unanswered] == [(line, lane, what_happened(error))]
    assert quality.figures.positions == 9


def test_a_lane_that_can_answer_nothing_ends_the_file_at_the_first_prompt(measure):
    error, said = measure(cpu_nf4={"dies_at_start": True})
    assert "Not one prompt could be answered" in str(error)
    assert [words for words in said if words.startswith("answered")] == ["answered 1 of 4"]
    assert "cpu:nf4 can't answer any more, so the file ends here." in said


def test_the_command_writes_what_it_could_measure_and_ends_with_1_where_a_prompt_is_missing(monkeypatch, tmp_path, capsys):
    script = json.dumps({"*": QUICK, "cpu:nf4": {**QUICK, "fails_on": "long"}})
    monkeypatch.setattr(quality_command, "Engine", lambda settings: Engine(settings, lambda lane, _: start_fake_lane(lane, settings, FAKE_LANE=script)))
    (tmp_path / "p.txt").write_text("one\ntoo long\nthree\n")
    arguments = ["quality", "--lanes", "cpu:nf4,cpu:fp32", "--json", str(tmp_path / "q.json"), "--prompts", str(tmp_path / "p.txt")]
    assert command_line.main(arguments) == 1
    found = json.loads((tmp_path / "q.json").read_text("utf-8"))["quality"]
    assert found["positions"] == 6 and found["unanswered"][0]["line"] == 2 and {"model", "total_s", "ram_above_model", "ram_peak"} <= set(found)
    assert "Line 2 is in no figure" in capsys.readouterr().out
    (tmp_path / "p.txt").write_text("one\nthree\n")
    assert command_line.main(arguments) == 0


@pytest.mark.parametrize(
    ("arguments", "words"), [(("--prompts", "p.txt", "--max-new-tokens", "0"), "Max new tokens must be"), (("--text", "empty.txt"), "is empty")]
)
def test_what_can_not_be_asked_is_told_before_a_lane_is_loaded(monkeypatch, tmp_path, capsys, arguments, words):
    monkeypatch.setattr(quality_command, "Engine", lambda settings: pytest.fail("a lane was started"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.txt").write_text("one\n")
    (tmp_path / "empty.txt").write_text(" \n")
    assert command_line.main(["quality", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("script", "code"), [({"score_fails": "The logits are not finite."}, 1), ({}, 0)])
def test_compare_ends_with_1_where_the_answer_could_not_be_scored_and_names_lanes_by_what_they_are(monkeypatch, capsys, script, code):
    scripts = json.dumps({"*": QUICK, "cpu:nf4": {**QUICK, **script}})
    monkeypatch.setattr(command_line, "Engine", lambda settings: Engine(settings, lambda lane, _: start_fake_lane(lane, settings, FAKE_LANE=scripts)))
    assert command_line.main(["compare", "--prompt", "hello", "--quality", "--lanes", "auto:nf4,cpu:fp32"]) == code
    out, err = capsys.readouterr()
    assert ("no quality figures: cpu:nf4: The logits are not finite." in out) == bool(code)
    assert "4-bit: done" in err and "auto" not in err + out
