"""The table, the summary, the code and the exports: from the record alone, unknown with its reason, words with numbers."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from dataclasses import replace

import pytest

from inference import fast
from inference.events import Done, Ram, Request, Vram
from inference.lane.vram import choose
from inference.progress import Progress
from inference.record.build import build_record
from inference.record.export import as_json, to_csv, to_json
from inference.record.grid import escape
from inference.record.markdown import fenced, markdown
from inference.record.missing import why
from inference.record.reproduce import command, load_call, script
from inference.record.table import table_rows, text_table
from inference.record.verdict import summary_lines
from inference.timing import Timings
from tests.support.records import ended, record_of, status


def cells(record, title):
    return next(row.cells for row in table_rows(record) if row.title == title)


def asked(record, **changes):
    return replace(record, request=replace(record.request, **changes))


def one_token():
    return Progress(0.0, "done", "a", 1, done=Done("r", "length", "a", (1,), 4, Timings(0.1, 40.0, None, None, 0.1, (0.1,)), t_start=1.0))


def test_the_rows_are_those_that_people_make_by_hand():
    names = [row.title for row in table_rows(record_of(cuda_nf4=ended(100), cpu_fp32=ended(10)))]
    for name in ("Code to load", "Hardware", "Quantization", "Data type", "Device map", "Model size", "Startup time", "Inference time", "RAM", "VRAM", "Response", "Quality", "Dependencies"):  # fmt: skip
        assert name in names


def test_an_unknown_figure_says_why_and_is_never_zero():
    record = record_of(cuda_nf4=one_token(), cpu_fp32=Progress(0.0, "failed", "", 0, error="It died."))
    assert cells(record, "Decode speed") == ("n/a (it takes two tokens)", "n/a (the run failed)")
    assert cells(record, "VRAM")[1] == "n/a (this lane uses no GPU)"
    assert cells(record, "RAM")[0].startswith("n/a (the system gives no figure)")
    assert why(replace(record.lanes["cuda:nf4"], runs=()), "ttft_s") == "no run"
    assert not re.search(r"(?<![\d.])0(\.0+)? (s|ms|tok/s|MiB|GiB)\b", text_table(record))


def test_vram_shows_the_three_figures_and_the_largest_of_load_and_runs():
    run = ended(100)
    done = Done(**{**run.done.__dict__, "vram": Vram(3 * 2**30, 2 * 2**30, None), "ram": Ram(2**30, 2**29)})
    record = record_of(cuda_nf4=Progress(0.0, "done", "abc", 3, done=done), cpu_fp32=ended(10))
    assert cells(record, "VRAM")[0].splitlines() == [
        "3.00 GiB reserved",
        "2.00 GiB allocated",
        "n/a (the driver gives no figure for this process) by the driver (CUDA context included)",
    ]


def test_repeats_show_median_min_max_and_n():
    record = record_of(cpu_nf4=[ended(5), ended(7), ended(30)], cpu_fp32=[ended(10)] * 3)
    assert cells(record, "Decode speed")[0] == "7.00 tok/s (5.00 tok/s - 30.0 tok/s, n 3)"


def test_every_word_of_the_summary_has_its_numbers():
    lines = dict(summary_lines(record_of(cpu_nf4=ended(5), cpu_fp32=ended(10))))
    assert lines["Speed"] == "2.0 times slower (5.00 tok/s against 10.0 tok/s)"
    assert lines["Size"] == "6.7 times smaller (600 B against 3.9 KiB), weights"
    assert lines["Load"] == "2.0 times shorter (1.00 s against 2.00 s), both cold"
    for title, words in lines.items():
        assert title == "Compared" or re.search(r"\d", words), title


def test_effects_are_apart_with_the_bridge_lane_and_untold_without():
    four = dict(summary_lines(record_of(cuda_nf4=ended(100), cuda_bf16=ended(200), cpu_nf4=ended(20), cpu_fp32=ended(10))))
    assert four["Device effect"].startswith("20.0 times faster") and four["Precision effect"].startswith("2.0 times slower")
    two = dict(summary_lines(record_of(cuda_nf4=ended(100), cpu_fp32=ended(10))))
    assert "name the lane cuda:bf16" in two["Effects"] and "Device effect" not in two
    failed = dict(summary_lines(record_of(cuda_nf4=ended(100), cuda_bf16=ended(9, reason="stopped"), cpu_fp32=ended(10))))
    assert "it takes a whole answer of cuda:bf16" in failed["Effects"]


def test_no_ratio_from_a_run_that_did_not_end_by_itself():
    ((title, words),) = summary_lines(record_of(cpu_nf4=Progress(0.0, "failed", "", 0, error="It died."), cpu_fp32=ended(10)))
    assert title == "Summary" and "no ratios" in words


def test_the_code_is_python_with_what_the_model_was_loaded_with():
    record = record_of(cuda_nf4=ended(100), cpu_fp32=ended(10))
    record = asked(record, prompt='say "hi"\n$x')
    for lane in record.lanes.values():
        ast.parse(script(record, lane))
        ast.parse(load_call(lane))
    assert 'bnb_4bit_quant_type="nf4"' in load_call(record.lanes["cuda:nf4"])
    assert "torch.float32" in load_call(record.lanes["cpu:fp32"])
    assert command(record).startswith("python -m inference compare '--prompt=say \"hi\"\n$x' --lanes cuda:nf4,cpu:fp32")


def test_the_code_follows_what_each_lane_loaded():
    record = record_of(cpu_nf4=ended(5), cpu_fp32=ended(10))
    lanes = {**record.lanes, "cpu:fp32": replace(record.lanes["cpu:fp32"], model_id="./merged")}
    record = asked(replace(record, lanes=lanes), prompt="-h", system="be brief", format="raw")
    words = command(record)
    assert words.startswith("CPU_MODEL_ID=./merged python -m inference compare --prompt=-h ")
    assert load_call(record.lanes["cpu:fp32"]).startswith('AutoModelForCausalLM.from_pretrained("./merged"')
    assert repr("be brief\n-h") in script(record, record.lanes["cpu:fp32"])
    assert '"folder/of/shape-gemma-3-4b"' in load_call(replace(record.lanes["cpu:nf4"], model_id="shape:gemma-3-4b"))


def test_a_lane_that_was_never_loaded_is_said_to_be_so():
    refused = replace(status("cuda:nf4"), state="refused", reason="It needs 9 GiB.", facts=None, load=None)
    failed = Progress(0.0, "failed", "", 0, error="It needs 9 GiB.")
    record = build_record([refused, status("cpu:fp32")], Request("hi"), "together", {"cuda:nf4": [failed], "cpu:fp32": [ended(10)]})
    assert cells(record, "VRAM")[0] == "n/a (the lane was not loaded)"


def test_a_lane_whose_process_ended_is_not_said_to_be_not_loaded():
    died = Progress(0.0, "failed", "half", 2, error="It died.", t_first_s=0.1, t_last_s=0.3)
    for gone in (replace(status("cuda:nf4"), facts=None), replace(status("cuda:nf4"), facts=None, load=None)):
        record = build_record([gone, status("cpu:fp32")], Request("hi"), "together", {"cuda:nf4": [died], "cpu:fp32": [ended(10)]})
        assert "not loaded" not in text_table(record).replace("\n", " ")
        for title in ("Hardware", "VRAM", "Model size"):
            assert "n/a (the lane's process has ended)" in cells(record, title)[0]


def test_memory_of_unlike_kinds_gives_both_values_and_no_ratio():
    done = replace(ended(100).done, vram=Vram(2 * 2**30), ram=Ram(2**30))
    on_gpu, on_cpu = replace(ended(100), done=done), replace(ended(10), done=replace(ended(10).done, ram=Ram(4 * 2**30)))
    words = dict(summary_lines(record_of(cuda_nf4=on_gpu, cpu_fp32=on_cpu)))["Memory"]
    assert words == (
        "no ratio (2.00 GiB against 4.00 GiB): the first is VRAM reserved, the second RAM peak, and mapped files count in RAM only"
    )  # fmt: skip
    same = dict(summary_lines(record_of(cpu_nf4=on_gpu, cpu_fp32=on_cpu)))["Memory"]
    assert same == "4.0 times lower (1.00 GiB against 4.00 GiB), RAM peak"


@pytest.mark.parametrize(("off", "prefix"), [(("c-step",), "FAST=compact,products "), (("c-step", "compact", "products"), "FAST=none "), ((), "")])
def test_the_command_switches_off_what_was_switched_off(off, prefix):
    why_not = {"products": "no compiler"} if not off else dict.fromkeys(off, fast.OFF)
    lane = replace(status("cpu:fp32"), facts=replace(status("cpu:fp32").facts, fast_why_not=why_not))
    record = build_record([lane], Request("hi"), "together", {"cpu:fp32": [ended(10)]})
    assert command(record).startswith(prefix + "python -m inference compare ")


def test_a_faster_way_that_is_not_used_says_why_in_the_table_and_the_json():
    lane = replace(status("cpu:fp32"), facts=replace(status("cpu:fp32").facts, fast_used=("products",), fast_why_not={"c-step": "no compiler"}))
    slow = replace(ended(10), done=replace(ended(10).done, path_reason="c-step: no compiler"))
    record = build_record([lane], Request("hi"), "together", {"cpu:fp32": [slow]})
    assert cells(record, "Our faster ways") == ("products\nnot c-step: no compiler",)
    assert "path eager (c-step: no compiler)" in cells(record, "Conditions")[0]
    found = as_json(record)["lanes"]["cpu:fp32"]
    assert found["fast_why_not"] == {"c-step": "no compiler"} and found["runs"][0]["path_reason"] == "c-step: no compiler"


def test_json_read_back_is_the_same_record():
    records = [record_of(cuda_nf4=ended(100), cpu_fp32=ended(10)), record_of(cpu_nf4=ended(5), cpu_fp32=ended(10))]
    assert json.loads(to_json(records[:1])) == as_json(records[0])
    assert json.loads(to_json(records)) == [as_json(record) for record in records]


def test_csv_has_a_row_a_run_and_an_empty_cell_for_unknown():
    record = record_of(cpu_nf4=[ended(5), ended(7)], cpu_fp32=[one_token()])
    rows = list(csv.DictReader(io.StringIO(to_csv([record]))))
    assert [(row["lane"], row["repeat"]) for row in rows] == [("cpu:nf4", "1"), ("cpu:nf4", "2"), ("cpu:fp32", "1")]
    assert float(rows[0]["decode_tps"]) == 5 and rows[2]["decode_tps"] == "" and rows[2]["vram_reserved"] == ""


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r"])
def test_no_text_is_a_formula_in_csv_and_json_keeps_it_raw(sign):
    record = record_of(cpu_nf4=ended(5))
    text, lane = f"{sign}HYPERLINK(1)", record.lanes["cpu:nf4"]
    lane = replace(lane, runs=(replace(lane.runs[0], text=text, queue_s=-0.5),))
    record = asked(replace(record, lanes={"cpu:nf4": lane}), prompt=text)
    (row,) = csv.DictReader(io.StringIO(to_csv([record]), newline=""))
    assert row["prompt"] == row["text"] == f"'{text}" and row["queue_s"] == "-0.5"
    assert json.loads(to_json([record]))["request"]["prompt"] == text


def test_a_line_end_of_any_kind_stays_in_its_cell():
    for text in ("a\rb", "a\nb", "a\r\nb"):
        (row,) = csv.DictReader(io.StringIO(to_csv([asked(record_of(cpu_nf4=ended(5)), prompt=text)]), newline=""))
        assert row["prompt"] == text


def test_an_answer_can_not_break_the_markdown_table():
    hostile = "a | b\n| --- |\n# x `code` <script>alert(1)</script> **b** ```"
    record = record_of(cpu_nf4=Progress(0.0, "done", hostile, 3, done=Done(**{**ended(5).done.__dict__, "text": hostile})), cpu_fp32=ended(10))
    table = [line for line in markdown(record).splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    assert "<script" not in escape(hostile) and "\n" not in escape(hostile)
    assert fenced("a ``` b", "text").startswith("````text")


def test_the_drivers_figure_is_this_process_or_nothing():
    assert choose({7: 100, 8: 50}, 7) == 100 and choose({8: 50}, 7) == 50
    assert choose({8: 50, 9: 60}, 7) is None and choose({}, 7) is None and choose({7: None}, 7) is None


def test_conditions_and_tokens_are_those_of_all_runs_and_not_of_the_last():
    slow = ended(5)
    slow = replace(slow, done=replace(slow.done, alone=False, warm=False, finish_reason="length", prompt_tokens=9))
    rows = {row.title: row.cells[0] for row in table_rows(record_of(cpu_nf4=[slow, slow, ended(5)], cpu_fp32=[ended(5)]))}
    assert "2 of 3 contended, 1 of 3 alone" in rows["Conditions"] and "2 of 3 cold run" in rows["Conditions"]
    assert "end: 2 of 3 cut at the token limit, 1 of 3 by itself" in rows["Conditions"] and "3 tokens out, 4 or 9 in" in rows["Inference time"]


def test_why_a_figure_is_unknown_is_told_of_the_runs_that_count():
    one = ended(5, ids=(1,))
    one = replace(one, done=replace(one.done, timings=replace(one.done.timings, decode_tps=None, tpot_s=None)))
    record = record_of(cpu_nf4=[one, Progress(0.0, "failed", error="It died.")], cpu_fp32=[ended(5)] * 2)
    assert why(record.lanes["cpu:nf4"], "decode_tps") == "it takes two tokens"


def test_a_lane_of_another_model_has_its_own_name_and_not_the_others_parameters():
    other = replace(status("cpu:fp32"), facts=replace(status("cpu:fp32").facts, model_id="you/full"))
    record = build_record([status("cpu:nf4"), other], Request("hi"), "in-turn", {"cpu:nf4": [ended(20)], "cpu:fp32": [ended(5)]})
    assert [row["model"] for row in csv.DictReader(io.StringIO(to_csv([record])))] == ["fake/model", "you/full"]
    (cells,) = (row.cells for row in table_rows(record) if row.title == "Model size")
    assert "1,000 parameters" in cells[0] and "parameters" not in cells[1]


def test_one_thing_is_told_as_one():
    one = [ended(5, ids=(1,)), ended(5, reason="stopped"), ended(5, reason="stopped")]
    record = record_of(cpu_nf4=one, cpu_fp32=[ended(5), ended(5, ids=(1, 2)), ended(5, reason="stopped")])
    rows = {row.title: row.cells for row in table_rows(record)}
    assert "1 token out, 4 in" in rows["Inference time"][0] and "2 or 3 tokens out, 4 in" in rows["Inference time"][1]
    assert rows["Conditions"][0].endswith("2 runs that failed or were stopped") and rows["Conditions"][1].endswith("1 run that failed or was stopped")
    assert dict(summary_lines(record))["Lengths differ"] == "the totals are of 1 token (cpu:nf4), 2 or 3 tokens (cpu:fp32)"


def test_how_many_runs_have_a_figure_stands_beside_it_and_who_counted_each():
    record = record_of(cpu_nf4=[ended(5), ended(10), one_token()], cpu_fp32=[ended(5), one_token()])
    speed, first = cells(record, "Decode speed"), cells(record, "First token")
    assert speed == ("7.50 tok/s (5.00 tok/s - 10.0 tok/s, n 2)", "5.00 tok/s (n 1)") and first[0].endswith("n 3)")
    counted = [
        replace(run, done=replace(run.done, counted_by=by)) for run, by in ((ended(5), "the server"), (ended(5), "a tokenizer"), (ended(5), "the server"))
    ]
    assert "2 of 3 counted by the server, 1 of 3 counted by a tokenizer" in cells(record_of(cpu_nf4=counted, cpu_fp32=ended(5)), "Inference time")[0]


def test_effects_are_told_of_lanes_that_are_held_against_each_other_alone():
    assert "Effects" in dict(summary_lines(record_of(cuda_nf4=ended(100), cpu_fp32=ended(10))))
    assert "Effects" not in dict(summary_lines(record_of(cuda_nf4=ended(100), cpu_nf4=ended(10))))  # of one precision
