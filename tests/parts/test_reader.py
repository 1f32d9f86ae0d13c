"""The reader: what it says of a model is what the model's own code computes, and what it doesn't know it refuses by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from inference.parts.description import NotUnderstood
from inference.parts.reader import check_form, read_parts
from tests.support import families, reference

IDS = torch.randint(3, 150, (40,), generator=torch.Generator().manual_seed(0)).tolist()  # past the windows of 12


@pytest.mark.parametrize("name", families.FAST)
@torch.no_grad()
def test_a_description_computes_what_the_model_does(name: str) -> None:
    model = families.make(name)
    truth = model(torch.tensor([IDS])).logits[0].double()
    error = (reference.logits(read_parts(model), IDS) - truth).norm() / truth.norm()
    assert error < 2e-5
    assert truth.argmax(-1).unique().numel() > 3  # a model that says one thing would hide a fault


@pytest.mark.parametrize("name", families.FAST)
def test_a_skeleton_is_judged_as_the_model_is(name: str) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(families.make(name).config)
    check_form(model)


@pytest.mark.parametrize("name", families.EAGER)
def test_another_family_is_refused_with_a_reason(name: str) -> None:
    with pytest.raises(NotUnderstood) as refusal:
        read_parts(families.make(name))
    assert len(str(refusal.value)) > 10


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda layer: layer.self_attn.add_module("sinks", nn.Linear(2, 2)), "layer 1 has sinks"),
        (lambda layer: setattr(layer.self_attn, "temperature_tuning", 0.5), "layer 1 sets temperature_tuning to 0.5"),
        (lambda layer: delattr(layer.self_attn, "head_dim"), "no attention whose heads are of one size"),
        (lambda layer: delattr(layer, "self_attn"), "no attention whose heads are of one size"),
        (lambda layer: setattr(layer, "residual_multiplier", 0.5), "differ in a scale"),
        (lambda layer: layer.register_parameter("gain", nn.Parameter(torch.ones(1))), "layer 1 has parameters of its own"),
        (lambda layer: setattr(layer.self_attn, "scaling", 0.5), "differ in a scale"),
        (lambda layer: setattr(layer.input_layernorm, "variance_epsilon", 1e-3), "differ in eps"),
        (lambda layer: layer.self_attn.config.rope_parameters.update(beta_of_its_own=0.1), "rotary embedding sets beta_of_its_own to 0.1"),
        (lambda layer: setattr(layer, "input_layernorm", nn.LayerNorm(64)), "LayerNorm is not an RMSNorm"),
    ],
)
def test_what_one_layer_has_beside_the_others_is_refused_by_name(change, words) -> None:
    model = families.make("llama")
    change(model.model.layers[1])
    with pytest.raises(NotUnderstood, match=words):
        read_parts(model)


def test_a_stray_key_of_a_configuration_is_nobody_s_business_and_a_declared_one_is() -> None:
    model = families.make("llama")
    model.config.unsloth_fixed = True
    read_parts(model)
    granite = families.make("granite")
    granite.model.query_multiplier = 0.5
    with pytest.raises(NotUnderstood, match=r"sets query_multiplier to 0\.5"):
        read_parts(granite)
