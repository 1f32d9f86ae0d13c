"""The decision in the report: its sentence first, every figure with its source, what was asked, and cost over answers a day as a drawing."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from inference.decide.model import Asked, Decision, Price, Turn
from inference.report import decision as decided
from inference.report.axes import Tick
from inference.report.decision import CostLine
from inference.report.html import html_report
from tests.support.decided import COSTS, CPU, DECISION, GPU, PRICES
from tests.support.records import ended, record_of

RECORDS = [record_of(cuda_nf4=ended(20), cpu_fp32=ended(5))]


def rows(text: str) -> dict[str, list[str]]:
    """The cells of each row of the candidates' table, without markup."""
    table = text[text.index("The candidates") : text.index("</table>", text.index("The candidates"))]
    found = re.findall(r'<tr><th scope="row">([^<]*).*?</th>(.*?)</tr>', table, re.S)
    return {title: [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in re.findall(r"<td.*?</td>", cells, re.S)] for title, cells in found}


def test_the_decision_comes_first_in_place_of_who_won_with_why_and_what_would_turn_it():
    text = html_report(RECORDS, DECISION)
    assert re.findall(r"<h2>(.*?)</h2>", text)[:2] == ["The decision", "Each lane's figures"]
    assert '<p class="sentence of-4bit">Serve 4-bit NF4 on the GPU.</p>' in text and '<h1 dir="auto">you/tuned</h1>' in text
    assert all(
        words in text
        for words in (
            "The wait decided it.",
            "A longer wait.",
            "Measured on one machine.",
            "From 3,400 answers a day on 4-bit NF4 on the GPU is cheaper than FP32 on the CPU.",
        )
    )


def test_every_figure_stands_over_its_source_and_every_rule_says_how_it_went():
    found = rows(html_report(RECORDS, DECISION))
    assert found["Cost a month"] == ["$584.00 $0.80 an hour x 730 hours", "$21.90 $0.03 an hour x 730 hours"]
    assert found["Answers a day"] == ["41,000 estimated from 20 totals", "–"]
    assert found["Verdict"] == ["Serve this one", "Out: its first word comes &lt;late&gt;"]
    assert list(found) == ["Verdict", "Cost a month", "First word", "Same first choice", "Answers a day"], "the cost stands first"
    text = html_report(RECORDS, DECISION)
    assert '<span class="kept">60 ms (16 times under)</span>' in text and '<span class="broken">2.10 s (2 times over)</span>' in text
    assert '<span class="unsure">98 %</span>' in text


def test_what_was_asked_is_told_with_each_price_s_source():
    asked = dict(decided.shown(DECISION).asked)
    assert asked["Answers a day"] == "2,000" and asked["Longest wait for the first word"] == "1 s" and asked["Longest wait for the whole answer"] == "no limit"
    assert asked["Price of 4-bit NF4 on the GPU"] == "$0.80 an hour (l4x1, prices read 2026-08)" and asked["Between visits"] == "asleep after 15 min"


def test_none_chosen_is_no_lane_s_colour_and_a_report_needs_no_records():
    undecided = Decision(DECISION.asked, "m", (GPU, CPU), (), None, "Not decided.", (), ())
    text = html_report([], undecided)
    assert '<p class="sentence ">Not decided.</p>' in text and "Nothing was measured" not in text and rows(text)["Verdict"][0] == "Not decided"


def test_a_wide_range_of_answers_is_drawn_by_powers_of_ten_and_the_turn_lies_on_both():
    chart = decided.shown(DECISION, COSTS).chart
    assert [tick.words for tick in chart.across] == ["10", "100", "1,000", "10k", "100k"] and [tick.at for tick in chart.across] == pytest.approx(
        [0, 0.25, 0.5, 0.75, 1]
    )
    assert chart.lines[0].points == ((0.0, 0.5), (1.0, 0.5)) and chart.lines[0].colour == "of-4bit" and chart.lines[1].points[1] == (1.0, 0.0)
    assert chart.turns[0].at == pytest.approx(0.633, abs=0.001) and chart.asked.words == "asked: 2,000" and chart.asked.at < chart.turns[0].at
    assert [tick.words for tick in chart.up] == ["$0", "$500", "$1,000"] and chart.up[0].at == 1
    assert html_report(RECORDS, DECISION, COSTS).count("<polyline") == 2


def test_of_many_turning_points_the_nearest_are_told_and_the_costs_are_drawn_around_them():
    turns = tuple(Turn(answers, "cpu:fp32", "cuda:nf4") for answers in (10, 500, 1500, 2500, 90_000, 10**6))
    many = replace(DECISION, turns=turns)
    assert [turn.answers_per_day for turn in decided.near(many)] == [500, 1500, 2500]
    lines = decided.cost_lines(many, {"cuda:nf4": lambda answers: 584.0, "cpu:fp32": lambda answers: answers})
    assert (
        [line.lane for line in lines] == ["cuda:nf4", "cpu:fp32"]
        and lines[1].points[0] == (100, 100)
        and lines[1].points[-1] == pytest.approx((12_500, 12_500))
    )
    assert html_report(RECORDS, many, lines).count('class="turn"') == 3


def test_a_source_that_all_share_is_said_once():
    alike = replace(CPU, figures=(replace(CPU.figures[0], source=GPU.figures[0].source),))
    text = html_report([], replace(DECISION, candidates=(GPU, alike)))
    assert text.count("$0.80 an hour x 730 hours") == 1 and rows(text)["Cost a month"] == ["$584.00", "$21.90"]


def test_less_than_two_powers_of_ten_have_marks_between():
    chart = decided.shown(DECISION, (CostLine("cuda:nf4", ((400, 10), (10_000, 20))),)).chart
    assert [tick.words for tick in chart.across] == ["500", "1,000", "2,000", "5,000", "10k"]


def test_a_narrow_range_is_linear_and_what_lies_outside_is_not_drawn():
    chart = decided.shown(DECISION, (CostLine("cuda:nf4", ((1000, 10), (1500, 20))),)).chart
    assert chart.turns == () and chart.asked is None and chart.across[0].at == 0 and chart.across[-1] == Tick(1.0, "1,500")


@pytest.mark.parametrize(
    "costs",
    [
        (),
        (CostLine("cuda:nf4", ((10, 5),)),),
        (CostLine("cuda:nf4", ((10, 0), (20, 0))),),
        (CostLine("cuda:nf4", ((10, 1), (10, 2))),),
        (CostLine("cuda:nf4", ((10, 1), (20, float("inf")))),),
    ],
)
def test_no_drawing_is_made_of_too_little(costs):
    assert decided.shown(DECISION, costs).chart is None


def test_what_was_asked_is_not_rounded_to_something_else():
    asked = Asked(0.4, {"cuda:nf4": Price(0.004, "typed"), "cpu:fp32": Price(150.75, "typed")}, None, 0.0125, 1.999, min_agreement=0.995, max_lost=0.001)
    few = replace(DECISION, asked=asked, turns=(Turn(0.25, "cpu:fp32", "cuda:nf4"),))
    told = dict(decided.shown(few).asked)
    assert (told["Answers a day"], told["Least share of equal first choices"], told["Most answers lost"]) == ("0.4", "99.5 %", "0.1 %")
    assert (told["Longest wait for the first word"], told["Longest wait for the whole answer"]) == ("0.0125 s", "1.999 s")
    assert told["Price of 4-bit NF4 on the GPU"] == "$0.004 an hour (typed)" and told["Price of FP32 on the CPU"] == "$150.75 an hour (typed)"
    assert decided.shown(few).turns == ("From 0.25 answers a day on 4-bit NF4 on the GPU is cheaper than FP32 on the CPU.",)


def drawn(asked: float, *turns: float) -> decided.CostChart:
    """The chart of a decision that turns at these numbers of answers a day."""
    made = replace(DECISION, asked=Asked(asked, PRICES), turns=tuple(Turn(at, "cpu:fp32", "cuda:nf4") for at in turns))
    return decided.shown(made, decided.cost_lines(made, {"cuda:nf4": lambda answers: 584.0})).chart


def test_words_under_the_axis_stand_clear_of_each_other_on_a_phone():
    assert [tick.words for tick in drawn(20_000, 6533).across] == ["2,000", "5,000", "10k", "20k", "50k", "100k"]
    assert [tick.words for tick in drawn(0.05, 6533, 1e8).across] == ["0.01", "1", "100", "10k", "1M", "100M"], "every second power, since all have no room"
    for asked, turn in ((1e-3, 1e-3), (7, 9), (30, 200), (0.4, 1e9), (1234, 99_999), (3e8, 4e8)):
        spans = [tick.span for tick in drawn(asked, turn).across]
        assert len(spans) > 1 and all(end < begin for (_, end), (begin, _) in zip(spans, spans[1:], strict=False))


def test_turning_points_close_together_are_all_drawn_and_the_nearest_to_what_was_asked_is_told():
    assert [tick.words for tick in drawn(20_000, 17_000, 19_000, 26_113).turns] == ["", "19,000", ""]
    assert [tick.words for tick in drawn(20, 1, 20_000).turns] == ["1", "20,000"]


def test_words_stand_over_the_middle_of_their_line_but_where_they_would_reach_out():
    assert [Tick(at, "47,238").anchor for at in (0, 0.05, 0.9, 1)] == ["start", "middle", "middle", "end"]
    assert Tick(0.95, "asked: 1,000,000").anchor == "end" and Tick(0.9, "1M").anchor == "middle"


def test_few_answers_a_day_are_drawn_where_they_lie():
    few = replace(DECISION, asked=Asked(0.04, PRICES), turns=())
    chart = decided.shown(few, decided.cost_lines(few, {"cuda:nf4": lambda answers: 0.04})).chart
    assert chart.asked.words == "asked: 0.04" and chart.asked.at == pytest.approx(0.5)
    assert [tick.words for tick in chart.across] == ["0.01", "0.02", "0.05", "0.1", "0.2"]
    assert [tick.words for tick in chart.up] == ["$0", "$0.01", "$0.02", "$0.03", "$0.04"]


@pytest.mark.parametrize(
    ("most", "words"),
    [
        (1, ["$0", "$0.50", "$1.00"]),
        (12, ["$0", "$5", "$10"]),
        (240.4, ["$0", "$50", "$100", "$150", "$200"]),
        (0.0062, ["$0", "$0.002", "$0.004", "$0.006"]),
        (25_000, ["$0", "$10k", "$20k"]),
        (2.6e12, ["$0", "$1T", "$2T"]),
        (7.6e10, ["$0", "$20B", "$40B", "$60B"]),
        (2.1e6, ["$0", "$500k", "$1M", "$1.5M", "$2M"]),
    ],
)
def test_the_axis_of_money_has_cents_where_they_count(most, words):
    assert [tick.words for tick in decided.shown(DECISION, (CostLine("cuda:nf4", ((10, most), (20, 0))),)).chart.up] == words


def test_a_turning_point_that_holds_only_up_to_the_next_one_has_both_ends():
    turns = (Turn(10, "cpu:fp32", "cuda:nf4"), Turn(11, "cuda:nf4", "cpu:fp32"), Turn(50, "cpu:fp32", "cuda:nf4"))
    told = decided.shown(replace(DECISION, turns=turns)).turns
    assert [words.partition(" 4-bit")[0].partition(" FP32")[0] for words in told] == [
        "At 10 answers a day",
        "From 11 to 49 answers a day",
        "From 50 answers a day on",
    ]
