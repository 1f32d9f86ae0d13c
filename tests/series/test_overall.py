"""Who won over a whole file of prompts: figures over all runs, answers counted, in the scoreboard's own words."""

from dataclasses import replace

from inference.record.model import Row
from inference.series import overall, table
from inference.series.series import Series, medians
from tests.support.records import ended, record_of, saying


def records(*pairs):
    return [replace(record_of(cpu_nf4=left, cpu_fp32=right), row=Row(line, "ABC")) for line, (left, right) in enumerate(pairs, 1)]


def test_the_figures_are_over_all_prompts_and_not_of_the_last():
    found = records((ended(10), ended(20)), (ended(10), ended(20)), (ended(90), ended(10)))
    assert overall.facts(found, medians(found))[0].words == "FP32 writes 2.0× faster"
    assert overall.overall(found).lanes["cpu:nf4"].n == 3


def test_a_lane_that_failed_at_the_last_prompt_keeps_its_figures():
    found = records((ended(10), ended(20)), (ended(10, reason="stopped"), ended(20)))
    assert overall.facts(found, medians(found))[0].words == "FP32 writes 2.0× faster"


def test_answers_are_counted_one_by_one():
    found = records((ended(10), ended(20)), (ended(10, ids=(1, 2)), ended(20)))
    told = {fact.title: fact for fact in overall.facts(found, medians(found))}
    assert told["Answers"].words == "1 of 2 the same" and told["Right answers"].words == "4-bit 2 of 2, FP32 2 of 2" and told["Right answers"].winner is None
    assert overall.facts(found[:1], medians(found[:1]))[3].words == "The same"


def test_answers_to_different_prompts_are_not_the_same_and_fewer_of_them_do_not_win():
    failed = ended(10, reason="stopped")
    found = records((ended(10), failed), (failed, ended(20)))
    assert {fact.title: fact.words for fact in overall.facts(found, medians(found))}["Answers"] == "n/a: no prompt was answered by both"
    found = records((ended(10), ended(20)), (failed, ended(20)))
    found = [found[0], replace(found[1], row=Row(2, "what neither said"))]
    (told,) = [fact for fact in overall.facts(found, medians(found)) if fact.title == "Right answers"]
    assert told.words == "4-bit 1 of 1, FP32 1 of 2" and told.winner is None


def test_as_many_other_prompts_make_no_better_lane():
    failed = ended(10, reason="stopped")
    found = records((ended(10), failed), (ended(10), ended(20)), (failed, ended(20)))
    found = [*found[:2], replace(found[2], row=Row(3, "what neither said"))]
    (told,) = [fact for fact in overall.facts(found, medians(found)) if fact.title == "Right answers"]
    assert told.words == "4-bit 2 of 2, FP32 1 of 2" and told.winner is None


def test_more_right_answers_make_a_better_lane_only_where_chance_does_not():
    wrong = saying("something else", ids=(7, 8, 9))
    for flips, winner in ((1, None), (5, None), (6, "cpu:fp32")):
        found = records(*[(wrong, ended(20))] * flips, *[(ended(10), ended(20))] * 4)
        (told,) = [fact for fact in overall.facts(found, medians(found)) if fact.title == "Right answers"]
        assert told.words == f"4-bit 4 of {flips + 4}, FP32 {flips + 4} of {flips + 4}" and told.winner == winner


def test_what_so_few_can_show_is_said_whoever_failed_at_the_last_prompt():
    found = records(*[(ended(10), ended(20))] * 7, (ended(10), ended(20, reason="stopped")))
    assert "7 prompts with an expected answer show a change" in overall.beside(found, overall.facts(found, medians(found)))


def test_how_little_so_few_prompts_can_show_is_said_beside_them():
    found = records(*[(ended(10), ended(20))] * 7)
    said = overall.beside(found, overall.facts(found, medians(found)))
    assert said.endswith("Estimated, 7 prompts with an expected answer show a change of right answers from 85.7 points on.")
    unexpected = [replace(record, row=Row(1, None)) for record in found]
    assert "stimated" not in overall.beside(unexpected, overall.facts(unexpected, medians(unexpected)))


def test_where_a_lane_answered_nothing_it_is_said_why_nobody_won():
    series = Series((), records=records((ended(10), ended(20, reason="stopped"))))
    assert table.verdict_lines(series) == ["No winner: FP32 was stopped."] and table.verdict_lines(Series(())) == []


def test_what_was_cut_anywhere_is_said_beside_the_winner_in_text_and_markdown():
    series = Series((), records=records((ended(10, reason="length"), ended(20)), (ended(10), ended(20))))
    for text in (table.text(series, 80), table.markdown(series)):
        assert text.index("FP32 writes 2.0× faster") < text.index("as expected") and "Cut at 50 tokens: 4-bit in 1 of 2 runs." in " ".join(text.split())
        assert "4-bit (NF4): answer" in text and "Full precision (FP32): speed" in text


def test_two_lanes_of_one_precision_are_told_apart_by_their_device():
    titles = overall.lane_titles(record_of(cuda_nf4=ended(10), cpu_nf4=ended(10), cpu_fp32=ended(20)))
    assert list(titles.values()) == ["4-bit (NF4), GPU", "4-bit (NF4), CPU", "Full precision (FP32)"]


def test_more_than_two_lanes_have_medians_no_single_winner_and_what_must_be_said_beside():
    found = [record_of(cuda_nf4=ended(10), cpu_nf4=ended(10, reason="length"), cpu_fp32=ended(20))] * 2
    (told,) = table.verdict_lines(Series((), records=found))
    assert (
        overall.facts(found, medians(found)) == ()
        and told.startswith("FP32 on the CPU writes fastest")
        and told.endswith("Cut at 50 tokens: 4-bit NF4 on the CPU.")
    )


def test_figures_of_unlike_prompts_are_said_to_be():
    found = records((ended(10), ended(20)), (ended(10), ended(20, reason="failed")))
    told = table.verdict_lines(Series((), records=found))[-1]
    assert "The lanes did not answer the same prompts (4-bit 2 of 2, FP32 1 of 2)" in told
    assert "the same prompts" not in table.verdict_lines(Series((), records=found[:1]))[-1]


def test_a_median_over_fewer_runs_than_count_says_over_how_many():
    one = ended(10, ids=(1,))
    one = replace(one, done=replace(one.done, timings=replace(one.done.timings, decode_tps=None, tpot_s=None)))
    found = records((ended(10), ended(20)), (ended(20), ended(20)), (one, ended(20)))
    (four_bit, full), speed = table.median_rows(Series((), records=found)), table.MEDIAN_HEADS.index("speed, median")
    assert (four_bit[speed], full[speed]) == ("15.0 tok/s (10.0 tok/s - 20.0 tok/s, n 2)", "20.0 tok/s (20.0 tok/s - 20.0 tok/s)")
