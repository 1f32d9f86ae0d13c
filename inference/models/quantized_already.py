"""Refuses a checkpoint that is quantized already where the lane's label would not be true of it. In: configuration, headers, a lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PretrainedConfig

from inference.errors import Refused
from inference.models.arguments import quantization_of
from inference.sources.headers import Stored

BITSANDBYTES = "bitsandbytes"
FLOATING = ("F64", "F32", "F16", "BF16")
INSTEAD = "Point MODEL_ID (or CPU_MODEL_ID, for the full-precision lane) at the checkpoint before quantization."


def check(config: PretrainedConfig, tensors: Mapping[str, Stored], lane: str, name: str) -> None:
    """Raise Refused, naming the field and the method, unless the weights are in full precision or, for a 4-bit lane, in bitsandbytes' NF4."""
    section = quantization_of(config)
    four_bit = lane.endswith(":nf4")
    said = f"{name} is quantized already (quantization_config in config.json: {_method(section)})"
    left_behind = section.get("quant_method") == BITSANDBYTES and bool(tensors) and all(stored.dtype in FLOATING for stored in tensors.values())
    alone = f"{said} by that word alone: none of its weights is, and a merge leaves the word behind. Delete quantization_config there."
    if section and not (four_bit and _is_bnb_4_bit(section)):
        rest = "of quantized checkpoints the 4-bit lane loads only those in 4 bits by bitsandbytes" if four_bit else f"the {lane} lane is for full precision"
        raise Refused(alone if left_behind else f"{said}, and {rest}. {INSTEAD}")
    if section and (kind := section.get("bnb_4bit_quant_type", "fp4")) != "nf4":
        raise Refused(
            f"{name} is quantized to {kind.upper()} (bnb_4bit_quant_type in config.json), and this lane is for NF4. Point MODEL_ID at the checkpoint before quantization."
        )
    if left_behind:
        raise Refused(alone)
    eight_bit = sorted({stored.dtype for stored in tensors.values() if stored.dtype.startswith("F8")})
    if eight_bit:
        first = min(key for key, stored in tensors.items() if stored.dtype == eight_bit[0])
        raise Refused(
            f"{name} is quantized already: its files hold 8-bit values ({eight_bit[0]}, first in {first}), though config.json doesn't say so. {INSTEAD}"
        )


def _method(section: Mapping[str, Any]) -> str:
    method = section.get("quant_method") or "an unnamed method"
    bits = next((f", {section[key]} bits" for key in ("bits", "num_bits", "w_bit") if section.get(key)), "")
    if method == BITSANDBYTES:
        bits = ", 4 bits" if section.get("load_in_4bit") else ", 8 bits"
    return f"{method}{bits}"


def _is_bnb_4_bit(section: Mapping[str, Any]) -> bool:
    return bool(section.get("load_in_4bit"))
