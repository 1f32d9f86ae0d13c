"""A bitsandbytes layer that computes in FP32 becomes ours where it must, and stays bitsandbytes' own where ours is slower, wrong or unfit."""

from __future__ import annotations

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from torch import nn

from inference.cpu import probe
from inference.cpu.install import use_kernels
from inference.cpu.library import NotOurs
from inference.cpu.nf4 import Nf4Linear, install
from inference.fast import FastWays
from inference.models import loading
from tests.support.four_bit import four_bit_layer
from tests.support.tiny import make_checkpoint


def layers():
    generator = torch.Generator().manual_seed(0)
    shapes = ((70, 128), (70, 128), (96, 64))
    return nn.ModuleList([four_bit_layer(torch.randn(*shape, generator=generator), torch.randn(shape[0], generator=generator)) for shape in shapes])


@pytest.fixture
def ours_is_faster(monkeypatch):
    """The number of rows up to which our product wins the trial, for the test to set."""
    most = [2**31]

    def best_s(call):
        given = call.args[-1]
        ours = isinstance(call.func, Nf4Linear)
        return 1.0 if isinstance(given, torch.Tensor) and ours == (len(given) <= most[0]) else 2.0

    monkeypatch.setattr(probe, "best_s", best_s)
    return most


@torch.inference_mode()
def test_a_layer_that_computes_in_fp32_becomes_ours_with_bitsandbytes_numbers(library, ours_is_faster, monkeypatch):
    model, inputs = layers(), [torch.randn(1, rows, 128) for rows in (1, 5, 60)]
    own = [model[0](x) for x in inputs]
    assert install(model, library) == "own C" and all(type(layer) is Nf4Linear for layer in model)
    monkeypatch.setattr(Linear4bit, "forward", lambda *_: pytest.fail("bitsandbytes' own was called"))
    for x, expected in zip(inputs, own, strict=True):
        assert torch.allclose(model[0](x), expected, atol=1e-4 * float(expected.abs().max()))


@torch.inference_mode()
def test_each_number_of_rows_goes_to_the_faster_product(library, ours_is_faster, monkeypatch):
    calls = []
    own = Linear4bit.forward
    monkeypatch.setattr(Linear4bit, "forward", lambda self, x: calls.append(x.numel() // 128) or own(self, x))
    for most, name in ((1, "own C up to 1 row, else bitsandbytes"), (30, "own C up to 48 rows, else bitsandbytes")):
        ours_is_faster[0] = most
        model = layers()
        assert install(model, library) == name
        calls.clear()
        for rows in (1, 20, 48, 49):
            model[0](torch.randn(rows, 128))
        assert calls == ([20, 48, 49] if most == 1 else [49])


def test_bitsandbytes_own_stays_where_ours_is_slower(library, ours_is_faster):
    ours_is_faster[0] = 0
    model = layers()
    with pytest.raises(NotOurs, match="faster here"):
        install(model, library)
    assert all(type(layer) is Linear4bit for layer in model)


def test_bitsandbytes_own_stays_where_ours_is_wrong(library, monkeypatch):
    model, product = layers(), library.multiply
    monkeypatch.setattr(library, "multiply", lambda *args: product(*args) * 1.001)
    with pytest.raises(NotOurs, match="differs"):
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
    with pytest.raises(NotOurs, match="of a form"):
        install(model, library)
    assert all(type(layer) is Linear4bit for layer in model)


def test_the_4_bit_lane_has_no_other_layer(library, ours_is_faster, tmp_path):
    """As our load makes them, whatever this processor would compute in by itself."""
    ways = FastWays("cpu:nf4", ("products", "nf4"))
    model = loading.read(make_checkpoint(tmp_path / "llama", "llama"), "cpu:nf4", ways)
    found = [module for module in model.modules() if isinstance(module, Linear4bit)]
    assert not any(layer.support_avx512bf16_for_cpu for layer in found)
    assert use_kernels(model, "cpu:nf4", library, ways).startswith("own C (4-bit), ")
    assert len(found) == 14 and {type(layer) for layer in found} == {Nf4Linear} and ways.used == ["products", "nf4"]
