"""The eager way: the ids of plain `generate` for every family, or a sentence."""

from __future__ import annotations

import pytest
import torch

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
