"""The choice among the products: only right ones, the fastest of them, and torch's where there is no other."""

import pytest
import torch
from torch import nn

from inference.cpu import build, probe, products
from inference.cpu import library as c_library
from inference.models import exact, private


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 7])
def test_the_plain_product_is_that_of_the_converted_matrix(dtype, rows):
    x, weight, bias = torch.randn(1, rows, 72), torch.randn(64, 72).to(dtype), torch.randn(64)
    for added in (bias, None):
        exact = x.double() @ weight.double().T + (0 if added is None else added.double())
        assert (products.plain(x, weight, added) - exact).abs().max() < 1e-4


def test_the_choice_is_right_and_a_wrong_product_is_never_chosen():
    weights = [torch.randn(64, 64).bfloat16()]
    wrong = {"torch": products.plain, "quick and wrong": lambda x, weight, _: torch.zeros(*x.shape[:-1], len(weight))}
    assert products.choose(weights, wrong).name == "torch"

    def broken(*_):
        raise RuntimeError("not on this processor")

    assert products.choose(weights, {"torch": products.plain, "broken": broken}).name == "torch"


def test_without_a_compiler_the_products_are_torch_s(tmp_path, monkeypatch):
    monkeypatch.setattr(build.shutil, "which", lambda _: None)
    with pytest.raises(build.NoLibrary, match="no C compiler"):
        c_library.load(tmp_path)
    found = products.candidates(None)
    assert "torch" in found and "own C" not in found


def test_a_large_matrix_is_converted_in_blocks(monkeypatch):
    monkeypatch.setattr(products, "SCRATCH", 640)
    x, weight, bias = torch.randn(3, 64), torch.randn(37, 64).bfloat16(), torch.randn(37)
    expected = torch.nn.functional.linear(x, weight.float(), bias)
    assert torch.allclose(products.plain(x, weight, bias), expected, atol=1e-5)
    assert torch.allclose(products.onednn(x, weight, bias), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["torch", "onednn", "own C"])
def test_the_fastest_of_the_right_ones_is_what_the_layers_call(name, library, monkeypatch):
    if name == "onednn" and not private.has_pointwise():
        pytest.skip("this torch has no oneDNN")
    found = products.candidates(library)
    monkeypatch.setattr(probe, "best_s", lambda call: 1.0 if call.args[0] == found[name] else 2.0)
    model = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 64)).bfloat16().requires_grad_(False)
    kernels = products.choose([layer.weight for layer in model], found)
    assert kernels.name == name and {kernels.one, kernels.few, kernels.many} == {found[name]}
    for layer in model:
        layer.bias.data = layer.bias.float()
    exact.install(model, kernels.product)
    x = torch.randn(3, 64)
    assert torch.allclose(model[0](x), x @ model[0].weight.float().T + model[0].bias, atol=1e-4)
