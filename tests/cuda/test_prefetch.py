"""The kernels of a model are compiled from its configuration alone, once, while its weights are read; other families are refused by name."""

from __future__ import annotations

import threading

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig, Gemma3Config

from inference.cuda import device_code, prefetch
from inference.cuda.device_code import NoDeviceCode, compile_source
from inference.cuda.parts import NotFusable, check_form, read_parts
from inference.cuda.step import kernel_macros
from inference.models.skeleton import skeleton
from tests.support.quantized import MODELS, quantized

SMALL = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
OTHERS = {
    "olmo2": "has no input_layernorm",
    "olmo3": "has no input_layernorm",
    "nemotron": "has no gate_proj",
    "arcee": "has no gate_proj",
    "exaone4": "has no input_layernorm",
    "phi3": "has no q_proj",
    "gpt2": "no stack of decoder layers",
}


@pytest.mark.parametrize("name", MODELS)
def test_the_skeleton_says_what_the_loaded_model_says(name):
    model = quantized(name)
    assert prefetch.macros_of(model.config) == kernel_macros(read_parts(model))


@pytest.mark.parametrize("name", MODELS)
def test_a_form_that_our_step_knows_is_known_without_weights(name):
    loaded = quantized(name)
    quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    check_form(skeleton(loaded.config, (), torch.bfloat16, quantization).model)
    loaded.config.head_dim = 48
    with pytest.raises(NotFusable, match="48 columns|x 96|144"):
        check_form(skeleton(loaded.config, (), torch.bfloat16, quantization).model)


def test_a_multimodal_configuration_is_read_by_its_text_part():
    text = {**SMALL, "head_dim": 64, "sliding_window": 12}
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    assert prefetch.macros_of(config) == {"HEAD_DIM": 64, "Q_HEADS": 4, "KV_HEADS": 2, "NORM_OFFSET": "1.f", "NORM_ROUNDS": 0, "ACTIVATION": 1}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_family_that_our_step_does_not_know_is_refused_in_a_sentence(kind):
    config = AutoConfig.for_model(kind) if kind == "gpt2" else AutoConfig.for_model(kind, **SMALL, pad_token_id=0)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    for asked in (check_form, read_parts):
        with pytest.raises(NotFusable, match=OTHERS[kind]):
            asked(model)


def test_layers_of_several_sizes_are_refused():
    model = quantized("llama")
    model.model.layers[1].mlp = quantized("qwen3").model.layers[0].mlp
    with pytest.raises(NotFusable, match="differ in size"):
        read_parts(model)


def test_who_asks_while_it_is_compiled_waits_and_gets_the_same(monkeypatch):
    begun, go, compiled = threading.Event(), threading.Event(), []

    def slow(source, macros, architecture):
        compiled.append((source, macros, architecture))
        begun.set()
        assert go.wait(10)
        return b"code"

    monkeypatch.setattr(device_code, "_compile", slow)
    monkeypatch.setattr(device_code, "_images", {})
    first = threading.Thread(target=compile_source, args=("s", {"A": 1}, "sm_90"))
    first.start()
    assert begun.wait(10)
    threading.Timer(0.05, go.set).start()
    assert compile_source("s", {"A": 1}, "sm_90") == b"code" and len(compiled) == 1
    first.join(10)
    compile_source("s", {"A": 2}, "sm_90")
    assert len(compiled) == 2, "other macros are another image"


def test_a_failed_compilation_is_told_to_each_who_asks(monkeypatch):
    def broken(*_):
        raise NoDeviceCode("libnvrtc was not found")

    monkeypatch.setattr(device_code, "_compile", broken)
    monkeypatch.setattr(device_code, "_images", {})
    for _ in range(2):
        with pytest.raises(NoDeviceCode, match="libnvrtc"):
            compile_source("s", {}, "sm_90")
