"""Dollars: a calculation by hand to the cent, the hours awake against the simulated line, the turning points against trying every number."""

from __future__ import annotations

import math

import pytest

from inference.decide.costs import Curve, Load, awake, floor_of_1000, machines_for, of_1000
from inference.decide.queue import Line, Sleep
from inference.decide.turns import cheapest, turns
from tests.support.decisions import asked, decided, lane, of


def test_always_on_is_price_times_730_hours_to_the_cent():
    # 0.80 x 730 = 584.00. 1,000 answers a day are 1,000 x 730 / 24 = 30,416.67 a month: 584.00 / 30.41667 = 19.20 for 1,000
    # never idle: 2 s an answer are 2,000 s for 1,000, 0.5556 h x 0.80 = 0.4444
    found = of(decided(asked(1000, gpu=0.8), lane("cuda:nf4", 2.0, 2.0, 2.0), lane("cpu:fp32")), "cuda:nf4")
    assert (found.machines, found.hours_per_day) == (1, 24)
    assert round(found.cost_month, 2) == 584.00 and round(found.cost_1000, 2) == 19.20 and round(found.floor_1000, 4) == 0.4444
    assert found.cost_month == found.cost_month_low == found.cost_month_high


def test_two_machines_cost_twice_as_much():
    # answers of 2 s without a limit: 43,200 in 24 hours would keep one machine always busy, so 60,000 take two: 2 x 0.80 x 730 = 1,168.00
    found = of(decided(asked(60_000, gpu=0.8), lane("cuda:nf4"), lane("cpu:fp32")), "cuda:nf4")
    assert found.machines == 2 and round(found.cost_month, 2) == 1168.00 and found.capacity_per_day == pytest.approx(43_200, rel=1e-4)


def test_asleep_between_visits_by_hand_to_the_cent():
    # 240 answers in 24 hours: one every 360 s. 2 s an answer, asleep after 5 minutes, 40 s to load. exp(-300 / 360) = 0.4345982
    # spells: 240 x (1 - 2/360) / (1 + 0.4345982 x 40/360) = 238.66667 / 1.0482887 = 227.6727
    # of each: (1 - 0.4345982) x 360 = 203.54465 s idle and 0.4345982 x 40 = 17.38393 s loading
    # a day: 240 x 2 + 227.6727 x 220.92858 = 480 + 50299.4 = 50779.4 s = 14.10539 h; a month: x 30.41667 x 0.80 = 343.23
    found = of(decided(asked(240, gpu=0.8, sleep_after_min=5), lane("cuda:nf4"), lane("cpu:fp32")), "cuda:nf4")
    assert found.hours_per_day == pytest.approx(14.10539, abs=1e-5) and round(found.cost_month, 2) == 343.23
    # 240 x 30.41667 = 7,300 answers a month: 343.23 / 7.3 = 47.02 for 1,000
    assert round(found.cost_1000, 2) == 47.02


def test_closed_at_night_one_of_the_spells_is_over_night_by_hand():
    # 12 answers in 6 open hours: one every 1,800 s. 2 s an answer, asleep after 10 minutes, 40 s to load. exp(-600 / 1800) = 0.7165313
    # spells: 12 x (1 - 2/1800) / (1 + 0.7165313 x 40/1800) = 11.986667 / 1.0159229 = 11.798796, one of them over 18 hours of night
    # awake: 24 s at work; 10.798796 x (0.2834687 x 1800 = 510.24363) + 600 = 6110.017 s idle; (10.798796 x 0.7165313 + 1) x 40 = 349.507 s loading
    # together 6483.52 s = 1.80098 h
    assert awake(Load(12, 6, 600), 2.0, 40.0).hours == pytest.approx(1.80098, abs=1e-5)


@pytest.mark.parametrize(
    ("a_day", "open_hours", "sleep_s", "total_s", "load_s"),
    [(100, 24, 600, 2, 40), (500, 10, 600, 5, 40), (3000, 8, 300, 6, 60), (50, 12, 54_000, 3, 20), (5, 12, 600, 3, 20), (3, 8, 0, 3, 20)],
)
def test_the_hours_awake_are_those_of_the_simulated_line(a_day, open_hours, sleep_s, total_s, load_s):
    load = Load(a_day, open_hours, sleep_s)
    simulated = Line((total_s,), (total_s,)).asleep_between(load.per_second, Sleep(sleep_s, load_s, load.night_s, a_day))
    assert awake(load, total_s, load_s).hours == pytest.approx(simulated.awake_s * a_day / 3600, rel=0.02)


def test_few_visitors_pay_their_answer_the_time_until_it_sleeps_and_the_load():
    day = awake(Load(2, 24, 300), 2.0, 40.0)
    rate = 2 / 86_400
    each = 2.0 + (1 - math.exp(-rate * 300)) / rate + math.exp(-rate * 300) * 40
    assert day.hours * 3600 == pytest.approx(2 * each, rel=0.002)
    assert awake(Load(1e6, 24, 300), 2.0, 40.0).hours == 24


def test_a_machine_that_never_sleeps_is_idle_all_the_rest():
    day = awake(Load(1000, 8, None), 3.6, 40.0)
    assert (day.answering, day.idle, day.loading, day.hours) == (1.0, 23.0, 0.0, 24.0)


def test_costs_of_1000_and_machines():
    assert of_1000(730.0, 1000) == pytest.approx(24.0) and floor_of_1000(3.6, 1.0) == 1.0
    assert [machines_for(n, 1000) for n in (1, 1000, 1001, 2500)] == [1, 1, 2, 3]


# ---- turning points


def test_machines_come_whole_and_each_turn_is_told():
    # a card for 584.00 answers 40,000 a day, a CPU for 73.00 answers 3,000: eight CPUs cost as much as the card, the ninth is needed from 24,001 on
    card, cpu = Curve(0.8, 40_000, 2.0, 40.0), Curve(0.1, 3000, 25.0, 40.0)
    found = turns({"cpu": cpu, "card": card})
    assert (found[0].answers_per_day, found[0].before, found[0].then) == (24_001, "cpu", "card")
    assert turns({"card": card, "cpu": cpu}) == found, "of equal costs none turns it, whichever lane stands first"
    # two cards cost as much as 16 CPUs, which answer 48,000: 13 2/3 of them do 41,000
    assert (found[1].answers_per_day, found[1].then) == (40_001, "cpu") and (found[2].answers_per_day, found[2].then) == (48_001, "card")


@pytest.mark.parametrize("sleep_s", [None, 300.0])
def test_no_turn_is_missed_and_none_made_up(sleep_s):
    curves = {"a": Curve(0.8, 900, 2.0, 40.0, 12, sleep_s), "b": Curve(0.31, 350, 30.0, 90.0, 12, sleep_s)}
    expected, now = [], cheapest(curves, 1)
    for a_day in range(2, 4000):
        if (then := cheapest(curves, a_day, now)) != now:
            expected.append((a_day, now, then))
            now = then
    found = [(turn.answers_per_day, turn.before, turn.then) for turn in turns(curves)]
    assert len(expected) >= 2 and found[: len(expected)] == expected


def test_lanes_that_cost_the_same_never_turn():
    curve = Curve(0.8, 900, 2.0, 40.0)
    assert turns({"a": curve, "b": curve}) == () and turns({"a": curve}) == ()


def test_answers_that_lie_far_apart_cost_no_less_than_if_all_were_as_quick_as_the_quickest():
    # 19 answers of 0.1 s and one of 100 s: two standard errors of their mean are twice the mean
    far, quick = (
        decided(asked(50, gpu=0.8, sleep_after_min=0), lane("cuda:nf4", *totals, first=0.1), lane("cpu:fp32"))
        for totals in ((0.1,) * 19 + (100.0,), (0.1,) * 20)
    )
    assert of(far, "cuda:nf4").cost_month_low == pytest.approx(of(quick, "cuda:nf4").cost_month) and of(quick, "cuda:nf4").cost_month > 0
