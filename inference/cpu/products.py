"""Which product of rows with a matrix is fastest here: a short probe at load among those that are right.

In: the matrices of a model (FP32, or 16-bit values kept as they are). Out: `Kernels`, one choice for one row (decode), one
for a few (a short prompt) and one for many, each checked against torch's own FP32 product. Knows no model.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional

from inference.cpu import probe
from inference.cpu.library import VECTOR, Library
from inference.models import private
from inference.models.exact import Product

log = logging.getLogger(__name__)
FEW = 48
ROWS = {"one": 1, "few": 24, "many": 128}
SCRATCH = 2**20
PROBE_BYTES = 24 * 2**20


@dataclass(frozen=True)
class Kernels:
    """The product for one row, for up to `FEW` and for more, and what each is called."""

    one: Product
    few: Product
    many: Product
    name: str

    def product(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """x (..., k) FP32 times weight (n, k) in any dtype, in FP32."""
        rows = x.numel() // x.shape[-1]
        chosen = self.one if rows == 1 else self.few if rows <= FEW else self.many
        return chosen(x, weight, bias)


def plain(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """torch's own FP32 product; a 16-bit matrix is converted a block of rows at a time."""
    if weight.dtype == torch.float32:
        return functional.linear(x, weight, bias)
    return _in_blocks(functional.linear, x, weight, bias)


PLAIN = Kernels(plain, plain, plain, "torch")


def onednn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """oneDNN's product, which uses every core for one row too; only where `private.has_pointwise`."""
    if weight.dtype == torch.float32:
        return private.pointwise(x, weight, bias)
    return _in_blocks(private.pointwise, x, weight, bias)


def traced(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """One row times a matrix as a multiplication and a sum, which inductor fuses with the conversion to FP32."""
    y = (x.reshape(1, -1) * weight.float()).sum(-1)
    return (y if bias is None else y + bias).view(*x.shape[:-1], -1)


def _in_blocks(product: Product, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    n, k = weight.shape
    rows = max(1, SCRATCH // k)
    if n <= rows:
        return product(x, weight.float(), bias)
    y, scratch = x.new_empty(*x.shape[:-1], n), torch.empty(rows, k)
    for start in range(0, n, rows):
        block = weight[start : start + rows]
        part = scratch[: len(block)].copy_(block)
        y[..., start : start + rows] = product(x, part, None if bias is None else bias[start : start + rows])
    return y


def candidates(library: Library | None) -> dict[str, Product]:
    """Every product by name, with our own library's where there is one."""
    found: dict[str, Product] = {"torch": plain}
    if private.has_pointwise():
        found["onednn"] = onednn
    if library is not None:
        found["own C"] = library.product
    return found


@torch.inference_mode()
def choose(weights: Iterable[torch.Tensor], found: dict[str, Product]) -> Kernels:
    """The fastest right product for these matrices, by trying each on some of them for a fraction of a second."""
    sample = _sample(weights)
    picks = {kind: _fastest(kind, rows, sample, found) for kind, rows in ROWS.items()}
    names = ", ".join(f"{kind} {'row' if kind == 'one' else 'rows'}: {name}" for kind, name in picks.items())
    one, few, many = (found[name] for name in picks.values())
    return Kernels(one, few, many, picks["one"] if len(set(picks.values())) == 1 else names)


def _sample(weights: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Matrices of the commonest dtype and each shape, together past the processor's nearest caches."""
    groups: dict[torch.dtype, list[torch.Tensor]] = {}
    for weight in weights:
        groups.setdefault(weight.dtype, []).append(weight)
    chosen, size = [], 0
    for weight in max(groups.values(), key=lambda group: sum(w.numel() for w in group)):
        if size < PROBE_BYTES:
            rows = max(1, min(len(weight), (PROBE_BYTES - size) // (weight.shape[1] * weight.element_size())))
            chosen.append(weight[:rows])
            size += rows * weight.shape[1] * weight.element_size()
    return chosen


def _fastest(kind: str, rows: int, sample: list[torch.Tensor], found: dict[str, Product]) -> str:
    times: dict[str, float] = {}
    generator = torch.Generator().manual_seed(rows)
    inputs = [torch.randn(rows, weight.shape[1], generator=generator) for weight in sample]
    if kind != "one":
        sample, inputs = sample[:4], inputs[:4]
    for name, product in found.items():
        try:
            if all(_right(product, x, weight) for x, weight in zip(inputs[:2], sample[:2], strict=True)):
                times[name] = probe.best_s(partial(_all, product, inputs, sample))
        except (RuntimeError, KeyError) as error:
            log.info("the product %s can't be used here: %s", name, str(error).split("\n")[0])
    log.info("%s: %s", kind, ", ".join(f"{name} {seconds * 1e3:.2f} ms" for name, seconds in times.items()))
    return min(times, key=lambda name: times[name], default="torch")


def _right(product: Product, x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether a product differs from the plain one by no more than FP32 sums in another order do."""
    weight = weight[:512]
    if product is not plain and weight.shape[1] % VECTOR:
        return False
    exact = x.double() @ weight.double().T
    bound = x.abs().double() @ weight.abs().double().T * 2e-6 + 1e-30
    return bool(((product(x, weight, None).double() - exact).abs() <= bound).all())


def _all(product: Product, inputs: list[torch.Tensor], sample: list[torch.Tensor]) -> None:
    for x, weight in zip(inputs, sample, strict=True):
        product(x, weight, None)
