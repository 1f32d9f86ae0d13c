"""Each function of `kernels.c`, called directly on any processor, against the same formula in FP64 by numpy alone."""

from __future__ import annotations

import bitsandbytes as bnb
import numpy as np
import pytest
import torch
from bitsandbytes.functional import quantize_4bit

from tests.support.four_bit import four_bit_layer

ROUNDING = 1e-6  # of the sum of the terms' sizes: what FP32 sums in any order keep to


def numbers(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def wide(tensor):
    return tensor.double().numpy()


def check_product(found, x, weight, bias):
    """`found` against x w' + b, each number within what rounding does to a sum of such terms."""
    x, weight = x.reshape(-1, x.shape[-1]), np.asarray(weight)
    exact, terms = x @ weight.T, np.abs(x) @ np.abs(weight).T
    if bias is not None:
        exact, terms = exact + wide(bias), terms + np.abs(wide(bias))
    assert found.dtype == torch.float32
    assert (np.abs(wide(found).reshape(exact.shape) - exact) <= ROUNDING * terms + 1e-12).all()


# 1 row: the product of a decode step; 2 to 40: less than a panel, just one, and several
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 16, 17, 40])
@pytest.mark.parametrize("shape", [(5, 8), (64, 72), (130, 1608)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_products_of_fp32_and_16_bit_matrices(library, dtype, shape, rows):
    x, weight, bias = numbers(rows, 1, rows, shape[1]), numbers(1, *shape).to(dtype), numbers(2, shape[0])
    for added in (bias, None):
        found = library.product(x, weight, added)
        assert found.shape == (1, rows, shape[0])
        check_product(found, wide(x), wide(weight.float()), added)


def test_every_16_bit_value_is_read_right(library):
    for dtype in (torch.bfloat16, torch.float16):
        every = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype)
        every = every[torch.isfinite(every)]
        weight = every[: len(every) // 8 * 8].view(-1, 8)
        one_hot = torch.eye(8)
        for i in range(8):
            assert torch.equal(library.product(one_hot[i : i + 1], weight, None)[0], weight[:, i].float())
        assert torch.equal(library.product(one_hot, weight, None), weight.float().T)


def unpacked(layer: bnb.nn.Linear4bit) -> np.ndarray:
    """The matrix that a 4-bit layer holds, by its definition: the level of each half byte, high half first, times its block's scale."""
    state, packed = layer.weight.quant_state, layer.weight.data.numpy().reshape(-1)
    halves = np.stack([packed >> 4, packed & 15], -1).reshape(-1)
    return (wide(state.code)[halves] * np.repeat(wide(state.absmax), state.blocksize)).reshape(tuple(state.shape))


@pytest.mark.parametrize("rows", [1, 2, 16, 23])
@pytest.mark.parametrize("shape", [(5, 64), (70, 192), (33, 1024)])
def test_products_of_a_bitsandbytes_layer_s_packed_weights(library, shape, rows):
    weight, bias = numbers(4, *shape), numbers(5, shape[0])
    layer, x = four_bit_layer(weight, bias), numbers(rows, 1, rows, shape[1])
    state = layer.weight.quant_state
    held = unpacked(layer)
    assert np.abs(held - wide(weight)).max() < 0.16 * np.abs(wide(weight)).max(), "the layer holds the matrix that it was given"
    levels = library.levels(state.code)
    for added in (bias, None):
        check_product(library.nf4_product(x, layer.weight, state.absmax, levels, shape[0], state.blocksize, added), wide(x), held, added)


def test_products_of_larger_blocks(library):
    codes, state = quantize_4bit(numbers(6, 12, 512), blocksize=256, quant_type="nf4", compress_statistics=False)
    halves = np.stack([codes.numpy().reshape(-1) >> 4, codes.numpy().reshape(-1) & 15], -1).reshape(-1)
    held = (wide(state.code)[halves] * np.repeat(wide(state.absmax), 256)).reshape(12, 512)
    for rows in (1, 9):
        x = numbers(rows, rows, 512)
        check_product(library.nf4_product(x, codes, state.absmax, library.levels(state.code), 12, 256, None), wide(x), held, None)


@pytest.mark.parametrize("eps", [1e-6, 1e-2])
@pytest.mark.parametrize("plus", [0.0, 1.0])
@pytest.mark.parametrize("width", [8, 24, 576])
def test_the_norm_with_its_eps_and_offset(library, width, plus, eps):
    x, weight = numbers(7, 3, 2, width) * 0.1, numbers(8, width)
    x[0, 0] *= 1e-3  # where eps is most of it
    exact = wide(x) / np.sqrt((wide(x) ** 2).mean(-1, keepdims=True) + eps) * (wide(weight) + plus)
    assert np.abs(wide(library.norm(x, weight, plus, eps)) - exact).max() < 2e-6 * np.abs(exact).max()
    assert (np.abs(wide(library.norm(x, weight, plus, eps)) - exact) <= 2e-6 * np.abs(exact) + 1e-6 * np.abs(wide(weight) + plus)).all()


@pytest.mark.parametrize(("rows", "heads", "width"), [(1, 3, 16), (5, 2, 64), (9, 4, 256)])
def test_the_rotation_of_queries_as_attention_lays_them_out(library, rows, heads, width):
    x = numbers(9, 1, rows, heads, width).transpose(1, 2)
    cos, sin = numbers(10, 1, rows, width), numbers(11, 1, rows, width)  # of no angle: each of the four products is held for itself
    left, right = np.split(wide(x), 2, -1)
    exact = wide(x) * wide(cos)[:, None] + np.concatenate([-right, left], -1) * wide(sin)[:, None]
    found = library.rotate(x, cos, sin)
    assert found.shape == x.shape and np.abs(wide(found) - exact).max() < 1e-6 * np.abs(exact).max()


@pytest.mark.parametrize("count", [8, 1000, 40_000])
def test_the_gated_activation(library, count):
    gate, up = numbers(12, count) * 5, numbers(13, count)
    exact = wide(gate) / (1 + np.exp(-wide(gate))) * wide(up)
    assert (np.abs(wide(library.silu_times(gate, up)) - exact) <= 1e-6 * np.abs(exact) + 1e-12).all()


def test_the_gate_holds_from_minus_to_plus_infinity(library):
    gate = torch.tensor([-1e4, -100.0, -88.0, -10.0, 0.0, 10.0, 100.0, 1e4])
    up = torch.full((8,), 2.0)
    assert torch.allclose(library.silu_times(gate, up), torch.nn.functional.silu(gate.double()).float() * up, rtol=1e-6, atol=1e-30)


def exact_attention(q, k, v, scaling):
    """Row i of the queries sees the keys up to its own place, the last row all of them; heads share the groups of keys in order."""
    _, heads, rows, _ = q.shape
    keys, shared = k.shape[2], heads // k.shape[1]
    k, v = (np.repeat(wide(t)[0], shared, 0) for t in (k, v))
    scores = wide(q)[0] @ k.transpose(0, 2, 1) * scaling
    scores = np.where(np.arange(keys) <= np.arange(rows)[:, None] + keys - rows, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ v).transpose(1, 0, 2)[None]


@pytest.mark.parametrize("width", [8, 64, 256])
@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (1, 700), (1, 703), (3, 10), (37, 37), (128, 128)])
def test_attention_over_keys_as_the_cache_keeps_them(library, rows, keys, width):
    q = numbers(rows, 1, 6, rows, width)
    k, v = (numbers(seed, 1, keys, 2, width).transpose(1, 2) for seed in (keys, keys + 1))
    exact = exact_attention(q, k, v, 0.3)
    found = library.attend(q, k, v, 0.3)
    assert found.shape == (1, rows, 6, width) and np.abs(wide(found) - exact).max() < 5e-6 * np.abs(exact).max()


def test_each_key_that_a_row_may_see_counts_and_no_other(library):
    """Values are their key's number: equal scores give the mean of all numbers seen, whatever the rest of the last vector holds."""
    for keys in (1, 7, 8, 9, 16, 31):
        q, k = torch.zeros(1, 1, keys, 8), torch.randn(1, 1, keys, 8)
        v = torch.arange(keys, dtype=torch.float32)[None, None, :, None].expand(1, 1, keys, 8).contiguous()
        assert torch.allclose(library.attend(q, k, v, 1.0)[0, :, 0, 0], torch.arange(keys) / 2, rtol=1e-5)


def test_attention_with_large_scores_stays_finite(library):
    q, v = torch.full((1, 1, 4, 16), 50.0), numbers(14, 1, 1, 4, 16)
    assert torch.isfinite(library.attend(q, -q, v, 1.0)).all() and torch.allclose(library.attend(q, q, v, 1.0)[0, 0, 0], v[0, 0, 0])
