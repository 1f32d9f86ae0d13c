"""Records pooled to evidence: what counts, what is left out and said, and what can't be of one decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inference.decide.decision import decide
from inference.decide.evidence import gather
from inference.decide.model import Asked, Price
from inference.energy import Energy
from inference.errors import WrongArguments
from inference.events import LoadFigures, Request
from inference.progress import Progress
from inference.record.build import build_record
from inference.record.model import Row
from inference.record.read import Scored
from inference.record.scores import Figures, Flips, NoQuality, Quality
from tests.support.records import ended, record_of, status


def run(tps=10, total=None, **done):
    made = ended(tps, total=total)
    return replace(made, done=replace(made.done, **done))


def changed(record, **more):
    """The record with fields of its parts changed: model=, request=, environment=, or all its lanes'."""
    parts = {name: replace(getattr(record, name), **more.pop(name)) for name in ("model", "request", "environment") if name in more}
    lanes = {name: replace(lane, **more) for name, lane in record.lanes.items()}
    return replace(record, lanes=lanes, **parts)


def figures(positions, agreement, se=0.01):
    return Figures(positions, 0.5, 0.1, 0.4, 2.0, 3.0, agreement, se, 5.0, 6.0, 1.2, None)


def quality(positions=300, agreement=0.9, reference="cpu:fp32", lost=(), answers=0, se=0.01):
    flips = {"contains": Flips(answers, answers, answers - len(lost), lost, (), 1.0)} if answers else None
    return Quality(figures(positions, agreement, se), reference, "cuda:nf4", "prompts", 1, 10, {"cuda:nf4": figures(positions, agreement, se)}, expected=flips)


def two(**more):
    return changed(record_of(cuda_nf4=[run(20, 1.0), run(20, 2.0)], cpu_fp32=[run(5, 4.0)]), **more)


def lane_of(found, name="cuda:nf4"):
    return next(lane for lane in found.lanes if lane.lane == name)


def test_the_runs_of_all_records_are_pooled_by_lane():
    found = gather([two(), replace(two(), row=Row(2, None)), record_of(cuda_bf16=[run(20, 7.0)])])
    assert [lane.lane for lane in found.lanes] == ["cuda:nf4", "cpu:fp32", "cuda:bf16"] and found.model == "fake/model"
    four_bit = lane_of(found)
    assert four_bit.total_s == (1.0, 2.0, 1.0, 2.0) and four_bit.new_tokens == (3,) * 4 and four_bit.load_s == 1.0
    assert lane_of(found, "cpu:fp32").is_reference and not four_bit.is_reference and lane_of(found, "cpu:fp32").title == "FP32 on the CPU"


def test_a_file_that_is_given_twice_counts_once_and_that_is_said():
    record = replace(two(), quality=quality())
    found = gather([record, record])
    assert lane_of(found).total_s == (1.0, 2.0) and lane_of(found).positions == 300
    assert found.remarks == ("1 record given more than once counted once.",)


def test_cold_runs_are_left_out_where_there_are_warm_ones():
    found = lane_of(gather([record_of(cuda_nf4=[run(20, 9.0, warm=False), run(20, 1.0)])]))
    assert found.total_s == (1.0,) and "1 run was not counted, since cold" in found.notes[0]
    cold = lane_of(gather([record_of(cuda_nf4=[run(20, 9.0, warm=False)])]))
    assert cold.total_s == (9.0,) and "1 of 1 run was cold" in cold.notes[0]


def test_contended_cut_and_failed_runs_are_said():
    runs = [run(20, 1.0, alone=False), run(20, 2.0, finish_reason="length"), Progress(0.0, "failed", error="It died."), ended(9, reason="stopped")]
    found = lane_of(gather([record_of(cuda_nf4=runs)]))
    assert found.total_s == (1.0, 2.0)
    assert found.notes[0].startswith("1 of 2 runs was contended") and found.notes[1].startswith("1 of 2 answers was cut at the token limit")
    assert found.notes[2] == "2 runs were not counted: failed, stopped or without figures."


def test_a_lane_that_failed_is_no_candidate_and_says_why():
    found = gather([record_of(cuda_nf4=[Progress(0.0, "failed", error="It died.")], cpu_fp32=[run()])])
    assert lane_of(found).why_not == "it was not measured: It died." and lane_of(found, "cpu:fp32").why_not is None
    never = replace(status("cuda:nf4"), facts=None, load=None, hello=None, available=False, reason="There is no CUDA device.")
    refused = build_record([never], Request("hi"), "together", {"cuda:nf4": []})
    assert lane_of(gather([refused])).why_not == "it was not measured: There is no CUDA device."


def test_a_load_that_every_record_of_a_series_tells_counts_once_and_cold_ones_go_before_warm_ones():
    loads = [LoadFigures(10.0, cold=False), LoadFigures(40.0), LoadFigures(40.0), LoadFigures(40.0), LoadFigures(60.0)]
    records = [replace(changed(two(), load=load), row=Row(line, None)) for line, load in enumerate(loads)]
    assert lane_of(gather(records)).load_s == 50.0


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (two(), two(model={"id": "other/model"}), "The records are of 2 models: fake/model, other/model."),
        (two(model={"revision": "a"}), two(model={"revision": "b"}), "The records are of 2 models: fake/model at a, fake/model at b."),
        (two(model={"adapter": "x"}), two(), "fake/model with x, fake/model."),
        (two(environment={"gpu": "L4"}), two(environment={"gpu": "T4"}), "cuda:nf4 was measured on 2 machines: L4; T4."),
        (two(), two(environment={"cpu": "d"}), "cpu:fp32 was measured on 2 machines: c, 2 threads; d, 2 threads."),
        (two(), two(threads=16), "cpu:fp32 was measured on 2 machines: c, 2 threads; c, 16 threads."),
        (replace(two(), quality=quality()), replace(two(), quality=quality(reference="cuda:bf16")), "measured against cpu:fp32 and against cuda:bf16."),
    ],
)  # fmt: skip
def test_what_is_of_two_models_or_machines_is_refused(first, second, words):
    with pytest.raises(WrongArguments) as told:
        gather([first, second])
    assert words in str(told.value)


def test_each_lane_may_have_a_machine_of_its_own():
    gpu, cpu = record_of(cuda_nf4=[run()]), record_of(cpu_fp32=[run()])
    found = gather([changed(gpu, environment={"gpu": "L4", "cpu": "a"}), changed(cpu, environment={"cpu": "b"})])
    assert [lane.hardware for lane in found.lanes] == ["L4", "b, 2 threads"]


def test_quality_alone_is_no_record_and_of_another_model_it_is_refused():
    with pytest.raises(WrongArguments, match="no record to decide by"):
        gather([], [Scored(quality(), "fake/model")])
    with pytest.raises(WrongArguments, match="of 2 models: fake/model, other"):
        gather([two()], [Scored(quality(), "other")])


def test_quality_is_pooled_by_positions_with_its_error():
    records = [replace(two(), quality=quality(100, 0.8, se=0.04)), replace(two(), quality=NoQuality("Too short."), row=Row(1, None))]
    found = lane_of(gather(records, [Scored(quality(300, 1.0, lost=(1, 4), answers=20, se=0.0), "fake/model")]))
    assert (found.positions, found.agreement, found.lost, found.expected) == (400, pytest.approx(0.95), 2, 20)
    assert found.agreement_se == pytest.approx(0.01)  # 100 x 0.04 / 400
    assert lane_of(gather(records), "cpu:fp32").agreement is None


def test_expected_answers_lost_are_counted_in_the_records_where_quality_tells_of_none():
    def answered(line, four_bit, full):
        record = record_of(cuda_nf4=[replace(run(), text=four_bit)], cpu_fp32=[replace(run(), text=full)])
        lanes = {
            name: replace(lane, runs=(replace(lane.runs[0], text=text),)) for (name, lane), text in zip(record.lanes.items(), (four_bit, full), strict=True)
        }
        return replace(record, lanes=lanes, row=Row(line, "two naan"))

    records = [
        answered(1, "Two naan, sure.", "two naan"),
        answered(2, "Three.", "Two naan it is."),
        answered(3, "two naan", "none"),
        answered(4, "no", "no"),
        answered(5, "no", "two naan"),
    ]
    found = lane_of(gather(records))
    assert (found.lost, found.expected) == (2, 5) and lane_of(gather(records), "cpu:fp32").lost is None
    scored = [replace(records[0], quality=quality(lost=(0,), answers=2)), *records[1:]]
    assert (lane_of(gather(scored)).lost, lane_of(gather(scored)).expected) == (1, 2)


def test_the_energy_of_an_answer_is_over_the_runs_of_all_records():
    short = Energy(40.0, 0.1, None, "nvml", 0.1, 0.0, 0.0)  # three are too short for their counter, fifteen long enough
    records = [replace(record_of(cuda_nf4=[run(energy=short)] * 3), row=Row(line, None)) for line in range(5)]
    assert lane_of(gather(records[:1])).energy_j is None and lane_of(gather(records)).energy_j == 40


def test_of_random_weights_no_quality_is_kept():
    noise = changed(replace(two(), quality=quality()), note="random weights, its text is noise")
    found = lane_of(gather([noise]))
    assert found.noise and found.agreement is None and "weights: random weights, its text is noise." in found.notes


def test_unlike_limits_and_unlike_prompts_are_said():
    found = gather([two(), changed(record_of(cpu_fp32=[run(5, 8.0)]), request={"max_new_tokens": 128, "prompt": "other"})])
    assert "unlike numbers of tokens (cuda:nf4 at 50, cpu:fp32 at 50 and 128)" in found.remarks[0]
    assert "not asked the same prompts (cuda:nf4 1, cpu:fp32 2)" in found.remarks[1]
    assert gather([two()]).remarks == ()


def test_fetching_the_model_is_no_part_of_what_waking_takes():
    records = [changed(two(), load=LoadFigures(70.0, {"download": 60.0, "quantize": 10.0}))]
    assert lane_of(gather(records)).load_s == 10.0


@pytest.mark.parametrize(("asked", "keeps"), [(0.999, None), (0.98, True)])
def test_that_all_of_a_few_positions_agree_does_not_say_that_all_do(asked, keeps):
    record = replace(record_of(cuda_nf4=[ended(50)] * 3, cpu_fp32=[ended(5)] * 3), quality=quality(positions=250, agreement=1.0, se=0.0))
    found = gather([record])
    assert lane_of(found, "cuda:nf4").agreement_se == pytest.approx(2 / 254)
    decision = decide(Asked(1000, {"cuda:nf4": Price(0.8, "typed"), "cpu:fp32": Price(0.1, "typed")}, min_agreement=asked), found)
    (rule,) = next(each.rules for each in decision.candidates if each.lane == "cuda:nf4")
    assert rule.keeps is keeps and "100.00 % ± 0.79 % over 250 positions" in rule.words
