"""Exact compact storage: matrices whose every value is a 16-bit value are kept so, and computed with in FP32.

A bf16 or fp16 value is an FP32 value, so nothing is lost and half the bytes are held and read. Decided for each tensor by
checking; what is not exactly 16-bit stays FP32. In: a model or how to load one. Knows no lane and no run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from inference.fast import FastWays
from inference.models import private

Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
# asked before the weights are there, so its form can't be tried: told by its name
SCALED_EMBEDDING = "Gemma3TextScaledWordEmbedding"
SIXTEEN_BIT = (torch.bfloat16, torch.float16)
IN_A_FILE = {"BF16": torch.bfloat16, "F16": torch.float16}
CHECKED_ROWS = 2**22
ON_A_GPU, IN_CACHE = 2**26, 2**20  # values of a matrix that are made FP32 together


class Rounded(RuntimeError):
    """A model's own code has rounded what it gives a layer, to the dtype that the layer's matrix is kept in."""


class ExactLinear(nn.Linear):
    """A linear layer that computes in FP32 whatever dtype its matrix is kept in; `product` is how."""

    product: Product

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (..., in) FP32 -> (..., out) FP32; raises Rounded for any other x."""
        if x.dtype != torch.float32:
            raise Rounded(f"its own code rounds what a layer is given to {dtype_name(x.dtype)}, in which the layer's matrix is kept")
        return self.product(x, self.weight, self.bias)


class ExactEmbedding(nn.Embedding):
    """An embedding that gives FP32 rows; `embed_scale` is Gemma's factor, applied in FP32."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids (...) -> rows (..., width) FP32."""
        rows = functional.embedding(ids, self.weight, self.padding_idx).float()
        scale = getattr(self, "embed_scale", None)
        return rows if scale is None else rows * scale.float()


def in_fp32(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """The plain product: a 16-bit matrix is made FP32, some rows at a time, for as long as it takes."""
    if weight.dtype == x.dtype:
        return functional.linear(x, weight, bias)
    rows = max(1, (ON_A_GPU if x.is_cuda else IN_CACHE) // weight.shape[1])
    found = torch.cat([functional.linear(x, block.to(x.dtype)) for block in weight.split(rows)], -1)
    return found if bias is None else found + bias


def matrices(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """(name, module) of each layer whose matrix can be kept compact; an unknown kind of embedding stays FP32."""
    return [(name, module) for name, module in model.named_modules() if _is_matrix(module)]


def _is_linear(module: nn.Module) -> bool:
    return type(module) in (nn.Linear, ExactLinear)


def _is_embedding(module: nn.Module) -> bool:
    return type(module) in (nn.Embedding, ExactEmbedding) or type(module).__name__ == SCALED_EMBEDDING


def exact_dtype(weight: torch.Tensor) -> torch.dtype:
    """The 16-bit dtype that holds every value of `weight` exactly, else float32."""
    if weight.dtype in SIXTEEN_BIT:
        return weight.dtype
    rows = max(1, CHECKED_ROWS // max(1, weight[0].numel()))
    for dtype in SIXTEEN_BIT:
        if all(torch.equal(block.to(dtype).float(), block) for block in weight.split(rows)):
            return dtype
    return torch.float32


@torch.no_grad()
def shrink(model: nn.Module) -> None:
    """Give each matrix of `model` its exact dtype and every other floating parameter FP32, one after the other.

    A parameter that is used twice (a tied embedding and head) stays one, compact if every layer that holds it can convert.
    """
    left = holders(model)
    while left:  # what was made smaller is let go at once: on a GPU all are FP32 before
        parameter, places, matrix = left.pop()
        dtype = exact_dtype(parameter) if matrix else torch.float32
        if dtype != parameter.dtype:
            parameter = nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
            for module, name in places:
                setattr(module, name, parameter)


@torch.no_grad()
def widen(model: nn.Module) -> bool:
    """Undo `shrink`: every floating parameter in FP32; whether any was not."""
    narrow = [(parameter, places) for parameter, places, _ in holders(model) if parameter.dtype in SIXTEEN_BIT]
    for parameter, places in narrow:
        wide = nn.Parameter(parameter.detach().float(), requires_grad=False)
        for module, name in places:
            setattr(module, name, wide)
    return bool(narrow)


def holders(model: nn.Module) -> list[tuple[nn.Parameter, list[tuple[nn.Module, str]], bool]]:
    """Each floating parameter once, the (module, name) places that hold it, and whether it is a matrix that can be kept compact in all of them."""
    found: dict[int, tuple[nn.Parameter, list[tuple[nn.Module, str]]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            if parameter.is_floating_point():
                found.setdefault(id(parameter), (parameter, []))[1].append((module, name))
    return [(parameter, places, all(name == "weight" and _is_matrix(module) for module, name in places)) for parameter, places in found.values()]


def _is_matrix(module: nn.Module) -> bool:
    return _is_linear(module) or _is_embedding(module)


def install(model: nn.Module, product: Product) -> None:
    """Make the layers of `model` compute in FP32 by `product`; what is not such a layer is left alone."""
    for _, module in matrices(model):
        module.__class__ = ExactLinear if _is_linear(module) else ExactEmbedding
        if isinstance(module, ExactLinear):
            module.product = product


def computes_in_fp32(model: nn.Module) -> bool:
    """Whether every floating parameter is FP32, or is the matrix of a layer that converts it to FP32 before it computes."""
    return all(
        parameter.dtype == torch.float32 or (name == "weight" and isinstance(module, ExactLinear | ExactEmbedding))
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.is_floating_point()
    )


def kept_as_stored(ways: FastWays) -> contextlib.AbstractContextManager[None]:
    """While open, `from_pretrained(dtype=float32)` asks for the matrices in 16 bits, which `weights.Weights` gives where that is exact.

    Where that can't be had all comes as FP32, and `shrink` does the rest.
    """
    return private.dtype_plan_with(lambda model: ways.attempt("compact", lambda: {f"{name}.weight": torch.bfloat16 for name, _ in matrices(model)}) or {})


def storage_label(model: nn.Module, holds: Callable[[list[torch.Tensor]], bool]) -> str:
    """The dtypes of a model's floating parameters, 16-bit matrices that are computed with in FP32 apart; `holds` says whether values are the file's.

    Only of matrices whose values are is it said that they are exact.
    """
    parameters = {id(p): p for p in model.parameters() if p.is_floating_point()}
    compact = {id(m.weight): m.weight for m in model.modules() if isinstance(m, ExactLinear | ExactEmbedding) and m.weight.dtype in SIXTEEN_BIT}
    if not compact:
        return "+".join(sorted({dtype_name(p.dtype) for p in parameters.values()}))
    mark = "exact" if holds(list(compact.values())) else "not the file's values"
    rest = {dtype_name(p.dtype) for key, p in parameters.items() if key not in compact and p.dim() > 1}
    return "+".join([*(f"{name} ({mark})" for name in sorted({dtype_name(p.dtype) for p in compact.values()})), *sorted(rest)])


def dtype_name(dtype: torch.dtype) -> str:
    """Without torch's prefix: float32, bfloat16."""
    return str(dtype).removeprefix("torch.")
