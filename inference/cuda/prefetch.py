"""Begins to compile the kernels of a model before its weights are read, from its configuration alone.

What the kernels must know of a model is read off a skeleton, as of the loaded model. A guess that turns out wrong costs a second compilation
and nothing else. In: a configuration, and how its weights will be stored. Out: nothing; `device_code` remembers what was compiled.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from inference.cuda import kernels
from inference.cuda.decoder import OLDEST_BF16
from inference.cuda.device_code import architecture, compile_in_a_thread, compile_source
from inference.cuda.packed import check_sizes
from inference.cuda.program import DOWN, GATED, OUT, QKV, layout, program_source
from inference.parts.description import ModelParts, NotUnderstood
from inference.parts.reader import read_parts

log = logging.getLogger(__name__)
SHARED = {(9, 0): 232_448, (12, 0): 101_376}  # bytes that a block may take, where a device that is not there yet (ZeroGPU's) doesn't say so
FOUR_BIT = 1 << QKV | 1 << OUT | 1 << GATED | 1 << DOWN  # what is in 4 bits of a model that is: all but the head


def begin(config: Any, device: torch.device, bits: int) -> None:
    """Compile in a thread, where the kernels know such a model; whoever needs them later asks again, and is told then."""
    if wanted := _wanted(config, device, bits):
        compile_in_a_thread(*wanted, device=device)


def ahead(config: Any, device: torch.device, bits: int) -> None:
    """The same in this thread and before there is a device: a process forked later has what was compiled, as far as the device is what it is said to be."""
    for source, macros in _wanted(config, device, bits):
        try:
            compile_source(source, macros, architecture(device))
        except Exception:
            log.info("kernels could not be compiled ahead", exc_info=True)


def _wanted(config: Any, device: torch.device, bits: int) -> list[tuple[str, dict[str, object]]]:
    """The sources and macros for such a model; none where the kernels don't know it."""
    try:
        properties, capability = torch.cuda.get_device_properties(device), torch.cuda.get_device_capability(device)
        wide = capability < OLDEST_BF16
        # the skeleton is made here: transformers sets torch's default dtype meanwhile, for every thread
        parts = described(config)
        known = kernels.macros(parts, bits, wide)
    except Exception:
        log.info("the kernels are not compiled beforehand", exc_info=True)
        return []
    wanted = [(kernels.source(known), known)]
    size = (properties.multi_processor_count, getattr(properties, "shared_memory_per_block_optin", 0) or SHARED.get(capability, 0))
    if not wide and (step := step_macros(parts, bits, *size)):
        wanted.append((program_source(), step))
    return wanted


def described(config: Any) -> ModelParts:
    """A model of this configuration without its weights; raises NotUnderstood."""
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    parts = read_parts(skeleton)
    check_sizes(parts)
    return parts


def step_macros(parts: ModelParts, bits: int, multiprocessors: int, shared_limit: int) -> dict[str, object] | None:
    """The macros of the one-kernel step, where it has a form for such a model; its weights in `bits`."""
    try:
        return layout(parts, multiprocessors, shared_limit, FOUR_BIT if bits == 4 else 0).macros
    except NotUnderstood:
        return None
