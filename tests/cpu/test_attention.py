"""Attention over a cache in tiles (`attention.h`), as built for this processor, for AVX2 and for any, against FP64."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.compiled import BUILDS, compiled, long, pointer

SOURCE = Path(__file__).parents[1] / "support" / "attention.c"
CLOSE = 1e-12  # squared error over squared answers
KEYS, MOST_ROWS = 300, 24  # past two blocks of keys, and as many rows as go over the keys together
DECODE = {f"{rows} heads at {at}": [at] * rows for rows, at in ((1, 0), (3, 15), (7, 127), (24, 128), (5, 299))}
PREFILL = {
    f"{rows} rows of {heads} heads from {at}": [at + i // heads for i in range(rows * heads)]
    for rows, heads, at in ((24, 1, 0), (4, 5, 125), (2, 12, 298), (3, 7, 15))
}


@pytest.fixture(scope="module", params=BUILDS)
def lib(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    yield compiled(SOURCE, request.param, tmp_path_factory.mktemp("attention"))


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def cache(columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of scores that differ, by some large ones that come late."""
    keys, values = numbers(1, KEYS, columns), numbers(2, KEYS, columns)
    keys[::37] *= 3
    return keys, values


def ours(lib: ctypes.CDLL, q: torch.Tensor, at: list[int], window: int, cap: float, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    out, low = torch.empty_like(q), max(0, min(at) - window + 1) // 16 * 16 if window else 0
    places = (ctypes.c_long * len(at))(*at)
    lib.answer(long(len(at)), long(q.shape[1]), pointer(q), places, long(window), ctypes.c_float(cap), pointer(keys), pointer(values),
               long(low), long(max(at) + 1), pointer(out))  # fmt: skip
    return out


def truth(q: torch.Tensor, at: list[int], window: int, cap: float, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    scores, position, last = q.double() @ keys.double().T, torch.arange(KEYS), torch.tensor(at)[:, None]
    scores = cap * torch.tanh(scores / cap) if cap else scores
    seen = (position <= last) & (position > last - (window or KEYS))
    return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ values.double()


@pytest.mark.parametrize("at", (DECODE | PREFILL).values(), ids=(DECODE | PREFILL).keys())
def test_answers_are_those_of_fp64_in_decode_and_prefill_with_windows_and_caps(lib, at):
    for columns in (16, 48, 80, 256):
        (keys, values), q = cache(columns), numbers(3, len(at), columns) / columns**0.5
        for window in (0, 1, 13, 129):
            for cap in (0.0, 2.0, 50.0):
                exact = truth(q, at, window, cap, keys, values)
                found = ours(lib, q, at, window, cap, keys, values)
                assert (found - exact).square().sum() <= CLOSE * exact.square().sum(), (columns, window, cap)


def test_scores_that_are_far_apart_or_far_from_0_are_right(lib):
    keys, values = cache(32)
    for times in (30.0, 1e4, -1e4, 1e-30):
        q = numbers(3, 6, 32) * times
        exact = truth(q, [299] * 6, 0, 0.0, keys, values)
        # of large scores the rounding itself is what differs
        close = CLOSE * max(1.0, times**2)
        assert (ours(lib, q, [299] * 6, 0, 0.0, keys, values) - exact).square().sum() <= close * exact.square().sum()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_shows_where_it_is_seen_and_nowhere_else(lib, bad):
    """A score that is no number was given no weight, and the answer looked sound."""
    keys, values = cache(48)
    q, at = numbers(3, 12, 48), [i // 2 + 140 for i in range(12)]
    keys[142, 5] = bad
    found = ours(lib, q, at, 0, 0.0, keys, values).isfinite().all(-1)
    hidden = [position < 142 or (bad == torch.inf and bool(q[row, 5] < 0)) for row, position in enumerate(at)]  # e^-inf is 0
    assert found.tolist() == hidden
    assert ours(lib, q, [299] * 12, 20, 0.0, keys, values).isfinite().all()


@pytest.mark.parametrize(("name", "low", "high"), [("tanh_many", -20, 20), ("tanh_many", -0.7, 0.7), ("exp_many", -87, 88)])
def test_our_tanh_and_exp_are_within_some_last_places(lib, name, low, high):
    x = torch.linspace(low, high, 4096)
    y, exact = torch.empty(4096), getattr(torch, name.removesuffix("_many"))(x.double())
    getattr(lib, name)(pointer(x), long(4096), pointer(y))
    assert (y - exact).abs().div(exact.abs().clamp_min(1e-30)).max() < 4 * torch.finfo(torch.float32).eps
