"""The kernels of a model are compiled from its configuration alone, once, while its weights are read; other models are refused in a sentence."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Gemma3Config

from inference.cuda import device_code, kernels, prefetch
from inference.cuda.device_code import NoDeviceCode, compile_source
from inference.cuda.packed import check_sizes, pack
from inference.cuda.program import layout
from inference.models.skeleton import skeleton
from inference.parts.description import NotUnderstood
from inference.parts.reader import read_parts
from tests.support import families
from tests.support.quantized import in_16_bits, made, quantized
from tests.support.tiny import make_checkpoint

SMALL = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}


HOPPER = (132, 232448)


def layout_of(parts):
    try:
        return layout(parts, *HOPPER).macros
    except NotUnderstood:
        return None


@pytest.mark.parametrize("name", families.FAST)
def test_the_skeleton_says_what_the_loaded_model_says(name):
    model = made(name)
    packed = pack(read_parts(model))
    parts = prefetch.described(model.config)
    assert kernels.macros(parts, 16, False) == kernels.macros(packed.parts, packed.bits, packed.wide, packed.head_bits)
    assert prefetch.step_macros(parts, 16, *HOPPER) == layout_of(packed.parts)


@pytest.mark.parametrize("name", ["gemma3", "phi3"])
def test_and_of_weights_in_four_bits(name):
    model = quantized(name)
    assert prefetch.step_macros(prefetch.described(model.config), 4, *HOPPER) == layout_of(read_parts(model))


def test_weights_in_four_bits_and_activations_in_float32_are_other_kernels():
    model = in_16_bits(quantized("llama", torch.float32))
    packed = pack(read_parts(model))
    assert kernels.macros(prefetch.described(model.config), 4, True) == kernels.macros(packed.parts, packed.bits, packed.wide, packed.head_bits)
    assert (packed.bits, packed.wide) == (4, True)


def test_a_form_that_the_kernels_know_is_known_without_weights():
    loaded = quantized("gemma3")
    quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    check_sizes(read_parts(skeleton(loaded.config, (), torch.bfloat16, quantization).model))
    loaded.config.head_dim = 48
    with pytest.raises(NotUnderstood, match="heads have 48 columns|a matrix of"):
        check_sizes(read_parts(skeleton(loaded.config, (), torch.bfloat16, quantization).model))


def test_a_multimodal_configuration_is_read_by_its_text_part():
    text = {**SMALL, "head_dim": 64, "sliding_window": 12}
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    found = kernels.macros(prefetch.described(config), 4, False)
    assert (found["HEAD_DIM"], found["Q_HEADS"], found["KV_HEADS"], found["NORM_OFFSET"], found["ACTIVATION"]) == (64, 4, 2, "1.f", 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: setattr(m.model.layers[1], "mlp", made("mistral, a window").model.layers[0].mlp), "differ in size"),
        (lambda m: m.lm_head.to(torch.float32), "head is stored in torch.float32"),
        (lambda m: m.model.layers[1].input_layernorm.to(torch.float32), "norms are of several dtypes"),
        (lambda m: m.model.layers[0].mlp.down_proj.to(torch.float16), "stored in torch.float16"),
        (lambda m: m.to(torch.float16), "computes in torch.float16"),
        (lambda m: m.to(torch.float32), "float32"),
    ],
)
def test_what_the_kernels_cannot_do_is_refused_by_name(change, words):
    model = made("llama")
    change(model)
    with pytest.raises(NotUnderstood, match=words):
        pack(read_parts(model))


def test_a_model_quantized_in_part_is_refused():
    model = quantized("llama")
    model.model.layers[1].mlp.down_proj = made("llama").model.layers[1].mlp.down_proj
    with pytest.raises(NotUnderstood, match="several formats"):
        pack(read_parts(model))


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


def test_kernels_are_compiled_ahead_for_a_card_that_does_not_say_all_of_itself(monkeypatch):
    """As on ZeroGPU before the page opens: what a worker will ask for is there, and nothing asked a device."""
    compiled = []
    monkeypatch.setattr(device_code, "_compile", lambda source, macros, target: compiled.append((source, macros, target)) or b"code")
    monkeypatch.setattr(device_code, "_images", {})
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (12, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(major=12, minor=0, multi_processor_count=188))
    model = quantized("gemma3")
    parts = read_parts(model)
    prefetch.ahead(model.config, torch.device("cuda"), 4)
    assert [(macros, target) for _, macros, target in compiled] == [
        (kernels.macros(parts, 4, False), "sm_120"),
        (layout(parts, 188, 101_376).macros, "sm_120"),
    ]
    compile_source(*compiled[0])
    assert len(compiled) == 2


def test_a_failed_compilation_is_told_to_each_who_asks(monkeypatch):
    def broken(*_):
        raise NoDeviceCode("libnvrtc was not found")

    monkeypatch.setattr(device_code, "_compile", broken)
    monkeypatch.setattr(device_code, "_images", {})
    for _ in range(2):
        with pytest.raises(NoDeviceCode, match="libnvrtc"):
            compile_source("s", {}, "sm_90")


def test_a_model_that_transformers_put_in_4_bits_is_read(tmp_path):
    quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    folder = make_checkpoint(tmp_path, "gemma3_text")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, quantization_config=quantization, device_map="cpu")
    assert pack(read_parts(model)).bits == 4
