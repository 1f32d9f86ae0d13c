"""Right and wrong answers: by whole words and numbers, the flips between two lanes, and how much so many prompts can say of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from inference.record.quality import quality_markdown, quality_table
from inference.record.scores import Figures, Quality
from inference.series.expected import flips, is_right
from inference.series.paired import connor, detectable, mcnemar_exact, needed, recovery, resolution

# ---- right or not


def test_right_ignores_case_and_white_space():
    assert is_right(" Two  Biryani\n", "two biryani", "exact") and not is_right("two biryani please", "two biryani", "exact")
    assert is_right("So: two\nbiryani, please", "Two biryani", "contains")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("I know.", "no"), ("two biryanis", "biryani"), ("don't", "don"), ("हिन्दी", "हिन"),  # a part of a word
        ("That's 112.50", "12.5"), ("It is 12.50", "12.5"), ("0.5", "5"), (".5", "5"), ("12,5", "12"), ("1,200", "200"), ("1/2", "2"), ("12:30", "30"),
        ("it is -5 now", "5"), ("−3 °C", "3"),  # another number
        ("Oh no. Naan!", "no naan"), ("two naan, one dal", "two naan one dal"), ("ok", "!"), ("ok", "**"),  # what stands between counts
    ],
)  # fmt: skip
def test_a_part_of_a_word_or_number_is_not_the_word_or_number(answer, expected):
    assert not is_right(answer, expected, "contains")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("No, sorry.", "no"), ("yes", '"Yes."'), ("it\u2019s", "IT'S"), ("a well-known dish", "known"), ("C++ is", "c++"), ("ok!", "!"),
        ("It is $12.50.", "12.50"), ("12.50\u20ac", "12.50 \u20ac"), ("Rs.250", "250"), ("₹250", "250"), ("Rs250", "250"), ("5kg", "5"), ("50 %", "50%"),
        ("...5", "5"), ("Total:5.", "5"), ("3-5", "5"), ("it is −3", "-3"), ("\uff11\uff12個", "12"),
        ("一共是二十五元", "二十五"), ("ビリヤニを一つ", "ビリヤニ"), ("비빔밥을", "비빔밥"), ("हिन्दी में", "हिन्दी"), ("café", "CAFE\u0301"),
        ("two **naan** please", "two naan"), ("b\u200bc", "bc"), ("**", "**"),
    ],
)  # fmt: skip
def test_a_whole_word_or_number_is_found_whatever_stands_around_it(answer, expected):
    assert is_right(answer, expected, "contains")


@pytest.mark.parametrize("text", ["*a*", "Two  Biryani\n", "−.5", "ok!", "_", "ﬁn", "İ", "\u00ad"])
def test_what_is_exactly_right_is_contained_too(text):
    assert is_right(text, text, "exact") and is_right(text, text, "contains")


# ---- flips


@pytest.mark.parametrize(("lost", "won", "p"), [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 2 / 32), (8, 2, 2 * 56 / 1024), (3, 3, 1.0)])
def test_mcnemars_exact_p(lost, won, p):
    assert mcnemar_exact(lost, won) == pytest.approx(p)


def test_flips_list_both_directions():
    held = flips(["a", "b", "c", "x"], ["a", "x", "x", "d"], ["a", "b", "c", "d"], "exact")
    assert (held.right_reference, held.right_other) == (3, 2)
    assert (held.right_to_wrong, held.wrong_to_right) == ((1, 2), (3,)) and held.mcnemar_p == 1.0
    assert held.recovery == recovery(1, 2, 1) and held.resolution == resolution(4, 2, 1)


# ---- recovery


def test_the_interval_of_the_recovery_is_the_published_one():
    """Cavo et al. 2012, 59, 6, 16 and 80 patients: 0.8667 (0.7579 to 0.9910) in Fagerland, Lydersen and Laake's tables."""
    found = recovery(59, 16, 6)
    assert (found.ratio, found.low, found.high) == pytest.approx((0.8667, 0.7579, 0.9910), abs=5e-5)


def test_the_interval_covers_the_true_ratio_as_often_as_it_says():
    both, lost, won, neither = true = (0.86, 0.07, 0.03, 0.04)
    drawn = np.random.default_rng(0).multinomial(66, true, 4000)
    found = [recovery(*map(int, row[:3])) for row in drawn]
    assert 0.935 < np.mean([each.low <= (both + won) / (both + lost) <= each.high for each in found]) < 0.98


def test_recovery_without_flips_has_an_interval_and_without_right_answers_there_is_none():
    found = recovery(61, 0, 0)
    assert found.ratio == 1 and 0.9 < found.low < 1 < found.high < 1.1 and recovery(0, 0, 5) is None
    assert recovery(0, 5, 0).low == 0


# ---- how much so many prompts can show


def power(prompts: int, change: float, flipped: float, test) -> float:
    """The share of 4,000 made-up files in which `test` (lost, won) says that lanes so far apart differ."""
    lost, won = (flipped + change) / 2, (flipped - change) / 2
    drawn = np.random.default_rng(1).multinomial(prompts, (lost, won, 1 - lost - won), 4000)
    return float(np.mean([test(int(row[0]), int(row[1])) for row in drawn]))


def asymptotic(lost: int, won: int) -> bool:
    return lost + won > 0 and abs(lost - won) / math.sqrt(lost + won) > 1.959964


@pytest.mark.parametrize(("change", "flipped"), [(0.05, 0.1), (0.05, 0.2), (0.02, 0.05), (0.1, 0.3)])
def test_so_many_prompts_show_the_change_in_four_of_five_files(change, flipped):
    prompts = needed(change, flipped)
    assert power(prompts, change, flipped, asymptotic) == pytest.approx(0.8, abs=0.03)  # flips are whole numbers
    assert power(prompts, change, flipped, lambda lost, won: mcnemar_exact(lost, won) < 0.05) == pytest.approx(0.78, abs=0.05)


def test_connors_formula_gives_its_published_number():
    assert connor(0.4, 0.5) == pytest.approx(22.0, abs=0.05)  # shares 0.45 and 0.05
    assert needed(0.05, 0.0) == needed(0.05, 0.05) == 155, "there are no fewer flips than the change"


@pytest.mark.parametrize(("prompts", "flipped"), [(66, 0.03), (200, 0.1), (1000, 0.0)])
def test_the_change_that_shows_is_the_one_that_takes_so_many_prompts(prompts, flipped):
    change = detectable(prompts, flipped)
    assert needed(change, flipped) == pytest.approx(prompts, abs=1) and change >= 6 / prompts
    assert needed(change * 1.1, flipped) < prompts


def test_the_exact_test_needs_six_flips_whatever_the_formula_says():
    assert [mcnemar_exact(flips, 0) < 0.05 for flips in (5, 6)] == [False, True]
    assert detectable(5, 0.0) is None and detectable(6, 0.0) == 1.0 and detectable(10, 0.0) >= 0.6


def test_the_table_tells_recovery_and_what_would_show_as_estimated():
    scored = Figures(300, 0.5, 0.1, 0.4, 2.0, 3.0, 0.75, 0.1, 5.0, 6.0, 1.2, None)
    held = replace(flips(["a"] * 66, ["a"] * 65 + ["b"], ["a"] * 65 + ["b"], "exact"), right_to_wrong=(3,))
    found = Quality(scored, "cpu:fp32", "cpu:nf4", "prompts", 12, 1000, {"cpu:nf4": scored}, expected={"exact": held})
    for text in (quality_table(found), quality_markdown(found, "m").replace("\\", "")):
        assert "recovery: 101.5 % of the reference's right answers (95 % interval" in text
        assert "estimated, 66 prompts with an expected answer show a change of right answers from" in text
        assert "for 5 (estimated: 5 % two-sided, power 80 %)" in text
    none = flips(["x"] * 3, ["a"] * 3, ["a"] * 3, "exact")
    text = quality_table(replace(found, expected={"exact": none}))
    assert "recovery: n/a (the reference has none right)" in text and "3 prompts with an expected answer can show no change" in text
