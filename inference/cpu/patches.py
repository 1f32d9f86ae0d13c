"""What lies between the products of a model on the CPU: norms, rotary embedding, gated activation and attention, one call each.

transformers writes each as a handful of small operators, and at a prompt's few rows their dispatch costs as much as a
third of the products. Each is taken only where it gives what the model's own code gives, up to rounding, where it is faster
here, and only for the case at hand (FP32, no mask but the causal one); everything else goes to the model's own code.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from inference.cpu import probe
from inference.cpu.library import VECTOR, Library, NotOurs
from inference.models import private

log = logging.getLogger(__name__)
MOST_ROWS = 128  # ours reads all keys for each row; for more rows torch's own, which works in blocks, is left in place
MOST_WIDTH = 256
TOLERANCE = 1e-5
TRIED_ROWS = (1, 24)  # an answer's, and a short prompt's
TRIED_KEYS = 64
Wrapped = Callable[..., Any]


@dataclass(frozen=True)
class Taken:
    """How many norms and gates of a model are ours, and whether its rotary embedding and attention are."""

    norms: int
    gates: int
    rotary: bool
    attention: bool


@torch.inference_mode()
def install(model: nn.Module, library: Library) -> Taken:
    """Give the parts of `model` that allow it our library's calls; the modules' code is changed in this process alone.

    Raises NotOurs where it is none; whatever it raises, the modules' own code is back.
    """
    tried: dict[Hashable, bool] = {}
    modules = list(model.modules())
    before = [vars(module).get("forward") for module in modules]
    try:
        found = Taken(
            sum(_norm(module, library, tried) for module in modules), sum(_gate(module, library, tried) for module in modules),
            _rotary(model, library), _attention(library),
        )  # fmt: skip
    except Exception:
        for module, forward in zip(modules, before, strict=True):
            vars(module).pop("forward", None)
            if forward is not None:
                module.forward = forward
        raise
    if not any(vars(found).values()):
        raise NotOurs("none of its parts is of a form that ours knows and slower than it here")
    log.info("parts in C: %s", found)
    return found


def _close(mine: torch.Tensor, own: torch.Tensor) -> bool:
    return mine.shape == own.shape and bool((mine - own).abs().max() <= TOLERANCE * own.abs().max())


def _random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _pays(tried: dict[Hashable, bool], key: Hashable, ours: Wrapped, own: Wrapped, *widths: int) -> bool:
    """Whether `ours` is faster than `own` on (rows, width) inputs for few rows and one; tried once for each `key`."""
    if key not in tried:
        inputs = [[_random(rows, rows, width) for width in widths] for rows in TRIED_ROWS]
        tried[key] = all(probe.faster(partial(ours, *given), partial(own, *given)) for given in inputs)
    return tried[key]


def _norm(module: nn.Module, library: Library, tried: dict[Hashable, bool]) -> bool:
    """An RMS norm is a module without children whose one parameter is a vector, which takes one tensor and gives what ours gives."""
    weight, eps = getattr(module, "weight", None), getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not isinstance(weight, nn.Parameter) or not isinstance(eps, float) or len(list(module.parameters())) != 1 or list(module.children()):
        return False
    own = module.forward
    if weight.dtype != torch.float32 or weight.dim() != 1 or len(weight) % VECTOR or len(inspect.signature(own).parameters) != 1:
        return False
    x = _random(0, 3, len(weight))
    expected = own(x)
    for plus in (0.0, 1.0):
        if _close(library.norm(x, weight, plus, eps), expected):

            def ours(x: torch.Tensor, plus: float = plus) -> torch.Tensor:
                return library.norm(x, weight, plus, eps)

            if _pays(tried, (type(module), len(weight)), ours, own, len(weight)):
                module.forward = ours
                return True
    return False


def _gate(module: nn.Module, library: Library, tried: dict[Hashable, bool]) -> bool:
    """A gated MLP is a module of three products and an activation, which gives what ours gives."""
    parts = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    activation = getattr(module, "act_fn", None)
    if not all(isinstance(part, nn.Linear) for part in parts) or activation is None or len(list(module.children())) != 4:
        return False
    gate, up, down = parts

    def forward(x: torch.Tensor) -> torch.Tensor:
        return down(library.silu_times(gate(x), up(x)))  # type: ignore[misc]

    def own(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return activation(gate) * up  # type: ignore[no-any-return]

    key, width = (type(module), type(activation), gate.in_features, gate.out_features), gate.out_features  # type: ignore[union-attr]
    if key not in tried:  # layers of one class and size have the same code, and going through them all takes seconds on a large model
        x = _random(0, 1, 3, gate.in_features)  # type: ignore[union-attr]
        right = width % VECTOR == 0 and _close(forward(x), module(x))
        tried[key] = right and _pays(tried, (type(activation), width), library.silu_times, own, width, width)
    if tried[key]:
        module.forward = forward
    return tried[key]


def _rotary(model: nn.Module, library: Library) -> bool:
    own = private.rotary(model)
    if own is None or hasattr(own, "own"):
        return own is not None

    def turned(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *rest: Any, **more: Any) -> tuple[torch.Tensor, torch.Tensor]:
        fits = all(t.dtype == torch.float32 and t.dim() == 4 and t.shape[0] == 1 and t.stride(3) == 1 and t.shape[3] == cos.shape[-1] for t in (q, k))
        if rest or more or not fits or cos.shape[-1] % (2 * VECTOR) or cos.dtype != torch.float32 or torch.compiler.is_compiling():
            return own(q, k, cos, sin, *rest, **more)  # type: ignore[no-any-return]
        cos, sin = cos.contiguous(), sin.contiguous()
        return library.rotate(q, cos, sin), library.rotate(k, cos, sin)

    for rows in TRIED_ROWS:
        given = [_random(i, *shape) for i, shape in enumerate(((1, 8, rows, 64), (1, 2, rows, 64), (1, rows, 64), (1, rows, 64)))]
        if not all(map(_close, turned(*given), own(*given))) or not probe.faster(partial(turned, *given), partial(own, *given)):
            return False
    turned.own = own  # type: ignore[attr-defined]
    private.set_rotary(model, turned)
    return True


def _attention(library: Library) -> bool:
    own = private.attention()
    if own is None or hasattr(own, "own"):
        return own is not None

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
    module.is_causal, module.num_key_value_groups = True, 4  # type: ignore[assignment]
    for rows, keys in ((1, TRIED_KEYS), *((rows, rows) for rows in (11, TRIED_ROWS[-1]))):
        given = [module, *(_random(heads, 1, heads, count, 64) for heads, count in ((8, rows), (2, keys), (2, keys))), None]
        if not _close(attend(*given)[0], own(*given)[0]):
            log.warning("our attention differs from torch's here; torch's own is used")
            return False
        if not probe.faster(partial(attend, *given), partial(own, *given)):
            return False
    attend.own = own  # type: ignore[attr-defined]
    private.set_attention(attend)
    return True
