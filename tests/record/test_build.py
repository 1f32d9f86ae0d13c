"""The record and its sentences: ratios the right way round, nothing credited to the wrong cause, unknown is null."""

import signal
from dataclasses import replace

import pytest

from inference.engine.process import why_it_died
from inference.events import Failed, Prefill, Request, Text
from inference.progress import Progress
from inference.record.build import build_record
from inference.record.export import to_csv, to_json
from inference.record.markdown import markdown
from inference.record.missing import what_happened
from inference.record.table import table_rows, text_table
from inference.record.verdict import AT_THE_CLIENT, summary_lines, verdict_text
from inference.series.table import prompt_cells
from tests.support.records import ended, record_of, status


def test_ratios_are_other_over_reference():
    record = record_of(cuda_nf4=ended(100), cpu_fp32=ended(10))
    (pair,) = record.verdict.pairs
    assert pair.reference == "cpu:fp32" and pair.other == "cuda:nf4"
    assert abs(pair.decode - 10) < 1e-9 and pair.load == 0.5 and pair.memory == 600 / 4000
    assert record.verdict.identical is True and record.verdict.first_divergence is None


def test_the_sentence_does_not_credit_quantization_with_the_devices_speed():
    text = verdict_text(record_of(cuda_nf4=ended(100), cpu_fp32=ended(10)))
    assert "10.0 times faster" in text and "not the quantization's doing" in text
    assert "GPU" not in verdict_text(record_of(cpu_nf4=ended(100), cpu_fp32=ended(10)))


def test_a_slower_lane_is_called_slower():
    assert "2.0 times slower" in verdict_text(record_of(cpu_nf4=ended(5), cpu_fp32=ended(10)))


def test_different_answers_are_told_neutrally_with_their_lengths():
    record = record_of(cpu_nf4=ended(5, (1, 2, 9, 4)), cpu_fp32=ended(10))
    text = verdict_text(record)
    assert record.verdict.first_divergence == 2 and record.verdict.identical is False
    assert "part at token 3" in text and "3 and 4 tokens" in text
    assert not any(word in text.lower() for word in ("wrong", "worse", "error", "damage"))


def test_what_is_held_against_what_and_the_lengths_that_differ_are_lines_of_the_summary():
    lines = summary_lines(record_of(cpu_nf4=ended(10, (1, 2, 9, 4)), cpu_fp32=ended(10)))
    assert lines[0] == ("Compared", "4-bit NF4 on the CPU with FP32 on the CPU")
    assert dict(lines)["Speed"].startswith("about as fast, 1.00 times (10.0 tok/s against 10.0 tok/s)")
    assert lines[-1] == ("Lengths differ", "the totals are of 4 tokens (cpu:nf4), 3 tokens (cpu:fp32)")
    record = record_of(cpu_nf4=ended(10), cpu_fp32=ended(10))
    elsewhere = replace(record, lanes={**record.lanes, "cpu:nf4": replace(record.lanes["cpu:nf4"], server="vLLM")})
    assert ("Times", AT_THE_CLIENT) in summary_lines(elsewhere) and "Times" not in dict(summary_lines(record))


def test_the_sentence_tells_speed_first_token_and_size_in_this_order():
    text = verdict_text(record_of(cpu_nf4=ended(20), cpu_fp32=ended(10)))
    assert text.startswith(
        "4-bit NF4 on the CPU wrote **2.0 times faster** (20.0 tok/s against 10.0 tok/s), "
        "gave its first token **about as soon, 1.00 times** (100 ms against 100 ms) and holds its weights in **0.15 times** the memory ("
    )


def test_no_speed_up_from_a_stopped_or_failed_run():
    stopped = replace(ended(5), phase="stopped", done=replace(ended(5).done, finish_reason="stopped"))
    failed = Progress(0.0, "failed", "half", 2, error="It died.")
    for other in (stopped, failed):
        record = record_of(cpu_nf4=other, cpu_fp32=ended(10))
        assert record.verdict.pairs == () and "No speed-up" in verdict_text(record)
    run = record.lanes["cpu:nf4"].runs[0]
    assert (run.finish_reason, run.error, run.text, run.decode_tps) == ("failed", "It died.", "half", None)
    assert "It died." in text_table(record)


def test_repeats_give_median_min_max_and_n():
    record = record_of(cpu_nf4=[ended(5), ended(7), ended(30)], cpu_fp32=[ended(10)] * 3)
    lane = record.lanes["cpu:nf4"]
    assert (round(lane.median.decode_tps), round(lane.min.decode_tps), round(lane.max.decode_tps), lane.n) == (7, 5, 30, 3)


def test_device_and_precision_effects_need_the_bridge_lanes():
    record = record_of(cuda_nf4=ended(100), cuda_bf16=ended(200), cpu_fp32=ended(10))
    assert abs(record.verdict.device_effect - 20) < 1e-9 and abs(record.verdict.precision_effect - 0.5) < 1e-9
    assert record_of(cuda_nf4=ended(100), cpu_fp32=ended(10)).verdict.device_effect is None


def test_each_pair_has_its_own_comparison_of_the_answers():
    record = record_of(cuda_nf4=ended(100), cuda_bf16=ended(50, (9, 9, 9)), cpu_fp32=ended(10))
    assert [(pair.other, pair.identical, pair.first_divergence) for pair in record.verdict.pairs] == [
        ("cuda:nf4", True, None),
        ("cuda:bf16", False, 0),
    ]
    assert record.verdict.identical is False and record.verdict.first_divergence == 0
    assert "4-bit NF4 on the GPU and it are identical" in verdict_text(record) and "it part at token 1" in verdict_text(record)
    failed = Progress(0.0, "failed", "half", 2, error="It died.")
    assert record_of(cpu_nf4=failed, cuda_nf4=ended(9, (7, 8, 9)), cpu_fp32=ended(10)).verdict.identical is False
    assert record_of(cuda_nf4=ended(9), cpu_nf4=ended(9, (7,))).verdict.identical is None


def test_a_run_that_was_stopped_is_not_what_the_others_are_held_against():
    stopped = replace(ended(5, (1,)), phase="stopped", done=replace(ended(5, (1,)).done, finish_reason="stopped"))
    record = record_of(cpu_nf4=[ended(5), stopped], cpu_fp32=[ended(10), ended(10)])
    assert record.verdict.identical is True and dict(summary_lines(record)).get("Lengths differ") is None
    cells = {row.title: row.cells[0] for row in table_rows(record)}
    assert "3 tokens out" in cells["Inference time"] and "not counted: 1 run that failed or was stopped" in cells["Conditions"]


def test_every_claim_of_the_verdict_has_its_numbers():
    text = verdict_text(record_of(cuda_nf4=ended(100), cpu_fp32=ended(10)))
    assert "(100 tok/s against 10.0 tok/s)" in text and "(100 ms against 100 ms)" in text and "(600 B against 3.9 KiB)" in text


# ---- runs that gave no whole answer


def broken_off():
    progress = Progress(0.0)
    for event in (Prefill("r", (1, 2, 3, 4), "chat", 1.0, "cuda-graph"), Text("r", "We", 1, 0.25), Text("r", " have", 2, 0.5), Failed("r", "It died.")):
        progress = progress.apply(event, 2.0)
    return progress


@pytest.mark.parametrize("code", [-signal.SIGKILL, -signal.SIGSEGV, 3])
def test_a_record_says_what_happened_and_not_to_ask_again(code):
    told = why_it_died(code)
    assert "ask again" in told.lower()
    failed = Progress(0.0, "failed", "half", 2, error=told)
    off = replace(status("cpu:nf4"), state="failed", reason=told, facts=None)
    record = build_record([off, status("cpu:fp32")], Request("hi"), "in-turn", {"cpu:nf4": [failed], "cpu:fp32": [ended(10)]})
    kept = record.lanes["cpu:nf4"].runs[0].error
    assert kept and told.startswith(kept[:-1]) and kept.endswith(".") and record.lanes["cpu:nf4"].reason == kept
    for shown in (to_json([record]), to_csv([record]), markdown(record), text_table(record), prompt_cells(record)[5]):
        assert "ask again" not in shown.lower() and "start it anew" not in shown


def test_other_advice_stays_in_a_record():
    assert what_happened("It broke (no). Check MODEL_ID, then ask again.") == "It broke (no). Check MODEL_ID."
    assert what_happened("It needs 9 GiB. Free memory.") == "It needs 9 GiB. Free memory." and what_happened(None) is None


def unreadable(tps):
    return replace(ended(tps), text="<|im_end|>", done=replace(ended(tps).done, text="<|im_end|>"))


def cells(record):
    return {row.title: row.cells for row in table_rows(record)}


def test_a_failed_run_keeps_its_first_token_and_what_it_wrote_in_no_comparison():
    record = record_of(cpu_nf4=broken_off(), cpu_fp32=ended(10))
    lane = record.lanes["cpu:nf4"]
    (run,) = lane.runs
    assert (run.finish_reason, run.new_tokens, run.prompt_tokens, run.text) == ("failed", 2, 4, "We have")
    assert (run.ttft_s, run.total_s, run.decode_tps, run.path) == (0.25, 0.5, 4.0, "cuda-graph")
    assert lane.n == 0 and lane.median.ttft_s is None and record.verdict.pairs == ()
    assert cells(record)["First token"][0] == "250 ms (of a run that failed; not counted)"


def test_an_error_is_no_response_and_has_a_row_of_its_own_only_where_there_is_one():
    record = record_of(cpu_nf4=broken_off(), cpu_fp32=ended(10))
    assert cells(record)["Response"] == ("We have\n(the run failed here)", "abc") and cells(record)["Error"] == ("It died.", "none")
    early = record_of(cpu_nf4=Progress(0.0, "failed", error="It died."), cpu_fp32=ended(10))
    assert cells(early)["Response"][0] == "(no answer: the run failed)"
    assert "Error" not in cells(record_of(cpu_nf4=ended(5), cpu_fp32=ended(10)))


def test_a_run_without_readable_text_is_a_fault_and_in_no_verdict():
    record = record_of(cpu_nf4=unreadable(5), cpu_fp32=unreadable(10))
    for lane in record.lanes.values():
        (run,) = lane.runs
        assert lane.n == 0 and run.finish_reason == "failed" and "none of which is readable text" in run.error
        assert run.token_ids == (1, 2, 3) and run.ttft_s == 0.1, "what was measured is kept"
    assert record.verdict.identical is None and "identical" not in verdict_text(record) and "times" not in markdown(record).split("# Summary")[1]
    both = record_of(cpu_nf4=[unreadable(5), ended(5)], cpu_fp32=[ended(10), ended(10)])
    assert both.lanes["cpu:nf4"].n == 1 and "not counted: 1 run that failed" in cells(both)["Conditions"][0]


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (("length", "length"), "The answers are identical, token for token. Both were cut at the limit of 50 tokens."),
        (("length", "stop"), "The answer of 4-bit NF4 on the CPU was cut at the limit of 50 tokens."),
        (("stop", "length"), "The answer of FP32 on the CPU was cut at the limit of 50 tokens."),
    ],
)
def test_an_answer_that_was_cut_is_not_said_to_have_ended_by_itself(reasons, words):
    record = record_of(cpu_nf4=ended(5, reason=reasons[0]), cpu_fp32=ended(10, reason=reasons[1]))
    assert words in verdict_text(record)
    ends = {"stop": "end: by itself", "length": "end: cut at the token limit"}
    for cell, reason in zip(cells(record)["Conditions"], reasons, strict=True):
        assert ends[reason] in cell
    for cell, reason in zip(cells(record)["Response"], reasons, strict=True):
        assert cell == ("abc\n(cut at the token limit)" if reason == "length" else "abc")
    shown = markdown(record) + verdict_text(record)
    assert "ended by themselves" not in shown and "by itself" not in verdict_text(record)


def test_answers_that_ended_are_not_said_to_be_cut():
    assert "cut" not in verdict_text(record_of(cpu_nf4=ended(5), cpu_fp32=ended(10)))
