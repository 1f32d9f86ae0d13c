"""Records read back from their JSON: the same record again, and one sentence with the file's name for all that is none."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from inference.energy import Energy
from inference.errors import WrongArguments
from inference.events import LoadFigures, Ram, Request, Vram
from inference.progress import Progress
from inference.record.build import build_record
from inference.record.export import as_json, dump, quality_as_json, to_json
from inference.record.model import Row
from inference.record.read import read
from inference.record.scores import Answers, Choice, Figures, Flips, Fork, NoQuality, NoSurvival, PromptFork, Quality, Survival, Unanswered
from inference.series.prompts import Prompt
from inference.series.series import Series
from tests.support.records import ended, record_of, status

SCORED = Figures(300, 0.5, 0.1, 0.4, 2.0, 3.0, 0.75, 0.025, 5.0, 6.0, 1.2, None)
FORKED = Fork(3, 0.7, False, 5, 6, (Choice(5, "a", -0.1),), (Choice(6, "b", -0.2),), "We", " have", " had")
QUALITY = Quality(
    SCORED, "cpu:fp32", "cpu:nf4", "prompts", 12, 1000, {"cpu:nf4": SCORED}, FORKED,
    Answers(2, 1, 1, (PromptFork(0, None, None, None), PromptFork(2, 4, 0.01, True))), {"contains": Flips(4, 3, 2, (1,), (), 1.0)},
    (Unanswered(1, 7, "cpu:nf4", "It died."),), 2.5, Survival("base", 0.9, None, 0.1, 0.01),
)  # fmt: skip


def two_lanes():
    loaded = replace(status("cuda:nf4"), load=LoadFigures(9.5, {"read": 2.0}, False, 7, Vram(1, 2, 3, 4)))
    run = ended(20)
    run = replace(
        run, done=replace(run.done, ram=Ram(700, None), vram=Vram(5, 4, None, 2304), energy=Energy(40.0, 2.0, None, "nvml", 0.1, 0.0, 0.0), queue_s=0.0)
    )
    return build_record([loaded, status("cpu:fp32")], Request("hi"), "together", {"cuda:nf4": [run, run], "cpu:fp32": [ended(5)]})


def failed():
    never = replace(status("cpu:nf4"), facts=None, load=None, hello=None)
    return build_record([never], Request("hi"), "together", {"cpu:nf4": [Progress(0.0, "failed", error="It died.")]})


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "record",
    [
        two_lanes(), failed(), replace(two_lanes(), row=Row(3, "naan"), quality=QUALITY), replace(two_lanes(), quality=NoQuality("Too short.")),
        replace(two_lanes(), quality=replace(QUALITY, survival=NoSurvival("base", "It is gone."), first_divergence=None, expected=None)),
    ],
)  # fmt: skip
def test_a_record_read_back_is_the_record(record, tmp_path):
    assert read(written(tmp_path / "r.json", to_json([record]))).records == (record,)


def test_a_list_of_records_and_a_file_of_prompts_give_each_record(tmp_path):
    records = [replace(record_of(cpu_fp32=[ended(tps)]), row=Row(1, None)) for tps in (5, 6)]
    assert read(written(tmp_path / "list.json", to_json(records))).records == tuple(records)
    series = Series([Prompt(1, "hi")], records=records)
    assert read(written(tmp_path / "series.json", dump(series.as_json()))).records == tuple(records)


def test_the_figures_of_quality_alone_come_with_their_model(tmp_path):
    beside = {"model": "menu", "total_s": 3.0, "ram_above_model": {"cpu:nf4": 4}}
    (scored,) = read(written(tmp_path / "q.json", json.dumps({"quality": {**quality_as_json(QUALITY), **beside}}))).scored
    assert scored.quality == QUALITY and scored.model == "menu"


def test_what_a_later_version_adds_is_ignored_and_what_may_be_unknown_may_be_missing(tmp_path):
    held = as_json(two_lanes())
    held["later"] = held["lanes"]["cpu:fp32"]["runs"][0]["watts"] = {"a": [1]}
    del held["lanes"]["cpu:fp32"]["server"], held["lanes"]["cpu:fp32"]["runs"][0]["counted_by"], held["environment"]["driver"]
    assert read(written(tmp_path / "r.json", json.dumps(held))).records == (two_lanes_as(held["created"]),)


def two_lanes_as(created):
    return replace(two_lanes(), created=created)


def with_change(change):
    held = as_json(two_lanes())
    change(held)
    return json.dumps(held)


def run_of(held):
    return held["lanes"]["cpu:fp32"]["runs"][0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "r.json is not JSON, or not all of it. Give what"),
        ("{'a': 1}", "r.json is not JSON, or not all of it, line 1."),
        (to_json([two_lanes()])[:-300], "r.json is not JSON, or not all of it, line "),
        ("[" * 100_000, "r.json is not JSON"),
        ('{"schema": NaN}', "r.json is not JSON"),
        ("{}", "r.json is no record of a comparison."),
        ("7", "r.json is no record of a comparison."),
        ('{"clients": {"cpu:fp32": []}}', "r.json is what `bench --clients` wrote, a load: give it by --load r.json, beside a record."),
        ('{"schema": "other/3"}', "r.json is of a kind that is not known here ('other/3')."),
        ('{"schema": "gpu-vs-cpu/1", "lanes": {}}', "r.json was written by an older version of this program (gpu-vs-cpu/1); this one reads gpu-vs-cpu/2."),
        ('{"schema": "gpu-vs-cpu-prompts/1"}', "an older version"),
        ('[{"schema": "gpu-vs-cpu/3"}]', "a newer version"),
        (with_change(lambda held: held.pop("lanes")), "r.json is damaged: it lacks lanes."),
        (with_change(lambda held: run_of(held).pop("text")), "it lacks lanes.cpu:fp32.runs[0].text."),
        (with_change(lambda held: run_of(held).update(total_s="1")), "lanes.cpu:fp32.runs[0].total_s is not a number."),
        (with_change(lambda held: run_of(held).update(total_s=-1)), "lanes.cpu:fp32.runs[0].total_s is negative."),
        (with_change(lambda held: run_of(held).update(new_tokens=True)), "lanes.cpu:fp32.runs[0].new_tokens is not a whole number."),
        (with_change(lambda held: held.update(lanes=[])), "lanes is not an object."),
        (with_change(lambda held: held["lanes"]["cpu:fp32"].update(runs={})), "lanes.cpu:fp32.runs is not a list."),
        (json.dumps({"quality": {"positions": 4}}), "r.json is damaged: it lacks quality."),
        (json.dumps({"schema": "gpu-vs-cpu-prompts/2", "records": None}), "r.json is no record of a comparison."),
    ],
)  # fmt: skip
def test_what_is_no_record_gets_one_sentence_with_its_name(text, words, tmp_path):
    with pytest.raises(WrongArguments) as told:
        read(written(tmp_path / "r.json", text))
    assert words in str(told.value) and str(told.value).startswith("r.json")


def test_a_file_that_can_t_be_read_is_told(tmp_path):
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    for name, words in (("nowhere.json", "(No such file or directory)"), ("", "(Is a directory)"), ("latin.json", "(not UTF-8 text)")):
        with pytest.raises(WrongArguments, match="can't be read") as told:
            read(tmp_path / name)
        assert words in str(told.value)
