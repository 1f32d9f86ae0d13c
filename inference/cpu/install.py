"""Gives a CPU lane's layers the products and parts that are fastest here. In: a loaded model. Out: what they are called."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import PreTrainedModel

from inference.cpu import patches, products
from inference.models import exact
from inference.models.loading import model_arguments


def use_kernels(model: PreTrainedModel, lane: str, folder: Path) -> str | None:
    """Give a CPU lane's layers the products that are fastest here; what they are called, None where torch's own stay."""
    if model_arguments(lane)["dtype"] != torch.float32:
        return None
    found, library = products.candidates(folder)
    kernels = products.choose([module.weight for _, module in exact.matrices(model) if isinstance(module, torch.nn.Linear)], found)
    exact.install(model, kernels.product)
    if library is not None:
        patches.install(model, library)
    if lane != "cpu:nf4":
        return kernels.name
    from inference.cpu import nf4

    return f"{'own C' if nf4.install(model, library) else 'bitsandbytes'} (4-bit), {kernels.name} (the rest)"
