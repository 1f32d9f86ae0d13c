"""The products that a model's own layers call: right for every dtype and any matrix, ours where it takes it, and never a wrong one of ours."""

import pytest
import torch
from torch import nn

from inference.cpu import products
from inference.cpu.install import use_kernels
from inference.fast import FastWays
from inference.models import exact
from inference.parts.description import NotUnderstood


def is_right(product, x, weight, bias):
    truth = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    return bool((product(x, weight, bias).double() - truth).norm() <= 1e-6 * truth.norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 7])
def test_both_products_are_those_of_fp64_for_any_matrix(dtype, rows, library):
    bias, matrices = torch.randn(64), (torch.randn(64, 64), torch.randn(64, 72), torch.randn(64, 80)[:, :64], torch.randn(80, 64).T)
    for product in (exact.in_fp32, products.ours(library)):
        for weight in matrices:
            for added in (bias, None):
                assert is_right(product, torch.randn(1, rows, weight.shape[1]), weight.to(dtype), added)


def test_rows_that_are_no_fp32_are_refused_and_not_read_as_such(library):
    """Rows of 16 bits were read as FP32, past their end."""
    for product in (products.ours(library), exact.ExactLinear(64, 64).forward):
        with pytest.raises((TypeError, exact.Rounded), match="bfloat16"):
            product(*(torch.randn(7, 64).bfloat16(), torch.randn(64, 64).bfloat16(), None)[: 3 if product.__name__ == "product" else 1])


@pytest.mark.parametrize("columns", [32, 128, 96])
def test_rows_of_another_width_are_refused_and_nothing_is_written_past_the_end(library, columns):
    """A configuration whose head size does not fit (Helium's) ended the process by a damaged heap."""
    with pytest.raises(ValueError, match=f"rows of {columns} columns with a matrix of 64"):
        products.ours(library)(torch.randn(7, columns), torch.randn(64, 64), None)


def test_a_wrong_product_is_not_taken_and_the_layers_are_torch_s(library, monkeypatch):
    own = library.multiply
    monkeypatch.setattr(library, "multiply", lambda *given: own(*given) * 1.001)
    with pytest.raises(NotUnderstood, match="wrong numbers"):
        products.ours(library)
    model, ways = nn.Sequential(nn.Linear(64, 32)), FastWays("cpu:fp32", ("products",))
    assert use_kernels(model, "cpu:fp32", library, ways) == "torch" and "wrong numbers" in ways.why_not["products"]
    assert is_right(lambda x, *_: model(x), torch.randn(3, 64), model[0].weight.data, model[0].bias.data)


def test_the_layers_call_ours(library, monkeypatch):
    model, ways = nn.Sequential(nn.Linear(64, 32)), FastWays("cpu:fp32", ("products",))
    assert use_kernels(model, "cpu:fp32", library, ways) == "own C" and ways.used == ["products"]
    monkeypatch.setattr(exact.functional, "linear", lambda *_: pytest.fail("torch's own was called"))
    model(torch.randn(3, 64))
