"""What a decision says: nothing that its own table or another limit would belie, and numbers as people write them."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from inference.decide import words
from inference.decide.model import Clients, Price
from tests.support.decisions import asked, decided, lane, of

CARD, CPU = lane("cuda:nf4", 1.0, 1.1, 1.2, first=0.1), lane("cpu:fp32", 5.0, 5.5, 6.0, first=0.9)
SCORED = replace(CARD, agreement=0.95, agreement_se=0.01, positions=500, lost=3, expected=100)


def told(parts):
    return " ".join(parts)


def test_a_lane_that_only_lacks_a_price_is_not_said_to_break_what_is_asked():
    assert decided(asked(gpu=None), CARD, CPU).sentence.endswith("the only lane with a price that keeps what you ask.")
    assert decided(asked(gpu=None, max_total_s=2.0), CARD, CPU).sentence == "No lane with a price keeps what you ask: each one is out."


def test_what_nearly_equal_costs_are_is_not_said_to_be_the_least():
    near = decided(asked(200, gpu=0.8, cpu=0.8008, sleep_after_min=5), CARD, replace(CARD, lane="cpu:fp32", is_reference=True))
    assert near.chosen == "cpu:fp32" and "none is cheaper by more than 1 %: cpu:fp32" in told(near.because)
    assert not any("would be the cheaper one" in line for line in near.turned_by)


def test_numbers_are_told_whole():
    found = decided(asked(1, gpu=20_000, cpu=1e6, open_hours=1, sleep_after_min=1, tokens=1), CARD, CPU)
    assert "(now $20,000)" in told(found.turned_by)
    text = words.text(found)
    assert "1 answer a day, open 1 hour, asleep 1 minute after a visitor, 1 token an answer, no limit" in " ".join(text.split())
    assert not re.search(r"\de[+-]\d|\b1 (answers|hours|minutes|tokens)\b", text)


def test_an_energy_of_answers_of_another_length_is_none():
    measured = replace(CARD, energy_j=40.0)
    assert of(decided(asked(), measured, CPU), "cuda:nf4").energy_j == 40.0
    other = of(decided(asked(tokens=101), measured, CPU), "cuda:nf4")
    assert other.energy_j is None and not any(figure.title == "Energy an answer" for figure in other.figures)


def test_limits_that_are_told_hold():
    runs = lane("cpu:fp32", 4.804, 5.5, 5.504, first=0.9)
    (rule,) = of(decided(asked(gpu=None, max_total_s=5.0), runs), "cpu:fp32").rules[:1]
    assert rule.margin == "a limit of 5.51 s is kept, one under 4.80 s is not"
    assert of(decided(asked(gpu=None, max_total_s=5.51), runs), "cpu:fp32").rules[0].keeps
    lossy = decided(asked(gpu=0.05, max_lost=0.001), SCORED, CPU)
    assert "would be in where you accept 8.62 % of the expected answers lost" in told(lossy.turned_by)  # Wilson's interval of 3 of 100
    assert decided(asked(gpu=0.05, max_lost=0.0862), SCORED, CPU).chosen == "cuda:nf4"
    # a capacity is told rounded down: one more takes another machine
    capacity = of(decided(asked(gpu=None, max_total_s=20.0), CPU), "cpu:fp32").capacity_per_day
    one = decided(asked(math.floor(capacity), gpu=None, max_total_s=20.0), CPU)
    assert f"one machine keeps it up to {math.floor(capacity):,} a day" in told(one.because) and of(one, "cpu:fp32").machines == 1


def test_a_server_that_answers_several_at_once_has_no_hours_at_work():
    load = tuple(Clients(n, 0.1 * n, 1.0 + 0.2 * n, 600.0 * n, 40) for n in (1, 4, 8))
    server = replace(lane("endpoint:x", 1.0, 1.1, 1.2, first=0.1), clients=load)
    found = of(decided(replace(asked(20_000_000, max_total_s=5.0), prices={"endpoint:x": Price(2.0, "typed")}), server), "endpoint:x")
    hours, a_minute = (next(figure for figure in found.figures if figure.title == title) for title in ("Hours of hardware a day", "Answers a minute"))
    assert hours.source == "24 x machines, always on" and a_minute.words == "600 with 1 client, 2,400 with 4 clients, 4,800 with 8 clients"


def test_every_number_says_where_it_is_from():
    found = decided(asked(sleep_after_min=5, max_total_s=60.0), SCORED, CPU)
    figures = [figure for candidate in found.candidates for figure in candidate.figures]
    words = ("measured", "estimated", "typed", "price x", "cost a month /", "for your", "what the others are")
    assert len(figures) > 20 and all(figure.words and figure.source.startswith(words) for figure in figures)


def source(candidate, title):
    return next(figure.source for figure in candidate.figures if figure.title == title)


def test_each_figure_says_by_what_it_was_worked_out():
    few = of(decided(asked(12_000, max_total_s=20.0), CPU, CARD), "cpu:fp32")
    waits = next(rule for rule in few.rules if rule.title == "With the wait").words
    assert re.match(r"95 of 100 visitors get the answer after [\d.]+ s \(limit 20.0 s\), estimated for 12,000 answers a day on \d machines", waits)
    assert source(few, "One machine can give") == "estimated: as many as keep your limits at p95, the wait included"
    asleep = of(decided(asked(1000, sleep_after_min=5), CPU, CARD), "cpu:fp32")
    assert source(asleep, "Cost a month").endswith("; from the quickest and from the slowest answer")
    many = lane("cpu:fp32", *(4.0, 5.0, 6.0) * 7, first=0.9)
    told = source(of(decided(asked(1000, sleep_after_min=5), many, CARD), "cpu:fp32"), "Cost a month")
    assert told.endswith("; from a mean two standard errors less, and more")
    load = tuple(Clients(n, 0.1 * n, 1.0 + 0.2 * n, 600.0 * n, 40) for n in (1, 4, 8))
    server = replace(lane("endpoint:x", 1.0, 1.1, 1.2, first=0.1), clients=load)
    sleeper = of(decided(replace(asked(max_total_s=50.0, sleep_after_min=5), prices={"endpoint:x": Price(2.0, "typed")}), server), "endpoint:x")
    assert source(sleeper, "Hours of hardware a day") == "estimated: awake until 5 minutes after a visitor"
    unmeasured = of(decided(asked(), replace(CARD, why_not="it failed."), CPU), "cuda:nf4")
    assert (unmeasured.title, unmeasured.out) == ("4-bit NF4 on the GPU", "it failed.")


def test_costs_under_a_cent_are_not_within_a_percent_and_have_no_exponent():
    tiny = {name: Price(dollars, "typed") for name, dollars in (("cuda:nf4", 1e-6), ("cpu:fp32", 2e-6))}
    found = decided(asked(20_000, prices=tiny), replace(CARD, agreement=0.9), lane("cpu:fp32", 1.0, 1.0, 1.0))
    assert found.sentence == (
        "Serve FP32 on the CPU (cpu:fp32): $0.00146 a month, as much as 4-bit NF4 on the GPU (cuda:nf4) to the cent ($0.000730), and it changes the answers least."
    )
    assert not re.search(r"\de[+-]\d", words.text(found)) and "$0.0000012" in words.text(found)


def test_one_answer_a_day_that_a_machine_can_give_is_one():
    slow = decided(asked(0.5, cpu=0.1, gpu=None), lane("cpu:fp32", *(70_000.0,) * 3, first=1.0))
    assert next(figure.words for figure in of(slow, "cpu:fp32").figures if figure.title == "One machine can give") == "1 answer a day"


def test_a_measured_load_says_how_long_the_answers_of_it_were():
    loaded = replace(CARD, clients=(Clients(1, 0.1, 1.0, 60.0, 3, new_tokens=5),))
    (rate,) = [figure for figure in of(decided(asked(), loaded, CPU), "cuda:nf4").figures if figure.title == "Answers a minute"]
    assert rate.source.startswith("measured with answers of 5 tokens; one after the other it would be 54.5")


def test_what_a_limit_leaves_is_all_of_it_only_where_it_is():
    quick = decided(asked(max_total_s=100.0), CARD, lane("cpu:fp32", *(0.0004,) * 3, first=0.0001))
    assert "to spare, 99 % of the limit" in of(quick, "cpu:fp32").rules[0].margin
    slow = decided(asked(max_total_s=0.001), CARD, CPU)
    assert "too long, 499,900 % of the limit" in of(slow, "cpu:fp32").rules[0].margin


def test_no_share_below_none_is_asked_for():
    far = decided(asked(gpu=0.05, min_agreement=0.9), replace(CARD, agreement=0.05, agreement_se=0.04, positions=300), CPU)
    assert "would be in where you accept 0.00 % equal first choices" in told(far.turned_by)
