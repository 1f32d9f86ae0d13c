"""Plain `generate` in FP32 over the very weights that a 4-bit or 16-bit lane holds: what the tokens of both ways are judged by.

In: a lane, its checkpoint. Out: a way of answering, on the GPU where FP32 fits into what is free there, else on the CPU. Nobody's speed is held against it.
"""

from __future__ import annotations

import time

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from inference.bench.plain import Generate, arguments, config_of
from inference.events import LaneFacts, Report
from inference.host.machine import check_fits, ram_available_bytes
from inference.lane.source import Source
from inference.models import loading, private

SPARE = 1.1  # for what an answer needs beside the weights


class Dequantized(Generate):
    """`generate` over the lane's weights, each turned into the FP32 number that it stands for."""

    def __init__(self, lane: str) -> None:
        super().__init__(lane)
        self.path = "plain, FP32 over the same weights"

    def load(self, source: Source, report: Report) -> tuple[LaneFacts, float]:
        """Load as the lane's weights are, then unpack them; raises Refused where FP32 doesn't fit."""
        began = time.perf_counter()
        asked = arguments(self._lane, torch.float32)
        model = AutoModelForCausalLM.from_pretrained(source.checkpoint.folder, trust_remote_code=False, config=config_of(source), **asked)
        device = _device_for(model)
        to_fp32(model, device)
        self.model = model
        return loading.describe(model, source.checkpoint, f"{device}:fp32", torch.get_num_threads()), time.perf_counter() - began


def _device_for(model: PreTrainedModel) -> str:
    need = int(4 * SPARE * model.num_parameters())
    if model.device.type == "cuda" and torch.cuda.mem_get_info()[0] > need:
        return "cuda"
    check_fits("the same weights in FP32", need, ram_available_bytes(), "Judge the tokens on a machine with more memory.")
    return "cpu"


@torch.no_grad()
def to_fp32(model: nn.Module, device: str) -> None:
    """Make each 4-bit layer, before its first product, an ordinary one, and every floating number of `model` FP32 on `device`."""
    for name, layer in list(model.named_modules()):
        if private.is_four_bit(layer):
            from inference.models.odd_rows import unpacked

            plain = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
            plain.weight = nn.Parameter(unpacked(layer, torch.float32).to(device), requires_grad=False)
            plain.bias = layer.bias
            model.set_submodule(name, plain)
    nn.Module.to(model, device)  # the model's own `to` refuses one that was quantized once
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.float()
