"""The check that lets a fast path in: its logits beside the model's own, as close as the model's own two ways of computing them are.

In: a model, its description, and what builds a runner of the fast path. Out: what was tried and how far apart it was (`Tried`, for the record);
NotUnderstood where it is too far. The whole model is tried on a few ids; one layer of each kind, between the embedding and the head,
past its window, so that no long prompt goes through the whole model. Knows no device.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from inference.decode.sampling import inverse_cdf
from inference.models.private import cache_argument
from inference.parts.description import LayerParts, ModelParts, NotUnderstood
from inference.parts.reader import decoder_of

log = logging.getLogger(__name__)
WHOLE_IDS = 12
PAST = 40  # rows of a layer beyond its window
NO_WINDOW = 32  # a layer that sees everything is tried as if this were its window
STEPS = 4  # the last ids go one at a time, and the logits after each of them are compared
TIMES = 3  # ours may be so many times as far from the model's as its own two ways are from each other
# ... or so many times as one rounding of its embedded ids moves it. In 16 bits the model's two ways may agree bit for bit, and whoever sums in
# another order rounds other values: on a GPU 0.4 to 1.1 times that, as the model's own two forms of attention do, for nine models and layers
ROUNDINGS = 2
BUDGET_S = 1.2  # for a forward of one layer: where a long window would take longer, a short one stands in its place
UNIFORMS = (0.0, 0.31, 0.9999)


class Runner(Protocol):
    """A fast path over a description, with a cache of its own."""

    def run(self, ids: list[int], start: int) -> Tensor:
        """Put the ids at `start`, `start` + 1, ...; logits [vocabulary], float32, after the last."""
        ...


Build = Callable[[ModelParts, int], Runner]  # a description of all layers or of one, and the positions needed


@dataclass(frozen=True)
class Tried:
    """One comparison: the distance of ours from the model's logits, as a share of their size, of the model's own two ways, and what was allowed.

    `one_rounding`: how far one rounding of the embedded ids moves the model's logits; None where it did not have to be known.
    """

    what: str
    rows: int
    difference: float
    plain_ways: float
    one_rounding: float | None
    bound: float


@torch.inference_mode()
def let_in(model: PreTrainedModel, parts: ModelParts, build: Build) -> tuple[Tried, ...]:
    """What was tried, all of it within bounds; raises NotUnderstood for the first that is not."""
    began = time.perf_counter()
    runner = build(parts, WHOLE_IDS)
    found = [_compared("the whole model", model, parts, runner, WHOLE_IDS)]
    _check_sampled(runner)
    for index in _one_of_each_kind(parts):
        layer = parts.layers[index]
        with _only(model, index):
            window = _affordable_window(model, parts, layer)
            with _window(model, layer, window):
                alone = replace(parts, layers=(replace(layer, window=window),))
                rows = (window or NO_WINDOW) + PAST
                what = f"layer {index} alone" + (f", a window of {window} in the place of {layer.window}" if window != layer.window else "")
                found.append(_compared(what, model, alone, build(alone, rows), rows))
    log.info("the fast path was compared in %.1f s: %s", time.perf_counter() - began, found)
    return tuple(found)


def as_record(found: tuple[Tried, ...]) -> tuple[dict[str, Any], ...]:
    """What was tried, as the record has it."""
    return tuple(asdict(each) for each in found)


def _compared(what: str, model: PreTrainedModel, parts: ModelParts, runner: Runner, rows: int) -> Tried:
    draw = torch.Generator().manual_seed(rows)
    ids = torch.randint(max(1, parts.head.rows // 2), (rows,), generator=draw).tolist()
    once, steps = _at_once(model, ids), _one_by_one(model, ids)
    ours = [runner.run(ids[: rows - STEPS], 0)] + [runner.run([ids[at]], at) for at in range(rows - STEPS, rows)]
    difference, ways = (_distance(other, once) for other in (torch.stack(ours).to(once), steps))
    one_rounding, bound = None, max(TIMES * ways, _rounding(parts))
    if not difference <= bound:  # NaN is not
        one_rounding = _distance(_shaken(model, parts, ids), once)
        bound = max(bound, ROUNDINGS * one_rounding)
    if not difference <= bound:
        raise NotUnderstood(
            f"our own step's logits differ from the model's by {difference:.2g} of their size ({what}, {rows} ids), "
            f"where its own two ways differ by {ways:.2g}, one rounding moves it by {one_rounding:.2g}, and {bound:.2g} is allowed"
        )
    return Tried(what, rows, difference, ways, one_rounding, bound)


def _distance(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).norm() / truth.norm())


def _rounding(parts: ModelParts) -> float:
    """What FP32 sums in another order may come to: a rounding for each addition of the residual stream, as a random walk."""
    return 2 * torch.finfo(torch.float32).eps * math.sqrt(len(parts.layers) * parts.hidden)


def _at_once(model: PreTrainedModel, ids: list[int]) -> Tensor:
    """Logits [STEPS + 1, vocabulary] after the last ids, all of them in one forward."""
    output = model(input_ids=torch.tensor([ids], device=model.device), use_cache=False, logits_to_keep=STEPS + 1)
    return output.logits[0].float()


def _shaken(model: PreTrainedModel, parts: ModelParts, ids: list[int]) -> Tensor:
    """The same with every embedded value moved by up to half a unit in its last place."""
    embedded = parts.embed(torch.tensor([ids], device=model.device))
    unit = torch.finfo(embedded.dtype).eps
    moved = torch.rand(embedded.shape, generator=torch.Generator().manual_seed(len(ids))).to(embedded.device) - 0.5
    output = model(inputs_embeds=(embedded.double() * (1 + moved * unit)).to(embedded.dtype), use_cache=False, logits_to_keep=STEPS + 1)
    return output.logits[0].float()


def _one_by_one(model: PreTrainedModel, ids: list[int]) -> Tensor:
    """The same over a cache, the last ids one at a time."""
    found, cache = [], DynamicCache(config=model.config)
    for start, end in [(0, len(ids) - STEPS)] + [(at, at + 1) for at in range(len(ids) - STEPS, len(ids))]:
        given = torch.tensor([ids[start:end]], device=model.device)
        positions = torch.arange(start, end, device=model.device)[None]
        output = model(input_ids=given, position_ids=positions, use_cache=True, logits_to_keep=1, **{cache_argument(model): cache})
        found.append(output.logits[0, -1].float())
    return torch.stack(found)


def _check_sampled(runner: Any) -> None:
    """Where the fast path chooses ids by itself: those that `sampling.py` would choose from the logits of its last run."""
    if not hasattr(runner, "sampled"):
        return
    for uniform in UNIFORMS:
        chosen, logits = runner.sampled(1.0, uniform)
        if chosen != int(inverse_cdf(logits[None], 1.0, uniform)):
            raise NotUnderstood(f"our own step samples another id than ours for the number {uniform}")


def _one_of_each_kind(parts: ModelParts) -> list[int]:
    """The first layer of each kind: what it attends to, how it is rotated, the sizes of its matrices, which norms and biases it has."""
    first: dict[Any, int] = {}
    for index, layer in enumerate(parts.layers):
        first.setdefault(_kind(layer), index)
    return list(first.values())


def _kind(layer: LayerParts) -> tuple[Any, ...]:
    matrices = (layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down)
    norms = (layer.before_attention, layer.after_attention, layer.before_mlp, layer.after_mlp, layer.q_norm, layer.k_norm)
    forms = [(m.rows, m.columns, m.first, m.bias is not None, m.state is not None, m.module.weight.dtype) for m in matrices]
    return layer.window, layer.rotary, *forms, *[norm is not None for norm in norms]


def _affordable_window(model: PreTrainedModel, parts: ModelParts, layer: LayerParts) -> int:
    """The layer's window, or a short one where a forward past it would take too long on this machine."""
    if layer.window <= NO_WINDOW:
        return layer.window
    ids = list(range(NO_WINDOW + PAST))
    _at_once(model, ids)
    began = time.perf_counter()
    float(_at_once(model, ids)[0, 0])  # waits for a GPU too
    each = (time.perf_counter() - began) / len(ids)
    return layer.window if each * (layer.window + PAST) < BUDGET_S else NO_WINDOW


@contextlib.contextmanager
def _only(model: PreTrainedModel, index: int) -> Iterator[None]:
    """While open, the model is its embedding, layer `index` and its head."""
    decoder = decoder_of(model)
    config, layers, layer = decoder.config, decoder.layers, decoder.layers[index]
    kept = {name: getattr(config, name) for name in ("num_hidden_layers", "layer_types") if getattr(config, name, None) is not None}
    place = layer.self_attn.layer_idx
    try:
        decoder.layers, config.num_hidden_layers, layer.self_attn.layer_idx = nn.ModuleList([layer]), 1, 0
        if "layer_types" in kept:
            config.layer_types = [kept["layer_types"][index]]
        yield
    finally:
        decoder.layers, layer.self_attn.layer_idx = layers, place
        for name, value in kept.items():
            setattr(config, name, value)


@contextlib.contextmanager
def _window(model: PreTrainedModel, layer: LayerParts, window: int) -> Iterator[None]:
    """While open, the model's one layer sees `window` keys, as its own code has it."""
    places = [decoder_of(model).config, decoder_of(model).layers[0].self_attn]
    kept = [(place, place.sliding_window) for place in places if getattr(place, "sliding_window", None) == layer.window]
    try:
        for place, _ in kept:
            place.sliding_window = window
        yield
    finally:
        for place, value in kept:
            place.sliding_window = value
