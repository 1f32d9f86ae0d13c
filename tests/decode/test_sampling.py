"""One way from logits to an id for every path: by the inverse distribution's definition, greedy in the limit, never an id in silence."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from inference.decode.sampling import LEAST_TEMPERATURE, NO_ID, Forced, Sampler, checked, greedy, inverse_cdf, sampler_for
from inference.errors import InferenceError
from inference.events import ForcedRequest, Request

JUST_BELOW_ONE = 1 - 2.0**-53
NAN, INF = float("nan"), float("inf")


def row(*values):
    return torch.tensor([values])


def by_definition(logits, temperature, uniform):
    """The first id whose cumulative share, in exact fractions of FP64 exponentials, is above uniform times the whole."""
    values = logits[0].double()
    shares = [Fraction(share) for share in ((values - values.max()) / temperature).exp().tolist()]
    target, so_far = Fraction(uniform) * sum(shares), Fraction(0)
    for token, share in enumerate(shares):
        so_far += share
        if so_far > target:
            return token
    raise AssertionError


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.05, 0.7, 2.0])
def test_ids_are_those_of_the_definition_in_exact_fractions(dtype, temperature):
    logits = (4 * torch.randn(1, 1000, generator=torch.Generator().manual_seed(3))).to(dtype)
    for n in range(40):
        uniform = (n + 0.37) / 40
        assert int(inverse_cdf(logits, temperature, uniform)) == by_definition(logits, temperature, uniform)


def test_draws_follow_the_distribution():
    logits = torch.log(row(0.1, 0.2, 0.7))
    drawn = [int(inverse_cdf(logits, 1.0, (i + 0.5) / 1000)) for i in range(1000)]
    assert [drawn.count(i) for i in range(3)] == pytest.approx([100, 200, 700], abs=2)


def test_the_ends_of_the_draw_give_the_first_and_last_id_that_has_a_share():
    for logits in (row(-INF, 0.0, 1.0, -INF), row(-2000.0, 0.0, 1.0, -2000.0)):
        assert int(inverse_cdf(logits, 1.0, 0.0)) == 1
        assert int(inverse_cdf(logits, 1.0, JUST_BELOW_ONE)) == 2
        assert int(inverse_cdf(logits, 1.0, 1.0)) == 2
    many = torch.zeros(1, 262_208)
    assert int(inverse_cdf(many, 1.0, JUST_BELOW_ONE)) == 262_207


def test_ties_share_equally_and_a_draw_on_their_border_takes_the_next():
    logits = row(3.0, -INF, 3.0, 3.0, 3.0)
    assert [int(inverse_cdf(logits, 0.5, quarter / 4)) for quarter in range(4)] == [0, 2, 3, 4]


@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-300, 1e-31])
@pytest.mark.parametrize("values", [(0.0, 80.0, -1e30, 79.0), (-3.0, -2.0, -3.0), (1.0, 7.0, 7.0, 2.0), (-INF, 3e38, -3e38)])
def test_a_tiny_temperature_gives_the_greedy_answer(temperature, values):
    logits = row(*values)
    sampler = Sampler(temperature, 1)
    assert temperature < LEAST_TEMPERATURE and sampler.temperature == 0
    assert [int(sampler.choose(logits)) for _ in range(5)] == [values.index(max(values))] * 5
    assert values[int(inverse_cdf(logits, temperature, JUST_BELOW_ONE))] == max(values)


@pytest.mark.parametrize("values", [(NAN, NAN, NAN), (1.0, NAN, 2.0), (1.0, INF, 2.0), (INF, INF), (-INF, -INF)])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_logits_that_are_not_finite_are_marked_and_told_and_never_an_id(values, temperature):
    logits = row(*values)
    marked = inverse_cdf(logits, temperature, 0.5) if temperature else greedy(logits)
    assert marked.tolist() == [[NO_ID]]
    with pytest.raises(InferenceError, match="no finite numbers"):
        Sampler(temperature).choose(logits)
    with pytest.raises(InferenceError, match="no finite numbers"):
        checked(int(marked))


def test_masked_ids_are_no_fault():
    assert int(Sampler().choose(row(-INF, 1.0, -INF))) == int(Sampler(1.0).choose(row(-INF, 1.0, -INF))) == 1


def test_each_row_of_a_batch_is_by_itself():
    logits = torch.tensor([[0.0, 9.0, 0.0], [NAN, 0.0, 0.0], [9.0, 0.0, 0.0]])
    assert greedy(logits).tolist() == inverse_cdf(logits, 0.1, 0.5).tolist() == [[1], [NO_ID], [0]]


def test_numbers_held_in_tensors_give_the_same_and_nothing_is_read_on_the_host():
    logits = torch.randn(1, 5000, generator=torch.Generator().manual_seed(1))
    temperature, uniform = torch.tensor([0.7], dtype=torch.float64), torch.tensor([0.123456789], dtype=torch.float64)
    assert torch.equal(inverse_cdf(logits, temperature, uniform), inverse_cdf(logits, 0.7, 0.123456789))
    with torch.device("meta"):  # whatever looked at a value, or made a shape of one, would raise here
        on_meta = inverse_cdf(torch.empty(1, 5000), torch.empty(1, dtype=torch.float64), torch.empty(1, dtype=torch.float64))
        assert on_meta.shape == greedy(torch.empty(1, 5000)).shape == (1, 1)


def test_a_run_taken_up_later_goes_on_with_the_same_draws():
    request = Request("hi", temperature=1.0, seed=5)
    first, later = sampler_for(request), sampler_for(request, 3)
    assert [first.uniform() for _ in range(4)][-1] == later.uniform()
    assert sampler_for(Request("hi", temperature=1e-310), 3).temperature == 0


def test_a_forced_answer_s_logits_are_each_step_s_own_though_a_decoder_overwrites_them(tmp_path):
    """`bench --positions` once held the last step's against all of plain's, on a CPU."""
    sampler, logits = Forced(ForcedRequest("hi", ids=(1, 0), logits_file=str(tmp_path / "logits.npy"))), torch.zeros(1, 2)
    for step in (1.0, 2.0):
        sampler.choose(logits.fill_(step))
    assert np.load(tmp_path / "logits.npy").tolist() == [[1.0, 1.0], [2.0, 2.0]]
