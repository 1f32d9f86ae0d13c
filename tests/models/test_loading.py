"""Loading on real tiny files: the very values that `from_pretrained` gives, the text part alone, and a sentence for what is something else."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig

from inference.errors import InferenceError, Refused
from inference.fast import ALL, FastWays
from inference.models import arguments, exact, loading
from inference.sources.at_hand import Checkpoint
from tests.support.kinds import KINDS, NOT_IN_4_BITS, change_config, make_form, make_kind
from tests.support.tiny import make_checkpoint

LANES = ("cpu:nf4", "cpu:fp32")
QUANTIZED = {
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    "awq": {"quant_method": "awq", "bits": 4},
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "compressed-tensors": {"quant_method": "compressed-tensors", "format": "pack-quantized"},
    "mxfp4": {"quant_method": "mxfp4"},
    "bitsandbytes, 8 bits": {"quant_method": "bitsandbytes", "load_in_8bit": True},
}


def load(folder, lane, ways=ALL):
    return loading.load(Checkpoint("tiny", folder), lane, lambda _: None, FastWays(lane, ways))


def facts(model, folder, lane):
    if lane == "cpu:fp32":
        exact.install(model, exact.in_fp32)
    return loading.describe(model, Checkpoint("tiny", folder), lane, 1)


def plain(folder, lane):
    return AutoModelForCausalLM.from_pretrained(folder, **arguments.model_arguments(lane)).eval()


def assert_same(ours, theirs):
    for (name, one), (other_name, other) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert name == other_name and torch.equal(one.float(), other.float()), name
        states = [getattr(weight, "quant_state", None) for weight in (one, other)]
        assert (states[0] is None) == (states[1] is None)
        if states[0] is not None:
            assert torch.equal(states[0].absmax, states[1].absmax) and states[0].shape == states[1].shape and states[0].dtype == states[1].dtype
    for (name, one), (_, other) in zip(ours.named_buffers(), theirs.named_buffers(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.parametrize("name", [name for name in KINDS if name not in NOT_IN_4_BITS and "multimodal" not in name])
def test_four_bits_are_bit_for_bit_those_of_from_pretrained(tmp_path, name):
    folder = make_kind(tmp_path, name)
    assert_same(load(folder, "cpu:nf4"), plain(folder, "cpu:nf4"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("computed", [torch.bfloat16, torch.float32], ids=str)
def test_they_are_so_from_any_file_in_any_arithmetic(tmp_path, monkeypatch, dtype, computed):
    monkeypatch.setattr(arguments, "compute_dtype", lambda *_: computed)
    folder = make_kind(tmp_path, "llama, untied", dtype)
    assert_same(load(folder, "cpu:nf4"), plain(folder, "cpu:nf4"))


@pytest.mark.parametrize("ways", [(), ALL], ids=["FP32 all", "compact"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["llama, tied", "gpt2, Conv1D", "qwen3_moe"])
def test_full_precision_has_the_values_of_from_pretrained(tmp_path, name, dtype, ways):
    folder = make_kind(tmp_path, name, dtype)
    assert_same(load(folder, "cpu:fp32", ways), plain(folder, "cpu:fp32"))


def test_the_generation_settings_are_those_of_from_pretrained(tmp_path):
    folder = make_checkpoint(tmp_path)
    change_config(folder, eos_token_id=[1, 4])
    assert load(folder, "cpu:fp32").generation_config.to_dict() == plain(folder, "cpu:fp32").generation_config.to_dict()
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 3], "top_k": 5}')
    assert load(folder, "cpu:fp32").generation_config.to_dict() == plain(folder, "cpu:fp32").generation_config.to_dict()


@pytest.mark.parametrize("values", ['{"pad_token_id": [1]}', '{"max_new_tokens": -1}', '{"compile_config": {}}'])
def test_generation_settings_that_can_t_be_are_told_with_their_file(tmp_path, values):
    (make_checkpoint(tmp_path) / "generation_config.json").write_text(values)
    with pytest.raises(InferenceError, match=r"The generation_config.json of tiny can't be used .*Correct it"):
        load(tmp_path, "cpu:fp32")


# ---- what is kept as it was


def test_experts_that_do_not_become_4_bits_are_named_with_their_share(tmp_path):
    """71 % of the bytes under "NF4" were experts in 16 bits, and no word."""
    folder = make_kind(tmp_path, "qwen3_moe")
    model = load(folder, "cpu:nf4")
    found = facts(model, folder, "cpu:nf4")
    experts = sum(p.nbytes for name, p in model.named_parameters() if "experts" in name) / found.weights_bytes
    assert f"model.layers.*.mlp.experts.gate_up_proj (float32, {experts * 2 / 3:.1%})" in found.not_quantized
    assert "of the bytes are not in 4 bits: model.layers.*.mlp.experts.gate_up_proj (float32)" in found.note
    assert sum(found.held.values()) == found.weights_bytes and found.held["4-bit"] < found.weights_bytes / 10


def test_experts_in_fp32_are_in_the_label(tmp_path):
    folder = make_kind(tmp_path, "qwen3_moe")
    model = load(folder, "cpu:fp32")
    found = facts(model, folder, "cpu:fp32")
    assert found.storage_dtype == "bfloat16 (exact)+float32" and found.held["float32"] > found.held["bfloat16"]


def test_a_model_whose_layers_are_all_in_4_bits_has_no_note(tmp_path):
    found = facts(load(make_kind(tmp_path, "llama, untied"), "cpu:nf4"), tmp_path, "cpu:nf4")
    assert found.note is None and found.not_quantized[0].startswith(("lm_head (", "model.embed_tokens ("))


def test_exact_is_said_of_values_that_were_compared_with_the_file_s(tmp_path):
    """A file of FP32 values was rounded to 16 bits on the way, and called exact."""
    folder = make_kind(tmp_path, "llama, untied", torch.float32)
    tensors = load_file(folder / "model.safetensors")
    rounded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    assert any(not torch.equal(tensor.bfloat16().float(), tensor) for tensor in tensors.values())
    for name in ("model.norm.weight", *(f"model.layers.{i}.{norm}_layernorm.weight" for i in (0, 1) for norm in ("input", "post_attention"))):
        rounded.get_submodule(name.removesuffix(".weight")).float()
    assert "exact" not in facts(rounded, folder, "cpu:fp32").storage_dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_values_that_the_file_has_are_exact_however_it_has_them(tmp_path, dtype):
    folder = make_form(tmp_path, "text", dtype)
    model = load(folder, "cpu:fp32")
    stored = "float16" if dtype == torch.float16 else "bfloat16"
    assert facts(model, folder, "cpu:fp32").storage_dtype == f"{stored} (exact)"
    model.model.layers[1].mlp.up_proj.weight.data[3, 4] += 0.5
    assert facts(model, folder, "cpu:fp32").storage_dtype == f"{stored} (not the file's values)"


# ---- what is something else


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("lane", LANES)
def test_a_quantized_checkpoint_is_refused_with_its_field_and_method(tmp_path, name, lane):
    """An fp8 checkpoint was labelled "FP32, bfloat16 (exact)"."""
    folder = change_config(make_checkpoint(tmp_path), quantization_config=QUANTIZED[name])
    with pytest.raises(Refused, match=rf"quantized already \(quantization_config in config.json: {QUANTIZED[name]['quant_method']}"):
        load(folder, lane)


@pytest.mark.parametrize("lane", LANES)
def test_a_quantization_that_only_the_configuration_speaks_of_is_told_as_that(tmp_path, lane):
    """A QLoRA that was merged with its base's quantization_config left in config.json ended the 4-bit lane's load in a trace."""
    section = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    folder = change_config(make_checkpoint(tmp_path), quantization_config=section)
    with pytest.raises(Refused, match="by that word alone: none of its weights is.* Delete quantization_config"):
        load(folder, lane)


@pytest.mark.parametrize(
    ("values", "words"), [({"architectures": ["Gemma3TextForSequenceClassification"]}, "judges a text"), ({"is_encoder_decoder": True}, "encoder")]
)
def test_a_model_that_does_not_go_on_with_a_text_is_refused(tmp_path, values, words):
    """A classifier over a tied embedding lacks no weight of a text model's: it answered."""
    with pytest.raises(Refused, match=words):
        load(change_config(make_checkpoint(tmp_path), **values), "cpu:fp32")


@pytest.mark.parametrize("lane", LANES)
def test_an_attention_that_needs_a_package_of_its_own_is_not_asked_for(tmp_path, lane):
    model = load(change_config(make_checkpoint(tmp_path), attn_implementation="flash_attention_2"), lane)
    assert model.config._attn_implementation == "sdpa"


def test_a_configuration_that_no_model_can_be_made_by_is_told(tmp_path):
    folder = change_config(make_checkpoint(tmp_path, kind="llama"), rope_parameters={"rope_type": "ntk-parts", "rope_theta": 1e4, "factor": 8.0})
    with pytest.raises(InferenceError, match="No llama model can be made by this config.json"):
        load(folder, "cpu:fp32")


def test_weights_under_other_names_and_a_head_that_is_not_there_are_told_with_what_to_do(tmp_path):
    folder = change_config(make_checkpoint(tmp_path, kind="llama"), tie_word_embeddings=False)
    with pytest.raises(InferenceError, match="set tie_word_embeddings to true"):
        load(folder, "cpu:fp32")
    compiled = {f"_orig_mod.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(compiled, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InferenceError, match=r"have no place in it \(the first: _orig_mod\."):
        load(folder, "cpu:fp32")


@pytest.mark.parametrize("lane", LANES)
def test_8_bit_values_are_seen_without_a_word_in_the_configuration(tmp_path, lane):
    folder = make_checkpoint(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    save_file(tensors | {name: tensors[name].to(torch.float8_e4m3fn)}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(Refused, match=rf"8-bit values \(F8_E4M3, first in {name}"):
        load(folder, lane)


def test_a_checkpoint_in_bitsandbytes_4_bits_computes_in_the_lane_s_own_dtype(tmp_path):
    folder, copy = make_checkpoint(tmp_path / "whole"), tmp_path / "copy"
    half = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float16)
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float16, quantization_config=half, device_map="cpu").save_pretrained(copy)
    model = load(copy, "cpu:nf4", ways=())
    ours = arguments.compute_dtype("cpu")
    found = facts(model, copy, "cpu:nf4")
    assert (found.precision, found.compute_dtype) == ("NF4", str(ours).removeprefix("torch."))
    assert {p.dtype for p in model.parameters() if p.is_floating_point()} == {ours}
    assert {m.weight.quant_state.dtype for m in model.modules() if hasattr(getattr(m, "weight", None), "quant_state")} == {ours}
    assert torch.isfinite(model(input_ids=torch.arange(5, 15)[None]).logits).all()
    with pytest.raises(Refused, match="bitsandbytes, 4 bits.*full precision"):
        load(copy, "cpu:fp32")


@pytest.mark.parametrize("storage", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_bytes_of_4_bit_weights_are_bytes_whatever_they_are_stored_as(tmp_path, storage):
    """QLoRA with FSDP stores them as bfloat16: they were converted like values, and the load ended in a trace."""
    folder, models = make_checkpoint(tmp_path / "whole", "llama"), {}
    for kind in (torch.uint8, storage):
        section = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_quant_storage=kind)
        AutoModelForCausalLM.from_pretrained(folder, quantization_config=section, device_map="cpu").save_pretrained(tmp_path / str(kind))
        models[kind] = load(tmp_path / str(kind), "cpu:nf4")
    assert_same(models[storage], models[torch.uint8])
    assert facts(models[storage], tmp_path, "cpu:nf4").held == facts(models[torch.uint8], tmp_path, "cpu:nf4").held


def test_a_checkpoint_in_fp4_is_not_shown_as_nf4(tmp_path):
    section = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "fp4"}
    with pytest.raises(Refused, match=r"quantized to FP4 \(bnb_4bit_quant_type"):
        load(change_config(make_checkpoint(tmp_path), quantization_config=section), "cpu:nf4")


def with_more(folder, change):
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | change(tensors), folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize("lane", LANES)
def test_a_tensor_without_a_place_is_named(tmp_path, lane):
    more = "model.layers.7.self_attn.q_proj.weight"
    folder = with_more(make_checkpoint(tmp_path), lambda tensors: {more: tensors[more.replace("7", "1")].clone()})
    assert f"its files hold 1 tensor for which the model has no place, so not used: {more}" in facts(load(folder, lane), folder, lane).note


def test_left_over_parts_of_older_versions_are_no_news(tmp_path):
    folder = with_more(make_checkpoint(tmp_path, "llama"), lambda _: {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(16)})
    assert facts(load(folder, "cpu:fp32"), folder, "cpu:fp32").note is None


@pytest.mark.parametrize("lane", LANES)
def test_whole_layers_without_a_place_make_it_another_model(tmp_path, lane):
    folder = change_config(make_checkpoint(tmp_path, "llama"), num_hidden_layers=1)
    with pytest.raises(InferenceError, match=r"1 layer more .*the first: model\.layers\.1\b.*num_hidden_layers"):
        load(folder, lane)


@pytest.mark.parametrize("lane", LANES)
def test_whole_numbers_in_a_place_of_values_are_a_quantization(tmp_path, lane):
    """int8 weights whose scales nobody read were labelled "FP32, bfloat16 (exact)"."""
    name = "model.layers.0.mlp.up_proj.weight"
    folder = with_more(make_checkpoint(tmp_path), lambda tensors: {name: tensors[name].to(torch.int8), f"{name}_scale": torch.ones(128)})
    with pytest.raises(Refused, match=rf"quantized already: {name} is stored as I8"):
        load(folder, lane)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("change", [lambda tensor: tensor.T.contiguous(), lambda tensor: tensor[:100].clone(), lambda tensor: tensor[0, 0]])
def test_a_tensor_of_another_shape_is_named_with_both(tmp_path, lane, change):
    """In 4 bits it was loaded, and failed in its first product."""
    name = "model.layers.0.mlp.up_proj.weight"
    folder = with_more(make_checkpoint(tmp_path), lambda tensors: {name: change(tensors[name])})
    with pytest.raises(InferenceError, match=rf"{name} has the shape \[.*\] in its file, and by config.json \[128, 64\]"):
        load(folder, lane)


@pytest.mark.parametrize("lane", LANES)
def test_one_parameter_under_two_names_is_not_chosen_between(tmp_path, lane):
    name = "layers.0.mlp.up_proj.weight"
    folder = with_more(make_checkpoint(tmp_path), lambda tensors: {name: tensors[f"model.{name}"] + 1})
    with pytest.raises(InferenceError, match=rf"model\.{name} twice in its files"):
        load(folder, lane)


def test_more_layers_than_tensors_are_refused_before_they_are_made(tmp_path):
    folder = change_config(make_checkpoint(tmp_path, "llama"), num_hidden_layers=10**7)
    with pytest.raises(InferenceError, match=r"tensors in its files and 10000000 layers by its config\.json"):
        load(folder, "cpu:fp32")


@pytest.mark.parametrize("computed", [torch.bfloat16, torch.float32], ids=str)
def test_a_gpu_without_bfloat16_keeps_16_bit_values_as_storage(tmp_path, monkeypatch, computed):
    monkeypatch.setattr(arguments, "compute_dtype", lambda *_: computed)
    folder, ways = make_checkpoint(tmp_path, "llama"), FastWays("cuda:nf4", ALL)
    plan = loading.plan("tiny", AutoConfig.from_pretrained(folder), loading.tensors_of(folder), "cuda:nf4", ways)
    assert plan.arguments["dtype"] == computed
    assert ways.may("compact") == (computed == torch.float32) and "compact" not in ways.why_not


def test_the_product_of_16_bit_storage_is_that_of_its_values(monkeypatch):
    monkeypatch.setattr(exact, "IN_CACHE", 160)  # ten rows at a time
    weight, x, bias = torch.randn(33, 16).bfloat16(), torch.randn(3, 16), torch.randn(33)
    assert torch.allclose(exact.in_fp32(x, weight, bias), torch.nn.functional.linear(x, weight.float(), bias), atol=1e-5)
