"""Gives a CPU lane its step in C, and the model's own layers the products that are fastest here, each tried by itself.

In: a loaded model and the ways that may be used. Out: a decoder, what its products are called; in the ways, what is used and why the rest is
not. The model's own layers answer where the step is refused, and score.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import PreTrainedModel

from inference.cpu import products, runner
from inference.cpu.build import NoLibrary
from inference.cpu.decoder import CStepDecoder
from inference.cpu.library import Library, load
from inference.cpu.runner import Run, Stepper
from inference.events import Report
from inference.fast import FastWays
from inference.models import exact
from inference.parts import check
from inference.parts.description import ModelParts
from inference.parts.reader import read_parts

STEP = "c-step"
OURS = (STEP, "products", "nf4")


def library(folder: Path, isa: str, ways: FastWays) -> Library | None:
    """Our C library where one of the ways may use it; without it those that need it are refused, and torch's products remain. `folder`: of built ones."""
    if not any(map(ways.may, OURS)):
        return None
    try:
        return load(folder, isa)
    except NoLibrary as error:
        for name in filter(ways.may, (STEP, "nf4")):
            ways.refuse(name, str(error))
        return None


def use_kernels(model: PreTrainedModel, lane: str, found: Library | None, ways: FastWays, report: Report | None = None) -> str:
    """Give the model's layers what is fastest here; what the products are called."""
    kernels = ways.attempt("products", lambda: _choose(model, found), report) or products.PLAIN
    exact.install(model, kernels.product)
    if lane != "cpu:nf4":
        return kernels.name
    four_bit = None if found is None else ways.attempt("nf4", lambda: _own_nf4(model, found), report)
    return f"{four_bit or 'bitsandbytes'} (4-bit), {kernels.name} (the rest)"


def step(model: PreTrainedModel, found: Library, ways: FastWays) -> CStepDecoder:
    """The decoder by the step in C; raises NotUnderstood where it doesn't know the model, or gives other logits than the model does."""
    parts = read_parts(model)
    whole = Stepper(parts, found)

    def build(described: ModelParts, positions: int) -> Run:
        return (whole if described is parts else Stepper(described, found)).begin(positions)

    ways.checked = check.as_record(check.let_in(model, parts, build))
    return CStepDecoder(whole)


def check_form(model: PreTrainedModel) -> None:
    """Raise NotUnderstood for a model that the step doesn't know, as far as one without weights can tell."""
    runner.check(read_parts(model))


def _own_nf4(model: PreTrainedModel, found: Library) -> str:
    from inference.cpu import nf4  # brings bitsandbytes, which an FP32 lane does without

    return nf4.install(model, found)


def _choose(model: PreTrainedModel, found: Library | None) -> products.Kernels:
    weights = [module.weight for _, module in exact.matrices(model) if isinstance(module, torch.nn.Linear)]
    return products.choose(weights, products.candidates(found))
