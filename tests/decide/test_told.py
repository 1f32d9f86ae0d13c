"""What is told of a decision: what was asked as it was given, the answers a day at which it turns, and those so few that waking breaks a limit."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.support.decisions import asked, decided, lane, of

CARD, CPU = lane("cuda:nf4", 1.0, 1.1, 1.2, first=0.1), lane("cpu:fp32", 5.0, 5.5, 6.0, first=0.9)
SCORED = replace(CARD, agreement=0.99, agreement_se=0.01, positions=500)


def told(parts):
    return " ".join(parts)


def test_what_was_asked_is_never_rounded_to_another():
    found = decided(asked(gpu=0.1254, cpu=0.0333333, max_total_s=16.45, min_agreement=0.93125), SCORED, CPU)
    words = told(rule.words for each in found.candidates for rule in each.rules)
    assert "the limit is 16.45 s" in words and "(limit 16.45 s)" in words and "at least 93.125 % is asked" in words
    prices = [figure.words for each in found.candidates for figure in each.figures if figure.title == "Price"]
    assert prices == ["$0.1254 an hour", "$0.0333333 an hour"] and "(now $0.1254)" in told(found.turned_by)


def test_where_one_lane_costs_nothing_the_sentence_of_its_price_is_whole():
    assert "Price: cuda:nf4 would be the dearer one over $0.10 an hour (now $0)." in decided(asked(gpu=0.0, cpu=0.1), CARD, CPU).turned_by


def test_no_turn_is_told_of_a_lane_that_keeps_the_limits_at_no_number_of_answers():
    once = replace(CARD, ttft_s=(2.5,), total_s=(2.6,))  # one run over the limit: not out, and kept by nobody
    found = decided(asked(gpu=0.15, cpu=0.1, max_first_token_s=1.5), once, CPU)
    assert of(found, "cuda:nf4").capacity_per_day is None and of(found, "cuda:nf4").out is None
    assert found.turns == () and "is the cheaper one" not in told(found.turned_by)


def test_under_a_turn_another_one_may_stand_and_then_both_ends_are_told():
    # the card takes 94.90 dollars a machine, which gives what five machines of cores give, at 29.20 each
    prices = {"gpu": 0.13, "cpu": 0.04}
    turns = decided(asked(**prices), CARD, CPU).turns
    first, second, third = (turn.answers_per_day for turn in turns[:3])
    assert f"Answers a day: under {first:,.0f} cpu:fp32 is the cheaper one." in decided(asked(second - 1, **prices), CARD, CPU).turned_by
    between = decided(asked(third, **prices), CARD, CPU)
    assert f"Answers a day: from {second:,.0f} to {third - 1:,.0f} cpu:fp32 is the cheaper one." in between.turned_by
    for answers, cheaper in ((second - 1, "cuda:nf4"), (second, "cpu:fp32"), (third - 1, "cpu:fp32"), (third, "cuda:nf4")):
        found = decided(asked(answers, **prices), CARD, CPU)
        assert min(found.candidates, key=lambda each: each.cost_month).lane == cheaper


def test_so_few_answers_that_waking_breaks_a_limit_are_told():
    slow, quick = replace(CARD, load_s=100.0), replace(CPU, load_s=5.0)
    many = decided(asked(20_000, gpu=0.3, cpu=0.33, sleep_after_min=1, max_total_s=20.0), slow, quick)
    (told_,) = [words for words in many.turned_by if "wake the machine" in words]
    fewest = float(re.search(r"under about ([\d,]+) more", told_).group(1).replace(",", ""))
    assert told_.endswith("the limit on time breaks, estimated: cuda:nf4.") and "cpu:fp32" not in told_
    for answers, out in ((0.8 * fewest, True), (1.2 * fewest, False)):
        few = decided(replace(many.asked, answers_per_day=answers), slow, quick)
        assert (of(few, "cuda:nf4").out is not None) == out
        assert any(f"from about {fewest:,.0f} on fewer of the visitors wake" in words for words in few.turned_by) == out
    assert all(turn.answers_per_day >= fewest for turn in many.turns), "below, the one lane can't be chosen at any cost"


def test_little_is_never_told_as_nothing():
    rarely = decided(asked(0.001, sleep_after_min=5), CARD, CPU)
    hours = [figure for each in rarely.candidates for figure in each.figures if figure.title.startswith("Hours")]
    assert (
        [each.words for each in hours] == ["0.000095", "0.000096"]
        and "in 0.001 loads" in hours[0].source
        and " 0.00 " not in told(each.source for each in hours)
    )
    just = decided(asked(max_first_token_s=0.0999), CARD, CPU)
    assert of(just, "cuda:nf4").out.endswith("0.10 ms too long, less than 1 % of the limit.")


def test_from_the_agreement_that_is_told_on_it_is_not_sure():
    scored = replace(SCORED, agreement=0.97, agreement_se=0.0049876)  # sure up to 96.00248 %
    found = decided(asked(gpu=0.05, min_agreement=0.95), scored, CPU)
    assert "Same first choice: from 96.01 % asked on cuda:nf4 is not sure to keep it." in found.turned_by
    assert decided(asked(gpu=0.05, min_agreement=0.9601), scored, CPU).chosen is None and decided(asked(gpu=0.05, min_agreement=0.96), scored, CPU).chosen
