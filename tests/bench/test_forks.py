"""The rule of equal tokens: what our answer is held against, and which forks rounding explains and which it does not."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest

from inference.bench import forks
from inference.bench.forks import Fork, Judge
from inference.errors import InferenceError
from inference.events import Request
from inference.settings import Settings

REQUEST = Request("hi")
RIGHT, OURS = (0, 1, 2, 3), (0, 1, 0, 3)  # they part at index 2
EXACT = np.zeros((4, 6), np.float32)


class FakeSide:
    """A side that gives set logits for any forced answer, and answers with set ids."""

    def __init__(self, lane, logits=EXACT, ids=RIGHT, all_at_once=2, compute_dtype="float32"):
        self.lane, self._logits, self.ids, self.all_at_once = lane, logits, ids, all_at_once
        self.facts, self.asked = SimpleNamespace(compute_dtype=compute_dtype), 0

    def ask(self, request):
        self.asked += 1
        return SimpleNamespace(token_ids=self.ids)

    def logits(self, request, ids):
        if isinstance(self._logits, Exception):
            raise self._logits
        return self._logits[: len(ids)]

    def best_of_all_at_once(self, request, ids, index):
        assert (ids, index) == (RIGHT, 2)
        return self.all_at_once


def logits(*there, noise=0.0):
    """Noise everywhere, and at index 2 the numbers given."""
    found = EXACT + noise * np.random.default_rng(0).standard_normal(EXACT.shape).astype(np.float32)
    found[2, : len(there)] = there
    return found


def judged(plain, ours, exact=None):
    with ExitStack() as stack:
        judge = Judge(Settings(lanes=(plain.lane,)), plain, ours, stack)
        judge._in_fp32 = exact or FakeSide(plain.lane, InferenceError("must not be made"))
        return judge.fork(REQUEST, RIGHT, OURS)


def test_equal_answers_have_no_fork_and_need_no_logits():
    with ExitStack() as stack:
        assert Judge(Settings(), FakeSide("cuda:nf4", None), FakeSide("cuda:nf4", None), stack).fork(REQUEST, RIGHT, RIGHT) is None


@pytest.mark.parametrize(
    ("margin", "all_at_once", "rounding"), [(1e-4, 0, True), (1e-4, 2, False), (3e-4, 0, False)], ids=["rounding", "plain's ways agree", "too wide a margin"]
)
def test_in_fp32_a_fork_needs_a_tiny_margin_at_which_plain_s_own_ways_part(margin, all_at_once, rounding):
    plain = FakeSide("cpu:fp32", logits(5.0, 0, 5.0 + margin), all_at_once=all_at_once)
    fork = judged(plain, FakeSide("cpu:fp32", logits(5.5, 0, 5.0)))
    assert (fork.index, fork.rounding, fork.plain_ways_part) == (2, rounding, all_at_once != 2)
    assert fork.margin == pytest.approx(margin, rel=0.01) and fork.ways_difference == pytest.approx(0.5)
    assert fork.distance_ours is None


def test_in_16_bits_a_fork_by_rounding_has_a_small_margin_and_logits_as_near_as_plain_s():
    near = logits(5.0, 0, 5.1, noise=0.1)
    fork = judged(FakeSide("cuda:nf4", near), FakeSide("cuda:nf4", logits(5.2, 0, 5.0, noise=-0.1)), FakeSide("cuda:nf4", logits(5.0, 0, 5.0)))
    assert (
        fork.rounding and fork.margin == pytest.approx(0.1, rel=1e-4) and fork.ways_difference == pytest.approx(0.2, rel=1e-4) and fork.plain_ways_part is None
    )
    assert 0 < fork.distance_ours < 1.2 * fork.distance_plain


def test_a_way_that_is_further_off_is_wrong_however_small_the_margin():
    exact = FakeSide("cuda:nf4", logits(5.0, 0, 5.0))
    plain, ours = FakeSide("cuda:nf4", logits(5.0, 0, 5.001, noise=0.1)), FakeSide("cuda:nf4", logits(9.0, 0, 5.0, noise=0.3))
    fork = judged(plain, ours, exact)
    assert fork.margin < fork.ways_difference and fork.distance_ours > 1.2 * fork.distance_plain and fork.rounding is False


def test_a_wide_margin_is_wrong_however_near_the_logits_are_elsewhere():
    plain, exact = FakeSide("cuda:bf16", logits(4.0, 0, 5.0, noise=0.1)), FakeSide("cuda:bf16", logits(4.0, 0, 5.0))
    fork = judged(plain, FakeSide("cuda:bf16", logits(4.0, 0, 5.1, noise=0.05)), exact)
    assert fork.margin > fork.ways_difference and fork.distance_ours < fork.distance_plain and fork.rounding is False


def test_the_distances_are_root_mean_squares_over_the_whole_answer():
    exact, far = np.zeros((4, 6), np.float32), np.full((4, 6), 0.5, np.float32)
    far[0] = 0
    assert forks._distance(far, exact) == pytest.approx(np.sqrt(0.75) * 0.5)


def test_where_fp32_does_not_fit_the_fork_is_told_and_not_judged():
    fork = judged(FakeSide("cuda:nf4", logits(5.0, 0, 5.1)), FakeSide("cuda:nf4", logits(5.2, 0, 5.0)), FakeSide("cuda:nf4", InferenceError("No room.")))
    assert fork.rounding is None and fork.why_not == "No room." and fork.margin > 0


@pytest.mark.parametrize(
    ("lane", "computed", "against"),
    [("cpu:fp32", "float32", "plain"), ("cpu:nf4", "float32", "plain"), ("cpu:nf4", "bfloat16", "dequantized"), ("cuda:nf4", "bfloat16", "plain")],
)
def test_tokens_are_held_against_plain_with_our_lane_s_arithmetic(lane, computed, against):
    plain, exact = FakeSide(lane, ids=(1, 1), compute_dtype=computed), FakeSide(lane, ids=(2, 2))
    with ExitStack() as stack:
        judge = Judge(Settings(lanes=(lane,)), plain, FakeSide(lane), stack)
        judge._in_fp32 = exact
        assert judge.right(REQUEST, plain_ids=(3, 3)) == ((3, 3) if against == "plain" else (2, 2))
        assert judge.right(REQUEST) == ((1, 1) if against == "plain" else (2, 2))
        assert judge.against == (forks.PLAIN if against == "plain" else forks.DEQUANTIZED)


def test_4_bits_on_the_cpu_are_judged_in_fp32_by_the_dequantized_model_s_own_ways():
    plain, exact = FakeSide("cpu:nf4", InferenceError("asked"), compute_dtype="bfloat16"), FakeSide("cpu:nf4", logits(5.0, 0, 5.00001), all_at_once=0)
    fork = judged(plain, FakeSide("cpu:nf4", logits(5.00001, 0, 5.0)), exact)
    assert fork.rounding and fork.plain_ways_part


@pytest.mark.parametrize("ours", [(*RIGHT, 4), RIGHT[:2]], ids=["goes on", "ends early"])
def test_an_answer_that_goes_on_where_the_right_one_ends_or_ends_before_it_is_no_rounding(ours):
    plain, exact = FakeSide("cuda:nf4", logits(noise=0.1)), FakeSide("cuda:nf4", logits())
    with ExitStack() as stack:
        judge = Judge(Settings(), plain, FakeSide("cuda:nf4", logits(noise=-0.1)), stack)
        judge._in_fp32 = exact
        fork = judge.fork(REQUEST, RIGHT, ours)
    assert fork.index == min(len(ours), 3) and fork.rounding is False and fork.distance_ours <= 1.2 * fork.distance_plain


def test_a_fork_is_told_in_words_with_all_its_numbers():
    from inference.bench.table import fork_words

    told = fork_words(vars(Fork(4, 0.06, 0.32, distance_ours=0.11, distance_plain=0.12, rounding=True)))
    assert told == "5, a rounding fork (margin 0.06, the ways' logits there 0.32 apart, from the same weights in FP32 ours are 0.11 away, plain's 0.12)"
    assert "NOT a rounding fork" in fork_words(vars(Fork(4, 1.0, 0.32, plain_ways_part=False, rounding=False)))
    assert "not judged: No room." in fork_words(vars(Fork(4, 1.0, 0.32, why_not="No room.")))
