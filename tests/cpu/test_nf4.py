"""A bitsandbytes layer that computes in FP32 becomes ours, and stays bitsandbytes' own where ours is wrong or unfit."""

from __future__ import annotations

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from torch import nn

from inference.cpu.install import use_kernels
from inference.cpu.nf4 import Nf4Linear, install
from inference.fast import FastWays
from inference.models import loading
from inference.parts.description import NotUnderstood
from tests.support.four_bit import four_bit_layer
from tests.support.tiny import make_checkpoint


def layers():
    generator = torch.Generator().manual_seed(0)
    shapes = ((70, 128), (70, 128), (96, 64))
    return nn.ModuleList([four_bit_layer(torch.randn(*shape, generator=generator), torch.randn(shape[0], generator=generator)) for shape in shapes])


@torch.inference_mode()
def test_a_layer_that_computes_in_fp32_becomes_ours_with_bitsandbytes_numbers(library, monkeypatch):
    model, inputs = layers(), [torch.randn(1, rows, 128) for rows in (1, 5, 60)]
    own = [model[0](x) for x in inputs]
    install(model, library)
    assert all(type(layer) is Nf4Linear for layer in model)
    monkeypatch.setattr(Linear4bit, "forward", lambda *_: pytest.fail("bitsandbytes' own was called"))
    for x, expected in zip(inputs, own, strict=True):
        assert torch.allclose(model[0](x), expected, atol=1e-4 * float(expected.abs().max()))


def test_bitsandbytes_own_stays_where_ours_is_wrong(library, monkeypatch):
    model, product = layers(), library.multiply
    monkeypatch.setattr(library, "multiply", lambda *args: product(*args) * 1.001)
    with pytest.raises(NotUnderstood, match="wrong numbers"):
        install(model, library)
    assert all(type(layer) is Linear4bit for layer in model)


@pytest.mark.parametrize("unfit", ["packs anew", "double", "block"])
def test_one_layer_that_does_not_fit_keeps_all_as_they_are(unfit, library):
    model = layers()
    if unfit == "packs anew":
        model[1].support_avx512bf16_for_cpu = True
    elif unfit == "double":
        model[1].weight.quant_state.nested = True
    else:
        model[1].weight.quant_state.blocksize = 100
    with pytest.raises(NotUnderstood, match="of a form"):
        install(model, library)
    assert all(type(layer) is Linear4bit for layer in model)


def test_the_4_bit_lane_has_no_other_layer(library, tmp_path):
    """As our load makes them, whatever this processor would compute in by itself."""
    ways = FastWays("cpu:nf4", ("products", "nf4"))
    model = loading.read(make_checkpoint(tmp_path / "llama", "llama"), "cpu:nf4", ways)
    found = [module for module in model.modules() if isinstance(module, Linear4bit)]
    assert not any(layer.support_avx512bf16_for_cpu for layer in found)
    assert use_kernels(model, "cpu:nf4", library, ways) == "own C (4-bit), own C (the rest)"
    assert len(found) == 14 and {type(layer) for layer in found} == {Nf4Linear} and ways.used == ["products", "nf4"]
