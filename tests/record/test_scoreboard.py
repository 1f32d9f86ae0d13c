"""The scoreboard: who won, from the winner's side; a tie is a tie; what was not measured has no winner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inference.events import Request
from inference.record.build import build_record
from inference.record.scoreboard import as_text, caveat, factor, facts, fastest, first_different_word, name, no_winner, standings
from inference.record.verdict import summary_lines, verdict_text
from tests.support.records import ended, record_of, saying, status


def words(record):
    return {fact.title: (fact.words, fact.winner) for fact in facts(record)}


def test_each_fact_is_told_from_the_winners_side():
    record = record_of(cuda_nf4=[ended(20.0)], cpu_fp32=[ended(5.0)])
    assert words(record)["Writing speed"] == ("4-bit writes 4.0× faster", "cuda:nf4")
    record = record_of(cuda_nf4=[ended(5.0)], cpu_fp32=[ended(20.0)])
    assert words(record)["Writing speed"] == ("FP32 writes 4.0× faster", "cpu:fp32")
    assert facts(record)[0].numbers == "20.0 tok/s against 5.00 tok/s", "the winner's number first"


def test_a_tie_has_no_winner():
    found = words(record_of(cuda_nf4=[ended(10.2)], cpu_fp32=[ended(10.0)]))
    assert found["Writing speed"] == ("Equally fast", None) and found["First word"] == ("Equally soon", None)


def test_equal_answers_are_the_same_and_cut_ones_so_far():
    assert words(record_of(cuda_nf4=[ended(9.0)], cpu_fp32=[ended(9.0)]))["Answers"][0] == "The same, word for word"
    assert words(record_of(cuda_nf4=[ended(9.0, reason="length")], cpu_fp32=[ended(9.0)]))["Answers"][0] == "The same so far"


def with_text(progress, text):
    return replace(progress, text=text, done=replace(progress.done, text=text))


def test_answers_that_part_say_from_which_word():
    left, right = with_text(ended(9.0, ids=(1, 2)), "a cup of tea"), with_text(ended(9.0, ids=(1, 3)), "a cup with tea")
    assert words(record_of(cuda_nf4=[left], cpu_fp32=[right]))["Answers"][0] == "Differ from word 3"


@pytest.mark.parametrize(
    ("left", "right", "place"),
    [
        ("a b", "a b", None),
        ("a b", "a c", 2),
        ("a b", "a", 2),
        ("", "a", 1),
        ("好" * 50, "好" * 49 + "坏", None),
        ("a  b", "a b c", 3),
        ("我们有鸡肉", "我们有牛肉", None),
        ("ありがとう です", "ありがとう だ", None),
        ("ข้าวผัด", "ข้าวต้ม", None),
        ("안녕 하세요", "안녕 친구", 2),
        (f"see https://{'x' * 60} now", f"see https://{'x' * 60} then", 3),
        ("tea or 茶", "tea and 茶", 2),
    ],
)
def test_the_first_different_word(left, right, place):
    assert first_different_word(left, right) == place


def test_a_script_without_spaces_is_counted_in_tokens():
    left, right = with_text(ended(9.0, ids=(1, 2)), "好" * 50), with_text(ended(9.0, ids=(1, 3)), "坏" * 50)
    assert words(record_of(cuda_nf4=[left], cpu_fp32=[right]))["Answers"][0] == "Differ from token 2"


def test_a_stopped_lane_has_no_winner_and_is_named():
    record = record_of(cuda_nf4=[ended(9.0)], cpu_fp32=[ended(9.0, reason="stopped")])
    assert facts(record) == () and no_winner(record) == "No winner: FP32 was stopped."
    assert as_text(record) == ["No winner: FP32 was stopped."]


def test_on_one_card_4_bits_are_held_against_bf16_and_without_either_reference_it_is_said():
    record = record_of(cuda_nf4=ended(20.0), cuda_bf16=ended(5.0))
    assert facts(record)[0].winner == "cuda:nf4" and record.verdict.pairs[0].reference == "cuda:bf16" and not no_winner(record)
    assert record.verdict.precision_effect == pytest.approx(4) and "Both ran on the same device" in caveat(record)
    assert record_of(cuda_nf4=ended(20.0), cuda_bf16=ended(5.0), cpu_fp32=ended(1.0)).verdict.pairs[0].reference == "cpu:fp32"
    assert "there is no lane that all are held against" in no_winner(record_of(cuda_nf4=ended(9.0), cpu_nf4=ended(9.0)))
    failed = ended(9.0, reason="stopped")
    assert "(FP32) has no whole answer" in no_winner(record_of(cuda_nf4=ended(9.0), cpu_nf4=ended(9.0), cpu_fp32=failed))


def test_two_commits_of_one_model_are_said_and_nothing_is_credited_to_the_precision():
    record = record_of(cpu_nf4=[ended(20.0)], cpu_fp32=[ended(5.0)])
    for full, said in (("b" * 40, True), ("a" * 40, False), (None, False)):
        lanes = {name: replace(lane, revision=full if name == "cpu:fp32" else "a" * 40) for name, lane in record.lanes.items()}
        words = caveat(replace(record, lanes=lanes))
        assert ("different commits of one model (4-bit aaaaaaaaaaaa, FP32 bbbbbbbbbbbb)" in words) is said is not ("what differs is the precision" in words)


def test_two_things_that_changed_at_once_are_said():
    once = "One run each: times vary from run to run."
    apart = "Device and precision differ at once: the speed is not the quantization's doing alone."
    assert caveat(record_of(cuda_nf4=[ended(20.0)], cpu_fp32=[ended(5.0)])) == f"{apart} {once}"
    alike = "Both ran on the same device: what differs is the precision, and the kernels for it."
    assert caveat(record_of(cpu_nf4=[ended(20.0)], cpu_fp32=[ended(5.0)])) == f"{alike} {once}"
    assert "One run each" not in caveat(record_of(cpu_nf4=[ended(20.0)] * 3, cpu_fp32=[ended(5.0)] * 3))


def test_a_lane_of_a_precision_that_nobody_knows_yet_is_called_by_its_name():
    record = record_of(cpu_nf4=[ended(20.0)], cpu_fp32=[ended(5.0)])
    unknown = replace(record, lanes={key: replace(lane, precision=None) for key, lane in record.lanes.items()})
    assert [name(each, lane) for each in (record, unknown) for lane in record.lanes] == ["4-bit", "FP32"] * 2


def test_a_lane_that_was_not_at_its_fastest_is_named():
    slow = ended(5.0)
    slow = replace(slow, done=replace(slow.done, path_reason="c-step: no C compiler is installed"))
    assert "FP32 was not at its fastest." in caveat(record_of(cpu_nf4=[ended(20.0)], cpu_fp32=[slow]))
    assert "at its fastest" not in caveat(record_of(cpu_nf4=[ended(20.0)], cpu_fp32=[ended(5.0)]))


def test_more_lanes_stand_in_order_of_speed():
    record = record_of(cpu_fp32=[ended(5.0)], cuda_nf4=[ended(20.0)], cpu_nf4=[ended(9.0)])
    assert [each.lane for each in standings(record)] == ["cuda:nf4", "cpu:nf4", "cpu:fp32"]
    assert standings(record)[-1].answer == "the reference" and facts(record) == ()
    parted = record_of(cpu_fp32=[ended(5.0)], cuda_nf4=[saying("abc d", ids=(1, 9))], cpu_nf4=[ended(9.0)])
    assert {each.lane: each.answer for each in standings(parted)}["cuda:nf4"] == "Differs from word 2"
    assert as_text(record)[0].startswith("1. 4-bit NF4 on the GPU: 20.0 tok/s")


@pytest.mark.parametrize(
    ("speeds", "told"),
    [
        ((5.0, 20.0, 9.0), "4-bit NF4 on the GPU writes fastest, 2.2× faster than 4-bit NF4 on the CPU"),
        ((5.0, 20.0, 19.5), "4-bit NF4 on the GPU and 4-bit NF4 on the CPU write equally fast, ahead of the others"),
        ((20.0, 20.1, 19.9), "4-bit NF4 on the GPU, FP32 on the CPU and 4-bit NF4 on the CPU write equally fast"),
    ],
)
def test_of_more_lanes_it_is_said_which_writes_fastest(speeds, told):
    record = record_of(**dict(zip(("cpu_fp32", "cuda_nf4", "cpu_nf4"), map(ended, speeds), strict=True)))
    assert fastest(record) == told
    assert caveat(record).startswith(f"{told}. ") and as_text(record)[-1].startswith(told)


def test_nothing_is_the_fastest_of_two_lanes_nor_without_two_speeds():
    assert fastest(record_of(cpu_fp32=ended(5.0), cpu_nf4=ended(9.0))) == ""
    stopped = ended(9.0, reason="stopped")
    assert fastest(record_of(cpu_fp32=ended(5.0), cpu_nf4=stopped, cuda_nf4=stopped)) == ""
    one_stopped = fastest(record_of(cpu_fp32=ended(5.0), cpu_nf4=ended(100.0, reason="stopped"), cuda_nf4=ended(9.0)))
    assert one_stopped == "4-bit NF4 on the GPU writes fastest, 1.8× faster than FP32 on the CPU", "a stopped run wins nothing"


def test_a_figure_that_is_unknown_says_why():
    record = record_of(cuda_nf4=[ended(9.0, ids=(1,))], cpu_fp32=[ended(9.0)])
    lane = record.lanes["cuda:nf4"]
    record = replace(record, lanes={**record.lanes, "cuda:nf4": replace(lane, median=replace(lane.median, decode_tps=None))})
    assert words(record)["Writing speed"] == ("n/a: it takes two tokens", None)


@pytest.mark.parametrize(("ratio", "said"), [(4.0, "4.0×"), (0.25, "4.0×"), (26.2, "26×"), (9.94, "9.9×"), (9.96, "10×")])
def test_a_factor_is_told_from_the_larger_side(ratio, said):
    assert factor(ratio) == said


def test_with_the_lane_between_the_device_and_the_precision_are_told_apart():
    record = record_of(cuda_nf4=[ended(30.0)], cuda_bf16=[ended(50.0)], cpu_fp32=[ended(5.0)])
    assert "Of the speed, the device makes 10.0× and 4 bits with their kernels make 0.60×." in caveat(record)


def test_a_tie_is_one_whichever_of_the_two_is_the_reference():
    for four_bit, full in ((10.52, 10.0), (10.0, 10.52), (10.5, 10.0), (10.0, 10.5)):
        tied = "Equally fast" in words(record_of(cpu_nf4=ended(four_bit), cpu_fp32=ended(full)))["Writing speed"][0]
        assert tied is (10.5 in (four_bit, full)), (four_bit, full)


def test_of_several_lanes_it_is_said_which_ones_differ_in_two_things():
    told = caveat(record_of(cpu_fp32=ended(5.0), cpu_nf4=ended(9.0), cuda_nf4=ended(20.0)))
    assert "From FP32 on the CPU to 4-bit NF4 on the GPU device and precision differ at once: that speed" in told
    told = caveat(record_of(cpu_fp32=ended(5.0), cuda_bf16=ended(20.0)))
    assert "the speed is not the precision's doing alone" in told, "nothing is quantized there"


def test_lanes_of_models_of_other_names_are_not_said_to_differ_in_precision_alone():
    record = record_of(cpu_nf4=ended(20.0), cpu_fp32=ended(5.0))
    lanes = {name: replace(lane, model_id="./merged" if name == "cpu:fp32" else "./tuned") for name, lane in record.lanes.items()}
    told = caveat(replace(record, lanes=lanes))
    assert "models of other names (4-bit ./tuned, FP32 ./merged)" in told and "what differs is the precision" not in told


def test_a_lane_of_which_one_run_alone_counts_is_named():
    record = record_of(cpu_nf4=[ended(20.0), ended(9.0, reason="stopped")], cpu_fp32=[ended(5.0)] * 2)
    assert "Of 4-bit there is one run: times vary from run to run." in caveat(record)


def test_a_lane_whose_repeats_differ_is_not_told_by_its_last_answer_alone():
    record = record_of(cpu_nf4=[ended(9.0, ids=(1, 2, 3, 4, 5)), ended(9.0)], cpu_fp32=[ended(5.0)] * 2)
    assert "4-bit did not answer the same each time" in caveat(record) and "FP32 did not" not in caveat(record)
    assert dict(summary_lines(record))["Lengths differ"] == "the totals are of 3 or 5 tokens (cpu:nf4), 3 tokens (cpu:fp32)"


def test_which_answers_were_cut_is_said_where_not_all_were():
    assert "Cut at 50 tokens. " in caveat(record_of(cpu_nf4=ended(20, reason="length"), cpu_fp32=ended(5, reason="length")))
    assert "Cut at 50 tokens: FP32. " in caveat(record_of(cpu_nf4=ended(20), cpu_fp32=ended(5, reason="length")))
    some = caveat(record_of(cpu_nf4=[ended(20), ended(20, reason="length")], cpu_fp32=[ended(5, reason="length")] * 2))
    assert "Cut at 50 tokens: 4-bit in 1 of 2 runs, FP32." in some and "Cut" not in caveat(record_of(cpu_nf4=ended(20), cpu_fp32=ended(5)))


def test_runs_that_overlap_are_said_to_where_one_lane_is_told_to_be_ahead():
    ahead, behind = [ended(12), ended(10), ended(14)], [ended(11), ended(9), ended(10)]
    told = caveat(record_of(cpu_nf4=ahead, cpu_fp32=behind))
    assert "The lanes' runs overlap in writing speed: who is ahead there may be chance." in told and "first word" not in told
    for left, right in ((ahead, [ended(5)] * 3), ([ended(10), ended(10.2)], [ended(10), ended(10.2)]), ([ended(12)], [ended(10)])):
        assert "overlap" not in caveat(record_of(cpu_nf4=left, cpu_fp32=right))
    pooled = record_of(cpu_nf4=ahead, cpu_fp32=behind)
    assert "overlap" not in caveat(replace(pooled, request=replace(pooled.request, repeats=1)))


def test_a_first_run_since_the_load_beside_a_warm_one_is_said():
    cold, warm = replace(ended(5), done=replace(ended(5).done, warm=False)), ended(5)
    words = "FP32 answered for the first time since the load, which slows."
    found = [caveat(record_of(cpu_nf4=left, cpu_fp32=right)) for left, right in ((warm, cold), (warm, warm), (cold, cold))]
    assert [words in each for each in found] == [True, False, False] and "for the first time" not in found[2]


def test_a_server_that_cut_at_a_limit_of_its_own_is_not_said_to_have_cut_at_ours():
    own = replace(ended(30, reason="length"), done=replace(ended(30, reason="length").done, token_ids=(), new_tokens=6), n=6)
    lanes = [replace(status("endpoint:x"), title="vLLM", load=None), status("cpu:fp32")]
    record = build_record(lanes, Request("hi"), "in-turn", {"endpoint:x": [own], "cpu:fp32": [ended(5)]})
    assert "Cut at the token limit: vLLM." in caveat(record) and "The answer of vLLM was cut at the token limit." in verdict_text(record)
