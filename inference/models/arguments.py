"""What a lane asks transformers for: dtype, device and quantization. In: a lane, a configuration. Out: keywords of `from_pretrained`."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from transformers import BitsAndBytesConfig, PretrainedConfig

from inference.host.hardware import BFLOAT16
from inference.sources.files import NO_ADAPTER


def compute_dtype(device: str, capability: tuple[int, int] | None = None) -> torch.dtype:
    """What a 4-bit lane computes in: on a GPU bfloat16 where the hardware (this machine's, or one of `capability`) has it, else float32; never float16.

    float16 overflows in Gemma-3; a GPU emulates bfloat16 below compute capability 8.0. On a CPU float32, so that between the two lanes
    there only the weights differ.
    """
    wide = device == "cpu" or (capability or torch.cuda.get_device_capability()) < BFLOAT16
    return torch.float32 if wide else torch.bfloat16


def model_arguments(lane: str, capability: tuple[int, int] | None = None) -> dict[str, Any]:
    """The keywords of `from_pretrained` for a lane, on a GPU of `capability` if it is not this machine's."""
    device, precision = lane.split(":")
    device_map = {"": 0} if device == "cuda" else "cpu"
    if precision == "nf4":
        dtype = compute_dtype(device, capability)
        quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
        return {"device_map": device_map, "dtype": dtype, "quantization_config": quantization, **NO_ADAPTER}
    return {"device_map": device_map, "dtype": torch.float32 if precision == "fp32" else torch.bfloat16, **NO_ADAPTER}


def quantization_of(config: PretrainedConfig) -> dict[str, Any]:
    """What a configuration says of how its weights are quantized already; empty where they are not."""
    for part in (config, config.get_text_config()):
        found = getattr(part, "quantization_config", None)
        if found:
            return dict(found if isinstance(found, dict) else found.to_dict())
    return {}


def arguments_for(config: PretrainedConfig, lane: str, capability: tuple[int, int] | None = None) -> dict[str, Any]:
    """`model_arguments` for a checkpoint that may be in 4 bits already: then it is as it was quantized, and computes in the lane's dtype all the same."""
    arguments = model_arguments(lane, capability)
    section = quantization_of(config)
    if section and "quantization_config" in arguments:
        with contextlib.suppress(TypeError):
            arguments["quantization_config"] = BitsAndBytesConfig.from_dict({**section, "bnb_4bit_compute_dtype": arguments["dtype"]})
    return arguments
