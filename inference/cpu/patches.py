"""What lies between the products of a model on the CPU: norms, rotary embedding, gated activation and attention, one call each.

transformers writes each as a handful of small operators, and at a prompt's few rows their dispatch costs as much as a
third of the products. Each is taken only where it gives what the model's own code gives, up to rounding, and only for
the case at hand (FP32, no mask but the causal one); everything else goes to the model's own code.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from inference.cpu.library import VECTOR, Library

log = logging.getLogger(__name__)
MOST_ROWS = 128  # ours reads all keys for each row; for more rows torch's own, which works in blocks, is left in place
MOST_WIDTH = 256
TOLERANCE = 1e-5
Wrapped = Callable[..., Any]


@torch.inference_mode()
def install(model: nn.Module, library: Library) -> None:
    """Give the parts of `model` that allow it our library's calls; the modules' code is changed in this process alone."""
    for module in model.modules():
        kind = type(module).__name__
        if kind.endswith("RMSNorm"):
            _norm(module, library)
        elif kind.endswith("MLP"):
            _gate(module, library)
    _rotary(sys.modules[type(model).__module__], library)
    _attention(library)


def _close(mine: torch.Tensor, own: torch.Tensor) -> bool:
    return mine.shape == own.shape and bool((mine - own).abs().max() <= TOLERANCE * own.abs().max())


def _norm(module: nn.Module, library: Library) -> None:
    weight, eps = module._parameters.get("weight"), getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if weight is None or eps is None or weight.dtype != torch.float32 or weight.dim() != 1 or len(weight) % VECTOR:
        return
    x = torch.randn(3, len(weight), generator=torch.Generator().manual_seed(0))
    own = module(x)
    for plus in (0.0, 1.0):
        if _close(library.norm(x, weight, plus, eps), own):
            module.forward = lambda x, plus=plus: library.norm(x, weight, plus, eps)
            return


def _gate(module: nn.Module, library: Library) -> None:
    parts = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    if not all(isinstance(part, nn.Linear) for part in parts) or len(list(module.children())) != 4:
        return
    gate, up, down = parts

    def forward(x: torch.Tensor) -> torch.Tensor:
        return down(library.silu_times(gate(x), up(x)))  # type: ignore[misc]

    x = torch.randn(1, 3, gate.in_features, generator=torch.Generator().manual_seed(0))  # type: ignore[union-attr]
    if gate.out_features % VECTOR == 0 and _close(forward(x), module(x)):  # type: ignore[union-attr]
        module.forward = forward


def _rotary(code: Any, library: Library) -> None:
    own: Wrapped | None = getattr(code, "apply_rotary_pos_emb", None)
    if own is None or hasattr(own, "own") or list(inspect.signature(own).parameters)[:4] != ["q", "k", "cos", "sin"]:
        return

    def turned(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *rest: Any, **more: Any) -> tuple[torch.Tensor, torch.Tensor]:
        fits = all(t.dtype == torch.float32 and t.dim() == 4 and t.shape[0] == 1 and t.stride(3) == 1 and t.shape[3] == cos.shape[-1] for t in (q, k))
        if rest or more or not fits or cos.shape[-1] % (2 * VECTOR) or cos.dtype != torch.float32 or torch.compiler.is_compiling():
            return own(q, k, cos, sin, *rest, **more)  # type: ignore[no-any-return]
        cos, sin = cos.contiguous(), sin.contiguous()
        return library.rotate(q, cos, sin), library.rotate(k, cos, sin)

    generator = torch.Generator().manual_seed(0)
    q, k, cos, sin = (torch.randn(*shape, generator=generator) for shape in ((1, 2, 3, 32), (1, 1, 3, 32), (1, 3, 32), (1, 3, 32)))
    if all(map(_close, turned(q, k, cos, sin), own(q, k, cos, sin))):
        turned.own = own  # type: ignore[attr-defined]
        code.apply_rotary_pos_emb = turned


def _attention(library: Library) -> None:
    own: Wrapped = ALL_ATTENTION_FUNCTIONS["sdpa"]
    if hasattr(own, "own"):
        return

    def attend(
        module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, **more: Any
    ) -> tuple[torch.Tensor, None]:
        rows, width = query.shape[2:]
        causal = mask is None and getattr(module, "is_causal", False) and more.get("is_causal") is not False and rows in (1, key.shape[2])
        plain = not more.get("dropout") and not more.get("softcap") and all(more.get(name) is None for name in ("s_aux", "position_bias"))
        fits = all(t.dtype == torch.float32 and t.shape[0] == 1 and t.stride(3) == 1 for t in (query, key, value))
        if causal and plain and fits and rows <= MOST_ROWS and width <= MOST_WIDTH and width % VECTOR == 0 and not torch.compiler.is_compiling():
            scaling = more.get("scaling")
            return library.attend(query, key, value, width**-0.5 if scaling is None else scaling), None
        return own(module, query, key, value, mask, **more)  # type: ignore[no-any-return]

    module = nn.Module()
    module.is_causal, module.num_key_value_groups = True, 2  # type: ignore[assignment]
    generator = torch.Generator().manual_seed(0)
    for rows in (1, 11):
        q, k, v = (torch.randn(1, heads, count, 32, generator=generator) for heads, count in ((4, rows), (2, 11), (2, 11)))
        if not _close(attend(module, q, k, v, None)[0], own(module, q, k, v, None)[0]):
            log.warning("our attention differs from torch's here; torch's own is used")
            return
    attend.own = own  # type: ignore[attr-defined]
    ALL_ATTENTION_FUNCTIONS["sdpa"] = attend
