"""The product of rows with a matrix by our C library, for a model's own layers: where the step is refused, and for scoring.

In: the library. Out: a product that was checked against FP64; what the C code doesn't take, torch multiplies. Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from inference.cpu.library import KINDS, VECTOR, Library
from inference.models.exact import Product, in_fp32
from inference.parts.description import NotUnderstood

SAMPLE = (70, 160)  # a matrix: no whole number of vectors, nor of the pieces that many rows are multiplied in


def ours(library: Library) -> Product:
    """x (..., k) FP32 times weight (n, k) of 16 or 32 bits, in FP32; raises NotUnderstood where the library gives wrong numbers here."""

    def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        fits = weight.dtype in KINDS and weight.shape[1] % VECTOR == 0 and weight.is_contiguous()
        return (library.product if fits else in_fp32)(x, weight, bias)

    values, bias = torch.randn(SAMPLE, generator=torch.Generator().manual_seed(0)), torch.linspace(-1, 1, SAMPLE[0])
    for weight in map(values.to, KINDS):
        check(partial(product, weight=weight, bias=bias), weight, bias)
    return product


@torch.inference_mode()
def check(product: Callable[[torch.Tensor], torch.Tensor], weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Raise NotUnderstood where one row or some, times this matrix, are further from FP64 than FP32 sums in any order are."""
    wide = weight.double()
    for rows in (1, 5):
        x = torch.randn(rows, weight.shape[1], generator=torch.Generator().manual_seed(rows))
        exact = x.double() @ wide.T + (0 if bias is None else bias.double())
        bound = x.abs().double() @ wide.abs().T * 2e-6 + 1e-6
        if not bool(((product(x).double() - exact).abs() <= bound).all()):  # NaN is not
            raise NotUnderstood("our product gives wrong numbers on this machine")
