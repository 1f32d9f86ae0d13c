"""The JSON of a record: just the documented keys, unknown is null, and one list of figures that every view of a record shows."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import fields, replace

import pytest

from inference.events import Done, LoadFigures, Ram, Request, Vram
from inference.progress import Progress
from inference.record.build import build_record
from inference.record.export import COLUMNS, as_json, to_csv, to_json
from inference.record.figures import FIGURES, OF_A_RUN, TOKENS
from inference.record.markdown import markdown
from inference.record.model import Pair, Row, RunFigures, RunRecord
from inference.record.scores import Answers, Choice, Figures, Fork, NoQuality, PromptFork, Quality, Unanswered
from inference.record.table import text_table
from inference.record.verdict import summary_lines
from tests.support.records import ended, status
from ui.history.pair import figure_rows

TOP = {"schema", "created", "model", "request", "environment", "lanes", "verdict", "quality"}
MODEL = {"id", "revision", "architecture", "parameters", "adapter", "note"}
REQUEST = {"prompt", "system", "format", "max_new_tokens", "temperature", "seed", "mode", "repeats"}
ENVIRONMENT = {"python", "torch", "transformers", "bitsandbytes", "accelerate", "huggingface_hub", "gradio", "cpu", "ram_limit_bytes", "gpu", "gpu_memory_bytes", "driver"}  # fmt: skip
LANE = {
    "available", "reason", "model_id", "revision", "adapter", "base", "own_tokenizer", "note", "tokenizer", "end_ids", "hidden_ids", "device", "precision", "storage_dtype", "compute_dtype", "quantization", "device_map",
    "kernel", "threads", "kept_16bit", "not_quantized", "weights_bytes", "held", "files", "fast_used", "fast_why_not", "fast_checked", "unmeasured", "load", "runs", "median", "min", "max", "n",
    "server",
}  # fmt: skip
LOAD = {"total_s", "spans", "cold", "peak_ram_bytes", "peak_vram"}
RUN = {
    "text", "token_ids", "prompt_ids", "prompt_tokens", "new_tokens", "finish_reason", "error", "queue_s", "turn_wait_s", "load_wait_s", "ttft_s", "prefill_tps",
    "decode_tps", "tpot_s", "total_s", "token_times_s", "vram", "ram", "path", "path_reason", "warm", "alone", "counted_by", "energy",
}  # fmt: skip
SPREAD = {"ttft_s", "prefill_tps", "tpot_s", "decode_tps", "total_s", "queue_s", "turn_wait_s", "load_wait_s"}
VERDICT = {"pairs", "device_effect", "precision_effect", "identical", "first_divergence"}
PAIR = {"reference", "other", "total", "decode", "ttft", "load", "memory", "identical", "first_divergence"}
QUALITY = {
    "positions", "kld_mean", "kld_se", "kld_median", "kld_p99", "kld_max", "top1_agreement", "top1_se", "ppl_reference", "ppl_other", "ppl_ratio",
    "ppl_ratio_se", "reference", "other", "source", "rows", "vocabulary", "lanes", "first_divergence", "answers", "expected", "unanswered", "scoring_s", "survival",
}  # fmt: skip
FORK = {"index", "margin", "near_tie", "reference_id", "other_id", "top_reference", "top_other", "before", "reference", "other"}

SCORED = Figures(12, 0.5, 0.1, 0.4, 2.0, 3.0, 0.75, 0.1, 5.0, 6.0, 1.2, None)
FORKED = Fork(3, 0.7, False, 5, 6, (Choice(5, "a", -0.1),), (Choice(6, "b", -0.2),), "We", " have", " had")


def full(device: str = "cpu") -> object:
    """A record of two measured lanes, every figure of which is known and unlike the others."""
    ram, vram = Ram(700 * 2**20, 300 * 2**20), Vram(5 * 2**30, 4 * 2**30, 6 * 2**30, 2304) if device == "cuda" else None

    def run(tps):
        done = Done(**{**ended(tps).done.__dict__, "vram": vram, "ram": ram, "queue_s": 0.0, "turn_wait_s": 0.0, "load_wait_s": 0.0})
        return Progress(0.0, "done", "abc", 3, done=done)

    name = f"{device}:nf4"
    lanes = [status(name), status("cpu:fp32")]
    return build_record(lanes, Request("hi"), "in-turn", {name: [run(5)], "cpu:fp32": [run(10)]})


# ---- keys


def test_the_json_of_a_record_has_the_documented_keys_and_no_others():
    record = as_json(full("cuda"))
    assert record["schema"] == "gpu-vs-cpu/2"
    for keys, found in (
        (TOP, record), (MODEL, record["model"]), (REQUEST, record["request"]), (ENVIRONMENT, record["environment"]), (VERDICT, record["verdict"]),
        (PAIR, record["verdict"]["pairs"][0]),
    ):  # fmt: skip
        assert set(found) == keys
    for lane in record["lanes"].values():
        (run,) = lane["runs"]
        assert set(lane) == LANE and set(lane["load"]) == LOAD and set(run) == RUN
        assert set(run["vram"]) == {"reserved", "allocated", "device", "positions"} and set(run["ram"]) == {"rss_peak", "uss"}
        assert set(lane["median"]) == set(lane["min"]) == set(lane["max"]) == SPREAD


def test_the_json_of_quality_has_its_figures_at_the_top():
    quality = Quality(SCORED, "cpu:fp32", "cpu:nf4", "answer", 12, 1000, {"cpu:nf4": SCORED}, first_divergence=FORKED)
    found = as_json(replace(full(), quality=quality))["quality"]
    assert set(found) == QUALITY and found["kld_mean"] == found["lanes"]["cpu:nf4"]["kld_mean"] == 0.5
    assert set(found["first_divergence"]) == FORK and found["first_divergence"]["top_other"] == [{"id": 6, "text": "b", "logprob": -0.2}]
    forks = (PromptFork(0, None, None, None), PromptFork(2, 4, 0.01, True))
    prompts = replace(quality, answers=Answers(2, 1, 1, forks), unanswered=(Unanswered(1, 7, "cpu:nf4", "It died."),))
    found = as_json(replace(full(), quality=prompts))["quality"]
    assert found["answers"] == {
        "n": 2, "identical": 1, "near_ties": 1,
        "each": [
            {"prompt": 0, "first_divergence": None, "margin": None, "near_tie": None}, {"prompt": 2, "first_divergence": 4, "margin": 0.01, "near_tie": True},
        ],
    }  # fmt: skip
    assert found["unanswered"] == [{"prompt": 1, "line": 7, "lane": "cpu:nf4", "error": "It died."}]
    assert as_json(replace(full(), quality=NoQuality("Too short.")))["quality"] == {"error": "Too short."}


def test_a_row_of_a_prompts_file_is_there_only_where_there_is_one():
    assert as_json(replace(full(), row=Row(3, "b")))["row"] == {"line": 3, "expected": "b"}


def test_what_is_unknown_is_null_and_the_json_goes_through_any_parser():
    never = replace(status("cpu:nf4"), facts=None, load=None, hello=None)
    record = build_record([never], Request("hi"), "together", {"cpu:nf4": [Progress(0.0, "failed", error="It died.")]})
    lane = json.loads(to_json([record]))["lanes"]["cpu:nf4"]
    assert set(lane) == LANE and lane["device"] is lane["load"] is lane["kept_16bit"] is lane["weights_bytes"] is lane["median"]["ttft_s"] is None
    infinite = replace(record, quality=Quality(replace(SCORED, kld_max=float("inf"), kld_mean=float("nan")), "a", "b", "text", 1, 2, {}))
    found = json.loads(to_json([infinite]), parse_constant=lambda word: pytest.fail(word))["quality"]
    assert found["kld_max"] is found["kld_mean"] is None


# ---- figures


def readable_numbers(record) -> set[float]:
    """Every number in the cells of the record's CSV."""
    found = set()
    for row in csv.reader(io.StringIO(to_csv([record]))):
        for cell in row:
            try:
                found.add(float(cell))
            except ValueError:
                continue
    return found


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.key)
def test_every_figure_is_in_the_table_the_csv_the_summary_and_the_comparison_of_two(figure, device):
    record = full(device)
    lane = record.lanes[f"{device}:nf4"]
    value = figure.read(lane)
    assert value and figure.words(value) in text_table(record, 200) and figure.words(value) in markdown(record)
    assert float(value) in readable_numbers(record)
    assert f"({figure.numbers(lane, record.lanes['cpu:fp32'])})" in dict(summary_lines(record))[figure.title]
    assert [figure.title, figure.words(value)] in [row[:2] for name in record.lanes for row in figure_rows(record, record, name)]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.key)
def test_more_and_less_are_told_by_the_figures_own_words(figure):
    assert figure.ratio_words(2.0) == f"2.0 times {figure.more}" and figure.ratio_words(0.5) == f"2.0 times {figure.less}"
    assert figure.more_is_better == (figure.key == "decode_tps")


def test_what_is_built_on_the_list_is_part_of_it():
    assert set(OF_A_RUN) <= set(FIGURES)
    assert {figure.short for figure in FIGURES if figure.short} == {field.name for field in fields(Pair)} - {
        "reference",
        "other",
        "identical",
        "first_divergence",
    }
    for figure in OF_A_RUN:
        assert {figure.key} <= {field.name for field in fields(RunRecord)} & {field.name for field in fields(RunFigures)} & set(COLUMNS)
    assert len({figure.title for figure in (*FIGURES, TOKENS)}) == len(FIGURES) + 1


# ---- loads


def loaded(cold_other: bool, cold_reference: bool):
    lanes = [
        replace(status("cpu:nf4"), load=LoadFigures(0.05, cold=cold_other)),
        replace(status("cpu:fp32"), load=LoadFigures(6.0, cold=cold_reference)),
    ]
    return build_record(lanes, Request("hi"), "in-turn", {"cpu:nf4": [ended(5)], "cpu:fp32": [ended(10)]})


@pytest.mark.parametrize("cold", [True, False])
def test_a_cold_and_a_warm_load_give_no_ratio_and_the_reason(cold):
    record = loaded(cold, not cold)
    kinds = ("cold", "warm") if cold else ("warm", "cold")
    assert record.verdict.pairs[0].load is None
    assert dict(summary_lines(record))["Load"] == f"no ratio (50 ms against 6.00 s): the first is a {kinds[0]} load, the second a {kinds[1]} one"
    assert "120" not in markdown(record)
    rows = [row for name in ("cpu:nf4", "cpu:fp32") for row in figure_rows(loaded(cold, cold), loaded(not cold, cold), name) if row[0] == "Load"]
    assert any("no ratio: the first is a" in row[-1] for row in rows)


@pytest.mark.parametrize("cold", [True, False])
def test_two_loads_of_one_kind_are_compared(cold):
    record = loaded(cold, cold)
    assert record.verdict.pairs[0].load == pytest.approx(0.05 / 6)
    assert dict(summary_lines(record))["Load"] == f"120.0 times shorter (50 ms against 6.00 s), both {'cold' if cold else 'warm'}"


@pytest.mark.parametrize(
    ("fetched", "told"), [(58.0, "no ratio (62.0 s against 6.00 s): 58.0 s of the first and 10 ms of the second went"), (0.1, "1.5 times shorter")]
)
def test_a_load_that_fetched_the_model_gives_no_ratio_to_one_that_found_it(fetched, told):
    lanes = [
        replace(status("cpu:nf4"), load=LoadFigures(4.0 + fetched, {"download": fetched, "quantize": 4.0})),
        replace(status("cpu:fp32"), load=LoadFigures(6.0, {"download": 0.01, "read": 5.99})),
    ]
    record = build_record(lanes, Request("hi"), "in-turn", {"cpu:nf4": [ended(5)], "cpu:fp32": [ended(10)]})
    assert dict(summary_lines(record))["Load"].startswith(told) and (record.verdict.pairs[0].load is None) is (fetched > 1)
