"""The figures of a server's answer come from counted tokens, whatever the pieces that they came in."""

from __future__ import annotations

import random

import pytest

from inference.endpoint.counts import timings
from inference.timing import timings_of


def test_a_piece_a_token_gives_the_figures_of_any_lane():
    arrivals = [0.5 + 0.1 * i for i in range(20)]
    found, ours = timings(arrivals, 20), timings_of(0, 20, arrivals[0], arrivals[-1])
    assert (found.ttft_s, found.total_s, found.prefill_tps) == (ours.ttft_s, ours.total_s, None)
    assert found.tpot_s == pytest.approx(ours.tpot_s) and found.decode_tps == pytest.approx(10)


@pytest.mark.parametrize("a_piece", [2, 5, 10])
def test_several_tokens_a_piece_make_no_other_speed(a_piece):
    tokens = [0.5 + 0.1 * i for i in range(100)]  # when each was made; a piece comes with its last one
    assert timings(tokens[a_piece - 1 :: a_piece], 100).decode_tps == pytest.approx(10)


def test_pieces_of_any_sizes_keep_the_speed_within_what_one_piece_holds():
    rng = random.Random(0)
    for _ in range(50):
        ends = sorted(rng.sample(range(1, 199), 40)) + [199]
        assert timings([0.1 * end for end in ends], 200).decode_tps == pytest.approx(10, rel=0.15)


@pytest.mark.parametrize(("arrivals", "tokens"), [([], None), ([0.5], 12), ([0.5, 0.9], None), ([0.5, 0.9], 1), ([0.5, 0.5], 8)])
def test_there_is_no_speed_where_none_is_known(arrivals, tokens):
    found = timings(arrivals, tokens)
    assert found.decode_tps is None and found.tpot_s is None and found.total_s == (arrivals[-1] if arrivals else None)


def test_more_pieces_than_tokens_count_as_one_each():
    assert timings([0.0, 0.1, 0.2, 0.3, 0.4], 3).tpot_s == pytest.approx(0.2)
