"""The check that lets a fast path in: its logits beside the model's own, as close as the model's own two ways of computing them are.

In: a model, its description, and what builds a runner of the fast path. Out: what was tried and how far apart it was (`Tried`, for the record);
NotUnderstood where it is too far. The whole model is tried on a few ids; one layer of each kind, between the embedding and the head,
past a short window, where one key more or less shows in 16 bits too, and past its own, so that no long prompt goes through the whole model.
Knows no device.
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

from inference.decode.eager import Forward
from inference.decode.sampling import inverse_cdf
from inference.parts.description import LayerParts, ModelParts, NotUnderstood
from inference.parts.reader import decoder_of

log = logging.getLogger(__name__)
WHOLE_IDS = 12
PAST = 40  # rows of a layer beyond its window
SHORT = 32  # the window that each longer one is tried as first; a layer that sees everything is tried as if this were its window
STEPS = 2  # the last ids go one at a time, and the logits after each of them are compared
TIMES = 3  # ours may be so many times as far from the model's as its own two ways are from each other
# ... or so many times as one rounding of its embedded ids moves it. In 16 bits the model's two ways may agree bit for bit, and whoever sums in
# another order rounds other values: on a GPU 0.4 to 1.1 times that, as the model's own two forms of attention do, for nine models and layers
ROUNDINGS = 2
# its own two ways may be so far apart; where they are further they compute two things (a window that only the cache knows, rows that see the ones after
# them), and nothing can be held against them. Rounding alone makes some 1e-6 in FP32, and some hundredths in 16 bits
MOST_APART, MOST_APART_IN_16_BITS = 1e-3, 0.5
FIT = 4  # rounding turns the logits and hardly scales them: the factor that fits ours best to the model's may be off by this part of the bound
BUDGET_S = 0.4  # for a forward of one layer: where one past a long window would take longer, the short one is all that is tried
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

    `scale`: the factor, less one, by which the model's logits fit ours best. `one_rounding`: how far one rounding of the embedded ids moves
    the model's logits; None where that did not have to be known.
    """

    what: str
    rows: int
    difference: float
    scale: float
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
        with _only(model, index):
            found += _layer_alone(index, model, parts, build)
    log.info("the fast path was compared in %.1f s: %s", time.perf_counter() - began, found)
    return tuple(found)


def as_record(found: tuple[Tried, ...]) -> tuple[dict[str, Any], ...]:
    """What was tried, as the record has it."""
    return tuple(asdict(each) for each in found)


def _layer_alone(index: int, model: PreTrainedModel, parts: ModelParts, build: Build) -> Iterator[Tried]:
    layer = parts.layers[index]
    for window in _windows(model, layer.window):
        with _window(model, layer, window):
            alone, rows = replace(parts, layers=(replace(layer, window=window),)), (window or SHORT) + PAST
            instead = "" if window == layer.window else f", a window of {window} in the place of {layer.window}"
            yield _compared(f"layer {index} alone{instead}", model, alone, build(alone, rows), rows)


def _compared(what: str, model: PreTrainedModel, parts: ModelParts, runner: Runner, rows: int) -> Tried:
    draw = torch.Generator().manual_seed(rows)
    ids = torch.randint(max(1, parts.head.rows // 2), (rows,), generator=draw).tolist()
    once, steps = _at_once(model, ids), _one_by_one(model, ids)
    ours = torch.stack([runner.run(ids[: rows - STEPS], 0)] + [runner.run([ids[at]], at) for at in range(rows - STEPS, rows)]).to(once)
    ways, least = _distance(steps, once), _rounding(parts)
    if ways > (MOST_APART if parts.final_norm.dtype == torch.float32 else MOST_APART_IN_16_BITS):
        raise NotUnderstood(f"the model's own two ways, all ids at once and one at a time, differ by {ways:.2g} of its logits' size ({what}, {rows} ids)")
    tried = _judged(what, rows, ours, once, ways, None, least)
    if not _allowed(tried, least) and (shaken := _shaken(model, parts, ids)) is not None:
        tried = _judged(what, rows, ours, once, ways, _distance(shaken, once), least)
    if not _allowed(tried, least):
        rounds = "" if tried.one_rounding is None else f", one rounding moves it by {tried.one_rounding:.2g}"
        raise NotUnderstood(
            f"our own step's logits differ from the model's by {tried.difference:.2g} of their size and by a factor of {1 + tried.scale:.6g} "
            f"({what}, {rows} ids), where its own two ways differ by {tried.plain_ways:.2g}{rounds}, and {tried.bound:.2g} is allowed"
        )
    return tried


def _judged(what: str, rows: int, ours: Tensor, truth: Tensor, ways: float, one_rounding: float | None, least: float) -> Tried:
    scale = float((ours * truth).sum() / (truth * truth).sum()) - 1
    return Tried(what, rows, _distance(ours, truth), scale, ways, one_rounding, max(TIMES * ways, ROUNDINGS * (one_rounding or 0), least))


def _allowed(tried: Tried, least: float) -> bool:
    return tried.difference <= tried.bound and abs(tried.scale) <= max(tried.bound / FIT, least)  # NaN is not


def _distance(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).norm() / truth.norm())


def _rounding(parts: ModelParts) -> float:
    """What FP32 sums in another order may come to: a rounding for each addition of the residual stream, as a random walk."""
    return 2 * torch.finfo(torch.float32).eps * math.sqrt(len(parts.layers) * parts.hidden)


def _at_once(model: PreTrainedModel, ids: list[int]) -> Tensor:
    """Logits [STEPS + 1, vocabulary] after the last ids, all of them in one forward."""
    output = model(input_ids=torch.tensor([ids], device=model.device), use_cache=False, logits_to_keep=STEPS + 1)
    return output.logits[0].float()


def _shaken(model: PreTrainedModel, parts: ModelParts, ids: list[int]) -> Tensor | None:
    """The same with every embedded value moved by up to half a unit in its last place; None in FP32."""
    embedded = parts.embed(torch.tensor([ids], device=model.device))
    if embedded.dtype == torch.float32:
        return None
    unit = torch.finfo(embedded.dtype).eps
    moved = torch.rand(embedded.shape, generator=torch.Generator().manual_seed(len(ids))).to(embedded.device) - 0.5
    output = model(inputs_embeds=(embedded.double() * (1 + moved * unit)).to(embedded.dtype), use_cache=False, logits_to_keep=STEPS + 1)
    return output.logits[0].float()


def _one_by_one(model: PreTrainedModel, ids: list[int]) -> Tensor:
    """The same over a cache, the last ids one at a time."""
    forward, cache = Forward(model), DynamicCache(config=model.config)
    pieces = [ids[:-STEPS], *([each] for each in ids[-STEPS:])]
    return torch.cat([forward(torch.tensor([piece]), cache) for piece in pieces])


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


def _windows(model: PreTrainedModel, own: int) -> list[int]:
    """What the model's one layer is tried with: its own window, before it a short one, and only that where its own would take too long here."""
    if own <= SHORT:
        return [own]
    ids = list(range(SHORT + PAST))
    _at_once(model, ids)
    began = time.perf_counter()
    float(_at_once(model, ids)[0, 0])  # waits for a GPU too
    each = (time.perf_counter() - began) / len(ids)
    return [SHORT, own] if each * (own + PAST) < BUDGET_S else [SHORT]


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
