"""What a token costs: the bytes that a step of decode reads, and the numbers that each token of a prompt is multiplied with."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from inference.models.facts import matrix_parameters, step_bytes, weights_bytes
from tests.support.four_bit import four_bit_layer
from tests.support.kinds import GROUPED


def model(**more):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **GROUPED | more))


@pytest.mark.parametrize("tied", [True, False])
def test_of_an_embedding_that_is_no_head_only_a_row_is_read(tied):
    found = model(tie_word_embeddings=tied)
    embedding = found.get_input_embeddings().weight
    assert step_bytes(found) == weights_bytes(found) - (0 if tied else embedding.nbytes)


@pytest.mark.parametrize("tied", [True, False])
def test_only_the_layers_matrices_are_multiplied_with_each_token_of_a_prompt(tied):
    found = model(tie_word_embeddings=tied)
    assert matrix_parameters(found) == sum(p.numel() for name, p in found.named_parameters() if "proj" in name)


def test_packed_4_bit_weights_count_as_the_numbers_that_they_are():
    found = model()
    before = matrix_parameters(found)
    for name, layer in list(found.named_modules()):
        if "proj" in name:
            found.set_submodule(name, four_bit_layer(layer.weight.detach().float()))
    assert matrix_parameters(found) == before
