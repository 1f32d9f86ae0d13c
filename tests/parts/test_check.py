"""The load-time check: a right step of every family passes it, and one fault anywhere does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from inference.parts import check
from inference.parts.description import ModelParts, NotUnderstood
from inference.parts.reader import read_parts
from tests.support import families, reference


class Reference:
    """A runner that computes everything anew in FP64."""

    def __init__(self, parts: ModelParts, positions: int) -> None:
        self.parts, self.positions, self.ids = parts, positions, list[int]()

    def run(self, ids: list[int], start: int) -> torch.Tensor:
        self.ids[start:] = ids
        assert len(self.ids) <= self.positions
        return reference.logits(self.parts, self.ids)[-1].float()


def faulty(change):
    """Builds runners of a description that was changed."""
    return lambda parts, positions: Reference(change(parts), positions)


def in_layers(change):
    return lambda parts: replace(parts, layers=tuple(change(layer) for layer in parts.layers))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", families.FAST)
def test_a_right_step_is_let_in_and_the_model_is_left_as_it_was(name: str, dtype: torch.dtype) -> None:
    model = families.make(name, dtype)
    before = [(place, dict(vars(place))) for place in (model.config, *(layer.self_attn for layer in model.model.layers))]
    ids = torch.tensor([[3, 4, 5, 6]])
    logits = model(ids).logits
    found = check.let_in(model, read_parts(model), Reference)
    assert found[0].what == "the whole model" and all(each.difference <= each.bound for each in found)
    assert all(dict(vars(place)) == values for place, values in before) and torch.equal(model(ids).logits, logits)


def test_each_kind_of_layer_is_tried_past_its_window() -> None:
    model = families.make("gemma3")
    found = check.let_in(model, read_parts(model), Reference)
    assert [(each.what, each.rows) for each in found[1:]] == [("layer 0 alone", 12 + check.PAST), ("layer 1 alone", check.SHORT + check.PAST)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stray", [{"sliding_window": 8}, {"sliding_window": 4096}, {"is_causal": False}], ids=str)
def test_a_model_whose_own_two_ways_compute_two_things_lets_nothing_in(stray, dtype) -> None:
    """Keys that Llama's class does not know, and its cache or its mask does: the bound grew with what they changed, and any step passed."""
    model = families.make("llama", dtype)
    for name, value in stray.items():
        setattr(model.config, name, value)
    with pytest.raises(NotUnderstood, match="own two ways, all ids at once and one at a time, differ by"):
        check.let_in(model, read_parts(model), Reference)


FAULTS = [
    ("gemma3", in_layers(lambda layer: replace(layer, window=layer.window + 1) if layer.window else layer)),
    ("mistral, a window", in_layers(lambda layer: replace(layer, window=0))),
    ("mistral, a window", in_layers(lambda layer: replace(layer, window=layer.window - 1))),
    ("smollm3", in_layers(lambda layer: replace(layer, rotary=""))),
    ("granite", lambda parts: replace(parts, residual_scale=1.0)),
    ("gemma2", lambda parts: replace(parts, attention_cap=0.0)),
    ("llama", lambda parts: replace(parts, norm=replace(parts.norm, offset=1))),
    ("llama", lambda parts: replace(parts, logit_scale=1.02)),
    ("olmo2", in_layers(lambda layer: replace(layer, q_norm=None))),
    ("qwen3", in_layers(lambda layer: replace(layer, k_norm=layer.q_norm))),
    ("gemma", lambda parts: replace(parts, activation=0)),
    ("phi4-mini, part of a head", in_layers(lambda layer: replace(layer, k=layer.v))),
]
# what 16 bits round away, in models this small
FINE_FAULTS = [
    ("granite", lambda parts: replace(parts, attention_scale=parts.attention_scale * 1.01)),
    ("gemma2", lambda parts: replace(parts, logit_cap=0.0)),
    ("llama", lambda parts: replace(parts, norm=replace(parts.norm, eps=1e-5))),
    ("gemma", lambda parts: replace(parts, activation=2)),
]


@pytest.mark.parametrize(
    ("dtype", "name", "change"),
    [(torch.float32, *fault) for fault in FAULTS + FINE_FAULTS] + [(torch.bfloat16, *fault) for fault in FAULTS],
)
def test_a_fault_is_not_let_in(dtype: torch.dtype, name: str, change) -> None:
    model = families.make(name, dtype)
    with pytest.raises(NotUnderstood, match="its own two ways differ by"):
        check.let_in(model, read_parts(model), faulty(change))


def test_a_window_is_tried_as_a_short_one_first_and_as_nothing_else_where_the_machine_is_slow(monkeypatch) -> None:
    monkeypatch.setattr(check, "SHORT", 8)
    model = families.make("gemma3")
    short, own, full = "layer 0 alone, a window of 8 in the place of 12", "layer 0 alone", "layer 1 alone"
    assert [each.what for each in check.let_in(model, read_parts(model), Reference)[1:]] == [short, own, full]
    monkeypatch.setattr(check, "BUDGET_S", 0.0)
    assert [each.what for each in check.let_in(model, read_parts(model), Reference)[1:]] == [short, full]
    with pytest.raises(NotUnderstood, match="a window of 8"):
        check.let_in(model, read_parts(model), faulty(in_layers(lambda layer: replace(layer, window=0))))


def test_a_layer_that_sees_everything_is_tried_as_such_on_a_slow_machine_too(monkeypatch) -> None:
    monkeypatch.setattr(check, "BUDGET_S", 0.0)
    model = families.make("gemma3")
    assert [each.what for each in check.let_in(model, read_parts(model), Reference)[1:]] == ["layer 0 alone", "layer 1 alone"]


def test_the_model_is_shaken_only_where_its_own_two_ways_do_not_allow_enough(monkeypatch) -> None:
    model = families.make("llama")
    monkeypatch.setattr(check, "_shaken", lambda *_: pytest.fail("a forward for nothing"))
    assert all(each.one_rounding is None for each in check.let_in(model, read_parts(model), Reference))
    monkeypatch.undo()
    monkeypatch.setattr(check, "TIMES", 0)
    monkeypatch.setattr(check, "_rounding", lambda _: 0.0)
    model = families.make("llama", torch.bfloat16)
    assert all(each.one_rounding is not None and each.one_rounding > 0 for each in check.let_in(model, read_parts(model), Reference))


def test_numbers_that_are_none_are_not_let_in() -> None:
    class Nothing(Reference):
        def run(self, ids: list[int], start: int) -> torch.Tensor:
            return super().run(ids, start) * float("nan")

    model = families.make("llama")
    with pytest.raises(NotUnderstood, match="nan"):
        check.let_in(model, read_parts(model), Nothing)


def test_a_path_that_samples_by_itself_must_sample_as_the_others_do() -> None:
    class Sampling(Reference):
        def run(self, ids: list[int], start: int) -> torch.Tensor:
            self.last = super().run(ids, start)
            return self.last

        def sampled(self, temperature: float, uniform: float) -> tuple[int, torch.Tensor]:
            return int(self.last.argmax()), self.last

    model = families.make("llama")
    with pytest.raises(NotUnderstood, match="samples another id"):
        check.let_in(model, read_parts(model), Sampling)
