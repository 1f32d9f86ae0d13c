"""Gives a CPU lane its step in C, and the model's own layers our products.

In: a loaded model and the ways that may be used. Out: a decoder, what its products are called; in the ways, what is used and why the rest is
not. The model's own layers answer where the step is refused, and score.
"""

from __future__ import annotations

from pathlib import Path

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

STEP, OWN = "c-step", "own C"
OURS = (STEP, "products", "nf4")


def library(folder: Path, isa: str, ways: FastWays) -> Library | None:
    """Our C library where one of the ways may use it; without it they are refused, and torch's products remain. `folder`: of built ones."""
    if not any(map(ways.may, OURS)):
        return None
    try:
        return load(folder, isa)
    except NoLibrary as error:
        for name in filter(ways.may, OURS):
            ways.refuse(name, str(error))
        return None


def use_kernels(model: PreTrainedModel, lane: str, found: Library | None, ways: FastWays, report: Report | None = None) -> str:
    """Give the model's layers our products, where they may have them; what they compute by."""
    if found is None:
        exact.install(model, exact.in_fp32)
        names = ["bitsandbytes", "torch"]
    else:
        product = ways.attempt("products", lambda: products.ours(found), report)
        exact.install(model, product or exact.in_fp32)
        four_bit = lane == "cpu:nf4" and ways.attempt("nf4", lambda: _own_nf4(model, found), report)
        names = [OWN if four_bit else "bitsandbytes", OWN if product else "torch"]
    return f"{names[0]} (4-bit), {names[1]} (the rest)" if lane == "cpu:nf4" else names[1]


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


def _own_nf4(model: PreTrainedModel, found: Library) -> bool:
    from inference.cpu import nf4  # brings bitsandbytes, which an FP32 lane does without

    nf4.install(model, found)
    return True
