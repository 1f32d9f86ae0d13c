"""The decision: price, wait and quality each turn it, a spread that overlaps leaves it open, and it says why and what would turn it."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from inference.decide.model import Clients, Price
from inference.errors import WrongArguments
from tests.support.decisions import asked, decided, lane, of

CARD, CPU = lane("cuda:nf4", 1.0, 1.1, 1.2, first=0.1), lane("cpu:fp32", 5.0, 5.5, 6.0, first=0.9)
SCORED = replace(CARD, agreement=0.95, agreement_se=0.01, positions=500, lost=3, expected=100)


def told(parts):
    return " ".join(parts)


# ---- what turns it


def test_a_cost_that_only_touches_another_s_range_is_no_overlap():
    # one machine of each at best, at worst three of the slower lane: the quicker one is never the dearer one
    quick, slow = lane("cpu:nf4", 1.0, 1.1, 1.2, first=0.1), lane("cpu:fp32", 1.2, 5.0, 9.0, first=0.9)
    found = decided(replace(asked(20_000, gpu=None, max_total_s=60.0), prices={"cpu:nf4": Price(0.03, "typed"), "cpu:fp32": Price(0.03, "typed")}), quick, slow)
    turned = decided(replace(found.asked, answers_per_day=12_000), slow, quick)  # the same cost of the mean answer, whichever is given first
    assert turned.chosen == "cpu:nf4" and of(turned, "cpu:fp32").cost_month == of(turned, "cpu:nf4").cost_month
    low, high = of(found, "cpu:fp32").cost_month_low, of(found, "cpu:fp32").cost_month_high
    assert low == of(found, "cpu:nf4").cost_month < high and found.chosen == "cpu:nf4"


def test_price_turns_it():
    dear, cheap = decided(asked(gpu=0.8, cpu=0.1), CARD, CPU), decided(asked(gpu=0.05, cpu=0.1), CARD, CPU)
    assert (dear.chosen, cheap.chosen) == ("cpu:fp32", "cuda:nf4")
    assert dear.sentence == "Serve FP32 on the CPU (cpu:fp32): $73.00 a month, and 4-bit NF4 on the GPU (cuda:nf4) $584.00, 8.0 times as much."
    assert "cuda:nf4 would be the cheaper one under $0.10 an hour (now $0.80), or cpu:fp32 the dearer one over $0.80 (now $0.10)" in told(dear.turned_by)


def test_the_price_that_is_told_turns_it():
    found = decided(asked(300, sleep_after_min=5), CARD, CPU)
    even = float(re.search(r"cuda:nf4 would be the cheaper one under \$([\d.]+)", told(found.turned_by)).group(1))
    assert found.chosen == "cpu:fp32" and even < 0.8
    for factor, cheaper in ((0.99, "cuda:nf4"), (1.01, "cpu:fp32")):
        turned = decided(asked(300, gpu=even * factor, sleep_after_min=5), CARD, CPU)
        assert min(turned.candidates, key=lambda each: each.cost_month).lane == cheaper


@pytest.mark.parametrize(("limit", "rule"), [({"max_first_token_s": 0.5}, "First token"), ({"max_total_s": 4.0}, "Whole answer")])
def test_the_wait_turns_it(limit, rule):
    found = decided(asked(**limit), CARD, CPU)
    assert found.chosen == "cuda:nf4" and found.sentence.endswith("$584.00 a month, the only lane that keeps what you ask.")
    assert of(found, "cpu:fp32").out.startswith(f"{rule}: ")
    accept = "a first token of 900 ms" if "max_first_token_s" in limit else "an answer of 6.00 s"
    assert f"Limits: cpu:fp32 would be in where you accept {accept}, at $146.00 a month." in told(found.turned_by)
    (name,) = limit
    accepted = decided(asked(**{name: 0.9 if name == "max_first_token_s" else 6.0}, gpu=None), CARD, CPU)  # nobody may wait: two machines for 1,000
    assert accepted.chosen == "cpu:fp32" and of(accepted, "cpu:fp32").cost_month == pytest.approx(146.0)
    assert f"cpu:fp32 is out: {rule}: " in told(found.because)


def test_the_visitors_before_one_cost_machines():
    # answers of 5 s, each within 20 s at p95: one CPU can't give as many as 12,000 a day, several can
    alone, many = (decided(asked(per_day, gpu=None, max_total_s=20.0), CPU) for per_day in (200, 12_000))
    one, more = of(alone, "cpu:fp32"), of(many, "cpu:fp32")
    assert one.machines == 1 and more.machines == math.ceil(12_000 / more.capacity_per_day) > 1
    assert more.cost_month == more.machines * one.cost_month and many.chosen == "cpu:fp32"
    waits = next(rule for rule in more.rules if rule.title == "With the wait")
    assert waits.keeps and "estimated for 12,000 answers a day" in waits.words


def test_quality_turns_it():
    assert decided(asked(gpu=0.05, min_agreement=0.9), SCORED, CPU).chosen == "cuda:nf4"
    lossy = decided(asked(gpu=0.05, min_agreement=0.99), SCORED, CPU)
    assert lossy.chosen == "cpu:fp32" and "95.00 % ± 1.00 % over 500 positions, at least 99.00 % is asked; 4.00 points too few" in of(lossy, "cuda:nf4").out
    assert "would be in where you accept 93.00 % equal first choices, at $36.50 a month." in told(lossy.turned_by)
    lost = decided(asked(gpu=0.05, max_lost=0.0), SCORED, CPU)
    assert lost.chosen == "cpu:fp32" and "3 of 100 expected answers went from right to wrong (3.00 %)" in of(lost, "cuda:nf4").out


def test_at_equal_cost_the_lane_wins_that_changes_the_answers_least_then_the_faster():
    assert decided(asked(gpu=0.1), SCORED, CPU).sentence.endswith("as much as 4-bit NF4 on the GPU (cuda:nf4), and it changes the answers least.")
    slow, quick = lane("cuda:nf4", 3.0, 3.0, 3.0), lane("cpu:nf4", 2.0, 2.0, 2.0)
    prices = {name: Price(0.1, "typed") for name in ("cuda:nf4", "cpu:nf4")}
    found = decided(asked(prices=prices), slow, quick)
    assert found.chosen == "cpu:nf4" and "and it is the faster one" in found.sentence
    closer = decided(asked(prices=prices), replace(slow, agreement=0.99, positions=500), replace(quick, agreement=0.9, positions=500))
    assert closer.chosen == "cuda:nf4"


def test_costs_that_are_estimated_are_equal_within_a_hundredth_and_others_to_the_cent():
    near, sleepy = replace(CARD, load_s=42.0, agreement=0.95), {"sleep_after_min": 5, "gpu": 0.1}
    found = decided(asked(100, **sleepy), near, CPU)
    assert of(found, "cuda:nf4").cost_month < of(found, "cpu:fp32").cost_month and found.chosen == "cpu:fp32"
    assert re.search(r"as much as 4-bit NF4 on the GPU \(cuda:nf4\) within 1 % \(\$[\d.]+\), and it changes the answers least", found.sentence)
    assert decided(asked(200, gpu=0.0999), near, CPU).chosen == "cuda:nf4"


def test_the_turning_points_around_what_is_asked_are_told():
    # a card costs as much as 3 CPUs, each of which gives 86,400 / 5.5 = 15,709 answers a day: the fourth is needed from 47,128 on
    cpu = lane("cpu:fp32", 5.5, 5.5, 5.5)
    found = decided(asked(1000, gpu=0.3), CARD, cpu)
    first = found.turns[0]
    assert first.then == "cuda:nf4" and abs(first.answers_per_day - 3 * 86_400 / 5.5) < 2
    assert f"Answers a day: from {first.answers_per_day:,.0f} on cuda:nf4 is the cheaper one." in found.turned_by
    above = decided(asked(first.answers_per_day, gpu=0.3), CARD, cpu)
    assert above.chosen == "cuda:nf4" and f"Answers a day: under {first.answers_per_day:,.0f} cpu:fp32 is the cheaper one." in above.turned_by
    assert decided(asked(first.answers_per_day - 1, gpu=0.3), CARD, cpu).chosen == "cpu:fp32"


# ---- what is left open


@pytest.mark.parametrize(
    ("wanted", "lanes", "words"),
    [
        ({"max_total_s": 5.6}, (CARD, CPU), "Whole answer of FP32 on the CPU (cpu:fp32): 3 runs took 5.00 s to 6.00 s, and the limit of 5.60 s lies between"),
        ({"max_total_s": 9.0}, (CARD, lane("cpu:fp32", 5.0)), "5.00 s against a limit of 9.00 s: one run is one sample"),
        ({"max_total_s": 9.0}, (CARD, lane("cpu:fp32", 5.0, 5.0)), "two runs are too few"),
        ({"gpu": 0.05, "min_agreement": 0.9}, (replace(SCORED, positions=199), CPU), "95.00 % ± 1.00 % over 199 positions"),
        ({"gpu": 0.05, "min_agreement": 0.94}, (SCORED, CPU), "at least 94.00 % is asked"),
        ({"gpu": 0.05, "min_agreement": 0.94}, (CARD, CPU), "not measured"),
        ({"gpu": 0.05, "max_lost": 0.02}, (SCORED, CPU), "3 of 100 expected answers"),
        ({"sleep_after_min": 0, "per_day": 2000, "gpu": 0.15}, (replace(CARD, load_s=0.1), lane("cpu:fp32", 0.5, 1.9, 4.0, load_s=0.1)), "The costs overlap"),
        ({"sleep_after_min": 5, "gpu": 0.2}, (CARD, lane("cpu:fp32", 4.0)), "hangs on how long an answer takes, and one run is one sample"),
    ],
)  # fmt: skip
def test_what_the_measurement_can_t_tell_is_not_decided(wanted, lanes, words):
    found = decided(asked(**wanted), *lanes)
    assert found.chosen is None and found.sentence.startswith("Not decided. ") and words in found.sentence


def test_of_many_runs_the_p95_is_held_against_the_limit_and_the_mean_costs():
    # 200 answers, 195 of 1 to 2 s and 5 of 9 s: the p95 lies between ranks 183 and 197, 9 s is no part of it but for the last two
    totals = tuple(1 + i / 200 for i in range(195)) + (9.0,) * 5
    keeps, open_, breaks = (decided(asked(gpu=0.05, max_total_s=limit), replace(CPU), lane("cuda:nf4", *totals)) for limit in (9.0, 1.95, 1.5))
    assert [of(each, "cuda:nf4").rules[0].keeps for each in (keeps, open_, breaks)] == [True, None, False]
    assert "the p95 of 200 runs is 1.91 s to 9.00 s" in of(open_, "cuda:nf4").rules[0].words
    found = of(decided(asked(50_000, sleep_after_min=0), CPU, lane("cuda:nf4", *totals, load_s=0.1)), "cuda:nf4")
    assert 0.8 * found.cost_month < found.cost_month_low < found.cost_month < found.cost_month_high < 1.2 * found.cost_month


def test_what_would_decide_it_is_told():
    found = decided(asked(gpu=0.05, min_agreement=0.94), replace(SCORED, positions=199), CPU)
    assert "Same first choice of cuda:nf4: 200 positions are the fewest for a verdict." in found.turned_by


def test_where_costs_overlap_the_prices_are_told_at_which_they_would_not():
    lanes = replace(CARD, load_s=0.1), lane("cpu:fp32", 0.5, 1.9, 4.0, load_s=0.1)
    wanted = {"sleep_after_min": 0, "per_day": 2000, "gpu": 0.15}
    found = decided(asked(**wanted), *lanes)
    words = next(words for words in found.turned_by if words.startswith("Price: "))
    told = re.match(r"Price: (\S+) would surely be the cheaper one under \$(\S+) an hour, (\S+) over \$(\S+) \(now", words)
    assert told and told[1] == "cuda:nf4", words
    under, over = float(told[2]), float(told[4])
    assert (
        decided(asked(**{**wanted, "gpu": under * 0.99}), *lanes).chosen == "cuda:nf4"
        and decided(asked(**{**wanted, "gpu": over * 1.01}), *lanes).chosen == told[3]
    )
    for inside in (under * 1.01, over * 0.99):
        assert decided(asked(**{**wanted, "gpu": inside}), *lanes).chosen is None


def test_a_doubt_about_a_dearer_lane_decides_nothing():
    assert decided(asked(gpu=0.8, min_agreement=0.94), SCORED, CPU).chosen == "cpu:fp32"


def test_the_least_cost_of_a_lane_that_may_keep_a_limit_is_that_of_one_it_surely_keeps():
    # 40 runs, of which 39 keep 5.0 s: by them 95 of 100 visitors do where hardly anybody waits, and for all that is known many more could
    slow = lane("cpu:fp32", *(4.8,) * 39, 5.9, first=0.9)
    found, sure = (decided(asked(20_000, cpu=0.5, max_total_s=limit), CARD, slow) for limit in (5.0, 5.9))
    assert of(found, "cpu:fp32").cost_month_low == of(sure, "cpu:fp32").cost_month < of(found, "cpu:fp32").cost_month
    assert found.chosen == "cuda:nf4" and "cpu:fp32 may keep or break the limit on the whole answer, which decides nothing" in told(found.because)


def test_where_no_lane_keeps_the_limits_none_is_served():
    found = decided(asked(max_total_s=0.5), CARD, CPU)
    assert found.chosen is None and found.sentence == "No lane keeps what you ask: each one is out." and not found.turns
    assert "Limits: cuda:nf4 would be in where you accept an answer of 1.20 s, at $584.00 a month." in found.turned_by


# ---- asleep, other lengths, a load


@pytest.mark.parametrize("part", [0.93, 0.96, 0.99, 1.0, 1.5, 13.5])
def test_a_machine_that_never_gets_to_sleep_takes_as_many_visitors_as_one_that_is_always_on(part):
    awake = of(decided(asked(1000, gpu=None, max_total_s=20.0), CPU), "cpu:fp32").capacity_per_day
    found = of(decided(asked(part * awake, gpu=None, max_total_s=20.0, sleep_after_min=600), CPU), "cpu:fp32")
    assert found.out is None and found.capacity_per_day == pytest.approx(awake, rel=0.03) and found.machines in (math.ceil(part), math.ceil(part * 1.03))


def test_where_waking_makes_visitors_wait_another_machine_is_taken_as_long_as_that_helps():
    # asleep at once: whoever comes after a spell without work waits for a load of 13 s, and those who come meanwhile for each other
    slow = replace(CPU, load_s=13.0)
    found = of(decided(asked(13_000, gpu=None, max_total_s=25.0, sleep_after_min=0), slow), "cpu:fp32")
    awake = of(decided(asked(13_000, gpu=None, max_total_s=25.0), slow), "cpu:fp32")
    assert found.out is None and found.machines > awake.machines and found.capacity_per_day < awake.capacity_per_day


def test_who_wakes_it_waits_for_the_load_and_that_may_break_the_limit():
    found = decided(asked(50, sleep_after_min=1, max_first_token_s=5.0), CARD, CPU)
    assert found.chosen is None and "94 % of the visitors wake it and wait 40.0 s for its load" in of(found, "cuda:nf4").out
    assert decided(asked(50, max_first_token_s=5.0), CARD, CPU).chosen == "cpu:fp32"
    assert "Waking is the model's load alone" in told(found.remarks)
    lines = told(found.turned_by)
    assert "cpu:fp32 would be in where you accept a first token of 40.9 s" in lines  # 0.9 s after its load of 40 s
    sure = decided(asked(50, sleep_after_min=1, max_first_token_s=45.0), CARD, CPU)
    assert sure.chosen == "cpu:fp32" and "First token: under a limit of 40.9 s cpu:fp32 is not sure to keep it." in told(sure.turned_by)
    assert decided(asked(50, sleep_after_min=1, max_first_token_s=40.8), CARD, CPU).chosen != "cpu:fp32"
    unknown = decided(asked(sleep_after_min=5), CARD, replace(CPU, load_s=None))
    assert "how long it takes to wake was not measured" in of(unknown, "cpu:fp32").out


def test_answers_of_another_length_are_estimated_and_called_so():
    found = of(decided(asked(tokens=101, max_total_s=20.0), CARD, CPU), "cuda:nf4")
    figure = next(each for each in found.figures if each.title == "Whole answer")
    assert figure.words == "10.1 s (9.10 s - 11.1 s, n 3)" and figure.source.startswith("estimated for 101 tokens")  # 0.1 + 100 x 0.1
    same = of(decided(asked(tokens=11), CARD, CPU), "cuda:nf4")
    assert next(each for each in same.figures if each.title == "Whole answer").source.startswith("measured")
    assert "101 tokens are far more than the 11 measured" in told(decided(asked(tokens=101), CARD, CPU).remarks)
    untold = replace(CARD, tpot_s=())
    assert "no run tells the time of a token" in of(decided(asked(tokens=101), untold, CPU), "cuda:nf4").out


def test_a_server_that_batches_gives_what_was_measured_of_the_most_clients_that_keep_the_limits():
    def served(load, name="endpoint:x", **limits):
        prices = {name: Price(0.8, "typed")}
        return of(decided(asked(100_000, prices=prices, **limits), replace(CARD, lane=name, clients=tuple(load))), name)

    load = [Clients(n, 0.1 * n, 1.0 + 0.2 * n, 50.0 * n**0.5, 40) for n in (1, 4, 8, 16)]
    found = served(load, max_total_s=3.0)
    assert found.capacity_per_day == pytest.approx(50 * 8**0.5 * 1440) and found.machines == 1  # 8 clients: 2.6 s; 16: 4.2 s
    assert found.floor_1000 == pytest.approx(0.8 * 60 / 200 / 3.6)
    failing = [replace(each, failed=1) for each in load]
    assert "no measured number of clients at once kept the limits" in served(failing, max_total_s=3.0).out
    one_by_one = served([], max_total_s=3.0).capacity_per_day
    shorter = [replace(each, new_tokens=46 / each.answers_per_min) for each in load]  # more answers a minute, since they are shorter
    dead = Clients(1, math.inf, math.inf, 0.0, 0, 1)  # nobody was answered: that says nothing of how it grows
    for each in ([replace(each, answers_per_min=52.0) for each in load], shorter, [dead, load[1]]):
        assert served(each, max_total_s=3.0).capacity_per_day == one_by_one
    assert served(load, "cuda:nf4", max_total_s=3.0).capacity_per_day == one_by_one, "a lane of ours answers one at a time"


# ---- what must be said beside it


def test_a_price_of_other_hardware_and_one_of_nothing_are_said():
    prices = {"cuda:nf4": Price(0.8, "l4x1", "NVIDIA L4", "l4x1"), "cpu:fp32": Price(0.0, "typed")}
    beside = told(decided(asked(prices=prices), replace(CARD, hardware="NVIDIA H200"), CPU).remarks)
    assert "cuda:nf4: the price is of NVIDIA L4, the times are of NVIDIA H200" in beside
    assert "cpu:fp32: the hardware costs nothing" in beside
    assert "H200" not in told(decided(asked(prices={"cuda:nf4": Price(0.8, "x", "NVIDIA H200", "h")}), replace(CARD, hardware="NVIDIA H200"), CPU).remarks)
    small = {"cuda:nf4": Price(0.4, "t4", "NVIDIA T4", "t4-small", 16 * 10**9)}
    assert "it does not fit: it holds 18.63 GiB, and t4-small has 14.90 GiB" in of(
        decided(asked(prices=small), replace(CARD, memory_bytes=20 * 10**9)), "cuda:nf4"
    ).out  # fmt: skip


def test_random_weights_are_decided_by_speed_and_cost_alone():
    found = decided(asked(gpu=0.05, min_agreement=0.99, max_lost=0.0), replace(CARD, noise=True), replace(CPU, noise=True))
    assert found.chosen == "cuda:nf4" and "The weights are random: speed and cost are decided on" in told(found.remarks)


def test_a_lane_without_a_price_or_a_measurement_is_out():
    found = decided(asked(prices={"cpu:fp32": Price(0.1, "typed")}), CARD, replace(lane("cuda:bf16"), why_not="it was not measured: It died."), CPU)
    assert found.chosen == "cpu:fp32" and of(found, "cuda:nf4").cost_month is None
    assert "no price is given for its hardware" in of(found, "cuda:nf4").out and of(found, "cuda:bf16").out == "it was not measured: It died."


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"per_day": 0}, "The answers a day must be more than 0, 1,000,000,000 at most, not 0."),
        ({"per_day": -5}, "not -5."),
        ({"per_day": math.nan}, "not nan."),
        ({"per_day": math.inf}, "not inf."),
        ({"open_hours": 25}, "The open hours must be more than 0, 24 at most, not 25."),
        ({"tokens": 0}, "The tokens of an answer must be more than 0"),
        ({"max_first_token_s": 0.0}, "The longest acceptable first token must be more than 0 seconds, not 0."),
        ({"max_total_s": -1.0}, "The longest acceptable answer must be more than 0 seconds, not -1."),
        ({"max_first_token_s": 5.0, "max_total_s": 2.0}, "The longest acceptable answer is shorter than the longest acceptable first token."),
        ({"min_agreement": 98}, "must be a share from 0 to 1, not 98. For 98 % give 0.98."),
        ({"max_lost": math.nan}, "The largest share of answers lost must be a share from 0 to 1, not nan."),
        ({"sleep_after_min": -1.0}, "must be 0 or more, not -1."),
        ({"gpu": -0.8}, "The price of cuda:nf4 must be from 0 to 1,000,000 dollars an hour, not -0.8."),
        ({"cpu": math.nan}, "The price of cpu:fp32 must be from 0 to 1,000,000 dollars an hour, not nan."),
        ({"prices": {}}, "There is no price, so no cost."),
        ({"prices": {"cuda:bf16": Price(1.0, "typed")}}, "There is a price for cuda:bf16, but no record has that lane. They have: cuda:nf4, cpu:fp32."),
    ],
)  # fmt: skip
def test_what_can_t_be_meant_gets_a_sentence(wanted, words):
    with pytest.raises(WrongArguments) as refused:
        decided(asked(**wanted), CARD, CPU)
    assert words in str(refused.value)
