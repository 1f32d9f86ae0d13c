"""Figures from hand-made numbers: means and errors, windows, the guard, forks, expected answers, McNemar."""

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from inference.errors import InferenceError
from inference.events import decode, encode
from inference.host.child import ROOT
from inference.quality.figures import Positions, Span, check_took_hold, figures, windows
from inference.quality.fork import find_fork
from inference.record.quality import USUAL
from inference.record.verdict import first_difference
from inference.score_events import Scored, ScoreRequest

POSITIONS = Positions(
    np.array([0.0, 0.1, 0.2, 0.5]), np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.1, 2.3, 2.9, 4.5]), np.array([True, True, False, True])
)  # fmt: skip


def scored(ids, logprobs=(-0.1, -2.0, -3.0, -4.0, -5.0), pieces=("He", "llo", " wor", "ld")):
    """A score whose likeliest token is always the text's own; its others are 90 to 93."""
    tops = [(token, 90, 91, 92, 93) for token in ids]
    return Scored(
        "r", tuple(ids), (0.5,) * len(ids), tuple(ids), sum(tops, ()), tuple(logprobs) * len(ids), pieces=tuple(pieces[: len(ids)]),
        top_pieces=("own", "b", "c", "d", "e") * len(ids),
    )  # fmt: skip


# ---- figures


def test_figures_of_four_positions():
    found = figures(POSITIONS)
    assert (found.positions, found.kld_max, found.top1_agreement) == (4, 0.5, 0.75)
    assert found.kld_mean == pytest.approx(0.2) and found.kld_median == pytest.approx(0.15)
    assert found.kld_se == pytest.approx(math.sqrt((0.04 + 0.01 + 0 + 0.09) / 3) / 2)
    assert found.kld_p99 == pytest.approx(0.2 + 0.97 * 0.3)
    assert found.top1_se == pytest.approx(math.sqrt(0.75 * 0.25 / 4))
    assert found.ppl_ratio == pytest.approx(math.exp(0.2)) and found.ppl_other / found.ppl_reference == pytest.approx(found.ppl_ratio)
    moved = [0.1, 0.3, -0.1, 0.5]
    assert found.ppl_ratio_se == pytest.approx(math.exp(0.2) * np.std(moved, ddof=1) / 2)
    assert not found.enough


def test_one_position_has_no_error_and_none_has_no_figures():
    one = figures(Positions(*(values[1:2] for values in vars(POSITIONS).values())))
    assert one.kld_se is None and one.ppl_ratio_se is None and one.top1_se == 0
    with pytest.raises(InferenceError, match="No position"):
        figures(Positions(*(values[:0] for values in vars(POSITIONS).values())))


def test_two_positions_have_an_error():
    two = figures(Positions(*(values[1:3] for values in vars(POSITIONS).values())))
    assert two.kld_se == pytest.approx(0.05) and two.ppl_ratio_se == pytest.approx(math.exp(0.1) * 0.2)


def test_positions_are_those_of_both_lanes_piece_after_piece():
    reference, other = scored((7, 8)), replace(scored((7, 9)), kld=(0.1, 0.2), nll=(0.6, 0.7))
    found = Positions.of([(reference, other), (scored((5,)), replace(scored((5,)), kld=(0.4,), nll=(0.9,)))])
    assert found.kld.tolist() == [0.1, 0.2, 0.4] and found.nll_reference.tolist() == [0.5] * 3 and found.nll_other.tolist() == [0.6, 0.7, 0.9]
    assert found.same_best.tolist() == [True, False, True] and found.kld.dtype == found.nll_reference.dtype == found.nll_other.dtype == np.float64


@pytest.mark.parametrize(("four_bit", "reference", "fires"), [(True, False, True), (False, False, False), (True, True, False)])
def test_exact_zeros_are_a_fault_only_between_4_bit_and_full_precision(four_bit, reference, fires):
    zeros = Positions(np.zeros(3), np.ones(3), np.ones(3), np.ones(3, bool))
    check_took_hold(POSITIONS, "cpu:nf4", four_bit, reference)
    if fires:
        with pytest.raises(InferenceError, match="did not take hold"):
            check_took_hold(zeros, "cpu:nf4", four_bit, reference)
    else:
        check_took_hold(zeros, "cpu:nf4", four_bit, reference)


# ---- windows


def test_windows_begin_with_the_start_mark_and_each_text_token_is_scored_once():
    spans = windows(range(10, 35), 1, length=11)
    assert [span.ids[0] for span in spans] == [1, 1, 1] and {span.first for span in spans} == {1}
    assert [token for span in spans for token in span.ids[1:]] == list(range(10, 35))


def test_without_a_start_mark_each_windows_first_token_is_context_only():
    spans = windows(range(10, 31), None, length=10)
    assert [span.ids for span in spans] == [tuple(range(10, 20)), tuple(range(20, 30))], "a rest of one token has nothing to score"
    assert windows([1, 5, 6], 1)[0].ids == (1, 5, 6), "a start mark that is there is not doubled"


def test_a_text_of_nothing_is_refused():
    with pytest.raises(InferenceError, match="too short"):
        windows([7], None)


def test_a_long_answer_is_scored_in_parts_that_cover_it():
    parts = Span(tuple(range(1300)), 100).parts()
    assert parts == [(100, 612), (612, 1124), (1124, 1300)]


@pytest.mark.parametrize("request_", [ScoreRequest(), ScoreRequest((1, 2), 0, 2), ScoreRequest((1, 2), 2, 2), ScoreRequest(tuple(range(600)), 1, 600)])
def test_a_request_that_no_lane_could_score_is_refused(request_):
    with pytest.raises(InferenceError):
        request_.check()


def test_a_score_crosses_the_boundary_whole():
    event = scored([5, 6])
    assert decode(encode(event)) == event


# ---- forks


def test_the_fork_has_both_lists_the_margin_and_both_continuations():
    fork = find_fork(scored([5, 6, 7, 8]), scored([5, 6, 7, 8]), [5, 6, 3], ("Hello world", "Hello you"))
    assert (fork.index, fork.before, fork.reference, fork.other) == (2, "Hello", " world", " you")
    assert fork.margin == pytest.approx(1.9) and fork.near_tie is False and (fork.reference_id, fork.other_id) == (7, 3)
    assert [choice.id for choice in fork.top_reference] == [7, 90, 91, 92, 93] and fork.top_other[1].text == "b"


def test_a_margin_under_three_hundredths_is_a_near_tie():
    close = scored([5, 6], logprobs=(-0.70, -0.72, -3.0, -4.0, -5.0))
    assert find_fork(close, close, [5, 9], ("Hello", "Hexx")).near_tie is True


def test_equal_answers_have_no_fork_and_one_that_goes_on_has_no_margin():
    both = scored([5, 6])
    assert find_fork(both, both, [5, 6], ("Hello", "Hello")) is None
    fork = find_fork(both, both, [5, 6, 7], ("Hello", "Hello world"))
    assert fork.index == 2 and fork.margin is None and fork.reference_id is None and fork.other == " world"
    assert first_difference([5, 6], [5]) == 1


def test_pieces_of_one_answer_join():
    joined = Scored.joined([scored([5, 6]), scored([7, 8])])
    assert joined.ids == (5, 6, 7, 8) and len(joined.nll) == 4 and joined.top(2)[0] == (7, -0.1, "own")


def test_figures_need_no_torch():
    code = "import inference.quality.prompts, inference.quality.answers, inference.cli.quality, ui.fork.viewer, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_the_docs_have_the_scale_with_its_commands():
    told = (ROOT / "docs" / "quality.md").read_text("utf-8")
    for usual in USUAL:
        row = next(line for line in told.splitlines() if usual.command in line and line.startswith("|"))
        assert f"{usual.kld_mean:.2f} nat" in row and f"{100 * usual.top1_agreement:.0f} %" in row and f"{usual.ppl_ratio:.2f}" in row
