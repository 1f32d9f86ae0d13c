"""The model that tokens are judged by: each weight of a 4-bit or 16-bit lane as the FP32 number that it stands for."""

from __future__ import annotations

import bitsandbytes as bnb
import pytest
import torch
from transformers import AutoModelForCausalLM

from inference.bench import plain
from inference.bench.dequantized import Dequantized, to_fp32
from inference.events import Request
from inference.lane.source import Source
from inference.models import arguments
from inference.settings import Settings
from inference.timing import Stopwatch
from tests.support.four_bit import by_nf4
from tests.support.tiny import make_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("tiny"), "llama")


def in_full(folder):
    """The checkpoint's values in FP32, its layers' matrices through 4 bits and back."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for name, parameter in model.named_parameters():
        if "proj" in name:
            parameter.data = by_nf4(parameter.data)
    return model


def answered(way, source, request):
    ids, _, _ = source.encode(request)
    watch = Stopwatch()
    watch.start()
    return way.answer(source, request, ids, watch).token_ids


def test_it_answers_as_the_checkpoint_does_in_fp32_with_its_matrices_through_4_bits(folder):
    source, request = Source("cpu:nf4", Settings(model_id=str(folder))), Request("hello", max_new_tokens=12)
    source.read(lambda _: None)
    way, right = Dequantized("cpu:nf4"), plain.Generate("cpu:fp32")
    facts, _ = way.load(source, lambda _: None)
    right.model = in_full(folder)
    assert (facts.precision, facts.compute_dtype) == ("FP32", "float32")
    assert answered(way, source, request) == answered(right, source, request)
    for name, parameter in right.model.named_parameters():
        torch.testing.assert_close(way.model.get_parameter(name), parameter, rtol=1e-6, atol=0)


def test_16_bit_weights_become_the_same_numbers_in_fp32(folder):
    model, right = (AutoModelForCausalLM.from_pretrained(folder, dtype=dtype) for dtype in (torch.bfloat16, torch.float32))
    to_fp32(model, "cpu")
    assert {p.dtype for p in model.parameters()} == {torch.float32} and model.lm_head.weight is model.model.embed_tokens.weight
    assert all(torch.equal(model.get_parameter(name), parameter) for name, parameter in right.named_parameters())


@pytest.mark.parametrize(("has_bf16", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_plain_s_4_bits_on_a_processor_compute_in_what_bitsandbytes_has_products_for(monkeypatch, has_bf16, dtype):
    monkeypatch.setattr(bnb.functional, "has_avx512bf16", lambda: has_bf16)
    monkeypatch.setattr(arguments, "compute_dtype", lambda *_: torch.float32)  # whatever our lane does
    found = plain.arguments("cpu:nf4")
    assert found["dtype"] == found["quantization_config"].bnb_4bit_compute_dtype == dtype
    assert plain.arguments("cpu:fp32") == arguments.model_arguments("cpu:fp32")
