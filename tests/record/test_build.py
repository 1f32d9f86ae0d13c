"""The record and its sentences: ratios the right way round, nothing credited to the wrong cause, unknown is null."""

from dataclasses import replace

from inference.progress import Progress
from inference.record.summary import summary_lines
from inference.record.table import table_rows, text_table
from inference.record.verdict import verdict_text
from tests.support.records import ended, record_of


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
    assert record_of(cuda_nf4=ended(9), cuda_bf16=ended(9, (7,))).verdict.identical is None


def test_a_run_that_was_stopped_is_not_what_the_others_are_held_against():
    stopped = replace(ended(5, (1,)), phase="stopped", done=replace(ended(5, (1,)).done, finish_reason="stopped"))
    record = record_of(cpu_nf4=[ended(5), stopped], cpu_fp32=[ended(10), ended(10)])
    assert record.verdict.identical is True and dict(summary_lines(record)).get("Lengths differ") is None
    cells = {row.title: row.cells[0] for row in table_rows(record)}
    assert "3 tokens out" in cells["Inference time"] and "not counted: 1 run that failed or was stopped" in cells["Conditions"]


def test_every_claim_of_the_verdict_has_its_numbers():
    text = verdict_text(record_of(cuda_nf4=ended(100), cpu_fp32=ended(10)))
    assert "(100 tok/s against 10.0 tok/s)" in text and "(100 ms against 100 ms)" in text and "(600 B against 3.9 KiB)" in text
