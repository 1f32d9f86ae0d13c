"""Gives a CPU lane's layers the products and parts that are fastest here, each tried by itself.

In: a loaded model and the ways that may be used. Out: what its products are called; in the ways, what is used and why the rest is not.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import PreTrainedModel

from inference.cpu import patches, products
from inference.cpu.library import Library, NoLibrary, load
from inference.events import Report
from inference.fast import FastWays
from inference.models import exact
from inference.models.loading import model_arguments

OWN = ("products", "layers", "nf4")


def use_kernels(model: PreTrainedModel, lane: str, folder: Path, ways: FastWays, report: Report | None = None) -> str | None:
    """Give the layers what is fastest here; what the products are called, None where all are bitsandbytes'. `folder`: of built libraries."""
    if (dtype := model_arguments(lane)["dtype"]) != torch.float32:
        for name in filter(ways.may, OWN):
            ways.refuse(name, f"this lane computes in {str(dtype).removeprefix('torch.')} here, by bitsandbytes' own kernels")
        return None
    library = _library(folder, ways)
    kernels = ways.attempt("products", lambda: _choose(model, library), report) or products.PLAIN
    exact.install(model, kernels.product)
    four_bit = None
    if library is not None:
        ways.attempt("layers", lambda: patches.install(model, library), report)
        four_bit = ways.attempt("nf4", lambda: _own_nf4(model, library), report)
    if lane != "cpu:nf4":
        return kernels.name
    return f"{four_bit or 'bitsandbytes'} (4-bit), {kernels.name} (the rest)"


def _library(folder: Path, ways: FastWays) -> Library | None:
    """Our C library where one of the ways may use it; without it those that need it are refused, and torch's products remain."""
    if not any(map(ways.may, OWN)):
        return None
    try:
        return load(folder)
    except NoLibrary as error:
        for name in filter(ways.may, OWN[1:]):
            ways.refuse(name, str(error))
        return None


def _own_nf4(model: PreTrainedModel, library: Library) -> str:
    from inference.cpu import nf4  # brings bitsandbytes, which an FP32 lane does without

    return nf4.install(model, library)


def _choose(model: PreTrainedModel, library: Library | None) -> products.Kernels:
    weights = [module.weight for _, module in exact.matrices(model) if isinstance(module, torch.nn.Linear)]
    return products.choose(weights, products.candidates(library))
