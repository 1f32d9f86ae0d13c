"""Which form of a norm, of an activation and of the rotary embedding a model has, found by trying its own code, never by its name.

In: modules, with weights or without (a copy with made-up weights is tried). Out: the numbers of `description.py`. Raises NotUnderstood.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inference.parts.description import ModelParts, NormForm, NotUnderstood

ACTIVATIONS = (F.silu, lambda v: F.gelu(v, approximate="tanh"), F.gelu)  # in the order of SILU, GELU_TANH, GELU
_FORMS = ((0, True), (1, False), (0, False))
_CHANGING = ("dynamic", "longrope")


def norm_form(norms: Iterable[Any]) -> NormForm:
    """The one form of all norms, by trying one of each class and size."""
    norms = list(norms)
    tried = {(type(norm), norm.weight.shape): norm for norm in norms}.values()
    eps = {float(getattr(norm, "eps", None) or getattr(norm, "variance_epsilon", None) or 0) for norm in norms}
    if len(eps) != 1 or not min(eps):
        raise NotUnderstood("its norms differ in eps")
    forms = [NormForm(min(eps), offset, rounds) for offset, rounds in _FORMS]
    for norm in map(_sample, tried):
        forms = [form for form in forms if torch.equal(normed(_row(norm), norm.weight, form), norm(_row(norm)))]
    if not forms:
        raise NotUnderstood(f"{type(norm).__name__} is of an unknown form")
    return forms[0]


def normed(x: Tensor, weight: Tensor, form: NormForm) -> Tensor:
    """x [..., n] normed, as the form says, in x's dtype with sums in FP32."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + form.eps)
    return ((wide.to(x.dtype) if form.rounds else wide).float() * (form.offset + weight.float())).to(x.dtype)


def _sample(norm: Any) -> Any:
    """A copy of the norm in bfloat16 on the CPU, its weights all different from one another."""
    made = copy.deepcopy(norm).to_empty(device="cpu").to(torch.bfloat16)
    with torch.no_grad():
        made.weight.copy_(torch.linspace(0.5, 1.5, made.weight.numel()))
    return made


def _row(norm: Any) -> Tensor:
    return torch.randn(4, norm.weight.numel(), generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)


def activation_form(module: nn.Module) -> int:
    """SILU, GELU_TANH or GELU."""
    row = torch.linspace(-6, 6, 97)
    for index, function in enumerate(ACTIVATIONS):
        if torch.allclose(module(row), function(row), atol=1e-6):
            return index
    raise NotUnderstood(f"its activation {type(module).__name__} is unknown")


def check_rotation(attention: nn.Module, head_dim: int, rotated: int) -> None:
    """Raise NotUnderstood unless the model turns the first half of the rotated columns with the second half."""
    function = getattr(sys.modules[type(attention).__module__], "apply_rotary_pos_emb", None)
    if function is None:
        raise NotUnderstood("its rotary embedding is not where it usually is")
    draw = torch.Generator().manual_seed(0)
    q, k = torch.randn(1, 2, 3, head_dim, generator=draw), torch.randn(1, 1, 3, head_dim, generator=draw)
    angles = torch.rand(1, 3, rotated // 2, generator=draw).repeat(1, 1, 2)
    try:
        found = function(q, k, angles.cos(), angles.sin())
    except (RuntimeError, TypeError, ValueError) as error:
        raise NotUnderstood("its rotary embedding is of another form") from error
    for x, y in zip((q, k), found, strict=True):
        if y.shape != x.shape or not torch.allclose(y, turned(x, angles.cos(), angles.sin()), atol=1e-5):
            raise NotUnderstood("it rotates its heads in another order")


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [..., T, head_dim] rotated by cos and sin [..., T, rotated]."""
    half, rotated = cos.shape[-1] // 2, cos.shape[-1]
    first, second, rest = x[..., :half], x[..., half:rotated], x[..., rotated:]
    return torch.cat([first * cos[..., :half] - second * sin[..., :half], second * cos[..., half:] + first * sin[..., half:], rest], -1)


def rotary_kind(config: Any, rotary: Any, index: int) -> str:
    """The name under which the rotary module keeps a layer's frequencies, "" where all layers share them."""
    types: Any = getattr(config, "layer_types", None)
    parameters: Any = getattr(config, "rope_parameters", None) or {}
    own = hasattr(rotary, "layer_types") and types is not None
    rope = parameters.get(types[index], parameters) if own else parameters
    kind = rope.get("rope_type", "default") if isinstance(rope, dict) else "default"
    if kind in _CHANGING:
        raise NotUnderstood(f"its rotary embedding ({kind}) depends on the length")
    return types[index] if own else ""


def rotary_rows(rotary: Any, kind: str, rows: int, hidden: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines [rows, rotated] as the model's own module gives them to rows of `dtype`."""
    positions, like = torch.arange(rows, device=device)[None], torch.zeros(1, 1, hidden, dtype=dtype, device=device)
    cos, sin = rotary(like, positions, kind) if kind else rotary(like, positions)
    return cos[0], sin[0]


@torch.no_grad()
def rotary_tables(parts: ModelParts, rows: int) -> dict[str, tuple[Tensor, Tensor]]:
    """By kind: cosines and sines [rows, rotated], float32, rounded where the model rounds them."""
    kinds = {layer.rotary for layer in parts.layers if layer.rotary is not None}
    found = {kind: rotary_rows(parts.rotary, kind, rows, parts.hidden, parts.final_norm.dtype, parts.device) for kind in kinds}
    return {kind: (cos.float().contiguous(), sin.float().contiguous()) for kind, (cos, sin) in found.items()}
