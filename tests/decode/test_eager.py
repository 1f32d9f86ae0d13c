"""The eager way: the ids of plain `generate` for every family, or a sentence."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from inference.decode.decoder import answer
from inference.decode.eager import EagerDecoder, Forward, check_state
from inference.decode.sampling import Sampler
from inference.errors import InferenceError
from tests.support import families

IDS = list(range(3, 20))


@pytest.mark.parametrize("name", [*families.FAST, *families.EAGER])
def test_the_ids_are_those_of_generate(name: str) -> None:
    model = families.make(name)
    given = {"attention_mask": torch.ones(1, len(IDS), dtype=torch.long), "do_sample": False, "max_new_tokens": 20, "pad_token_id": 2}
    plain = model.generate(torch.tensor([IDS]), eos_token_id=None, **given)[0, len(IDS) :].tolist()
    assert list(answer(EagerDecoder(model), IDS, 20, Sampler())) == plain
    check_state(model, IDS)


def test_a_model_whose_cache_goes_by_another_name_is_refused() -> None:
    model = families.make("mamba")
    forward = model.forward
    model.forward = lambda input_ids, states=None, **_: forward(input_ids)
    with pytest.raises(InferenceError, match="MambaForCausalLM keeps its state in no cache that this lane knows"):
        Forward(model)


def test_a_model_that_drops_its_cache_is_refused() -> None:
    model = families.make("llama")
    forward = model.forward
    model.forward = lambda input_ids, cache=None, **_: forward(input_ids)
    with pytest.raises(InferenceError, match="keeps its state where this lane doesn't find it"):
        check_state(model, IDS)


def test_a_prompt_of_one_token_is_answered_as_if_nothing_had_been_asked_before() -> None:
    """RecurrentGemma keeps its state in its layers, and its code clears it for prompts of several tokens only: one visitor's prompt was in another's answer."""
    values = families.SHORT | {"lru_width": 64, "attention_window_size": 12, "block_types": ["recurrent", "attention"]}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("recurrent_gemma", **values)).eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.2)
    decoder = EagerDecoder(model)
    first = list(answer(decoder, IDS[:1], 12, Sampler()))
    list(answer(decoder, IDS, 12, Sampler()))
    assert list(answer(decoder, IDS[:1], 12, Sampler())) == first
