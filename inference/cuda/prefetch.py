"""Begins to compile the kernels of a model before its weights are read, from its configuration alone.

What the kernels must know of a model is read off a skeleton, as of the loaded model. A guess that turns out wrong costs a second compilation
and nothing else. In: a configuration, and how its weights will be stored. Out: nothing; `device_code` remembers what was compiled.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from inference.cuda import kernels
from inference.cuda.decoder import OLDEST_BF16
from inference.cuda.device_code import architecture, compile_quietly
from inference.cuda.packed import check_sizes
from inference.parts.reader import read_parts

log = logging.getLogger(__name__)


def begin(config: Any, device: torch.device, bits: int) -> None:
    """Compile in a thread, where the kernels know such a model; whoever needs them later asks again, and is told then."""
    try:
        # the skeleton is made here: transformers sets torch's default dtype meanwhile, for every thread
        known = macros_of(config, bits, torch.cuda.get_device_capability(device) < OLDEST_BF16)
    except Exception:
        log.info("the kernels are not compiled beforehand", exc_info=True)
        return
    arguments = (kernels.source(known), known, architecture(device))
    threading.Thread(target=compile_quietly, args=arguments, name="kernels", daemon=True).start()


def macros_of(config: Any, bits: int, wide: bool = False) -> dict[str, object]:
    """The kernels' macros for a model of this configuration, its weights in `bits`; `wide`: in float32. Raises NotUnderstood."""
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config)
    parts = read_parts(skeleton)
    check_sizes(parts)
    return kernels.macros(parts, bits, wide)
