"""Begins to compile the kernels of a model before its weights are read, from its configuration alone.

What the kernels must know of a model is found by trying a skeleton's own modules, as `parts.py` does with the loaded model. A guess that turns
out wrong costs a second compilation and nothing else. In: a configuration. Out: nothing; `device_code` remembers what was compiled.
"""

from __future__ import annotations

import copy
import logging
import threading
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from inference.cuda.device_code import architecture, compile_source
from inference.cuda.parts import activation_of, decoder_of, norm_form, norms_of
from inference.cuda.step import kernel_source, macros

log = logging.getLogger(__name__)


def begin(config: Any, device: torch.device) -> None:
    """Compile in a thread, where the kernels know such a model; whoever needs them later asks again, and is told then."""
    try:
        # the skeleton is made here: transformers sets torch's default dtype meanwhile, for every thread
        known = macros_of(config)
    except Exception:
        log.info("the kernels are not compiled beforehand", exc_info=True)
        return
    threading.Thread(target=_compile, args=(known, device), name="kernels", daemon=True).start()


def macros_of(config: Any) -> dict[str, object]:
    """The kernels' macros for a model of this configuration; raises NotFusable."""
    with torch.device("meta"):
        decoder = decoder_of(AutoModelForCausalLM.from_config(config))
    layer = decoder.layers[0]
    attention = layer.self_attn
    _, offset, rounds = norm_form([_real(norm) for norm in {norm.weight.shape: norm for norm in norms_of(decoder)}.values()])
    width = attention.head_dim
    return macros(width, attention.q_proj.out_features // width, attention.k_proj.out_features // width, offset, rounds, activation_of(layer.mlp.act_fn))


def _real(norm: Any) -> nn.Module:
    """A norm of the skeleton with weights on the CPU, all different from one another."""
    made: nn.Module = copy.deepcopy(norm).to_empty(device="cpu").to(torch.bfloat16)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.linspace(0.5, 1.5, parameter.numel()))
    return made


def _compile(known: dict[str, object], device: torch.device) -> None:
    try:
        compile_source(kernel_source(), known, architecture(device))
    except Exception:
        log.info("the kernels could not be compiled beforehand", exc_info=True)
