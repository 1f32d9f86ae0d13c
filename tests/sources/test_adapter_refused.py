"""What can't be merged right is refused with what to do, and what is no adapter is not taken for one; a base is found however it is named."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from peft import PrefixTuningConfig, PromptTuningConfig
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from inference.cache import cache, manifest
from inference.errors import InferenceError
from inference.settings import SMALL_MODEL, Settings
from inference.sources import default_model, fetching
from tests.support.adapters import TARGETS, changed, find, make_adapter
from tests.support.real import loaded_lane


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"task_type": "SEQ_CLS"}, "trained for SEQ_CLS, not for writing text"),
        ({"base_model_name_or_path": None}, "does not say which model it adapts. Set BASE_MODEL_ID"),
        ({"base_model_name_or_path": "/root/training/gemma"}, "its base /root/training/gemma can't be had. Set BASE_MODEL_ID"),
        ({"base_model_name_or_path": "unsloth/gemma-3-4b-it-unsloth-bnb-4bit"}, r"quantized.*Set BASE_MODEL_ID to the original \(unsloth/gemma-3-4b-it,"),
        ({"base_model_name_or_path": "unsloth/gemma-3-4b-it-bnb-4bit/", "revision": "main"}, r"the original \(unsloth/gemma-3-4b-it,"),
        ({"peft_type": "XLORA"}, "acts on some tokens only"),
        ({"alora_invocation_tokens": [3]}, "acts on some tokens only"),
        ({"layer_replication": [[0, 2]]}, "uses its base's layers several times"),
        ({"init_lora_weights": "pissa"}, "trained over a changed base"),
        ({"target_modules": ["q_proj"]}, "does not fit .*has no place for"),
        ({"target_modules": [*TARGETS, "gate_proj"]}, "does not fit .*would need"),
        ({"target_modules": ["query_key_value"]}, "does not fit"),
        ({"r": 8}, "does not fit"),
        ({"peft_type": "FROM_THE_FUTURE"}, "is a FROM_THE_FUTURE adapter whose adapter_config.json peft .* can't read .*Upgrade it"),
        ({"peft_type": None}, "names no peft_type"),
        ({"base_model_name_or_path": "~nobody-of-this-name/m"}, "its base ~nobody-of-this-name/m can't be had"),
    ],
)
def test_an_adapter_that_can_t_be_merged_right_is_refused_with_what_to_do(tmp_path, base, settings, values, words):
    adapter = make_adapter(tmp_path / "adapter", base)
    changed(adapter, **values)
    with pytest.raises(InferenceError, match=words):
        find(adapter, settings)


@pytest.mark.parametrize(
    "config", [PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"), PrefixTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM")]
)
def test_a_tuned_prompt_is_refused(tmp_path, base, settings, config):
    with pytest.raises(InferenceError, match="changes the prompt, not the weights, so there is nothing to merge"):
        find(make_adapter(tmp_path / "adapter", base, config), settings)


def test_an_adapter_of_another_base_s_shape_is_refused(tmp_path, base, settings):
    adapter = make_adapter(tmp_path / "adapter", base)
    model = AutoModelForCausalLM.from_config(AutoModelForCausalLM.from_pretrained(base).config.__class__(hidden_size=32, num_hidden_layers=1, vocab_size=512))
    model.save_pretrained(tmp_path / "other")
    with pytest.raises(InferenceError, match="does not fit"):
        find(adapter, Settings(cache_dir=settings.cache_dir, base_model_id=str(tmp_path / "other")))


def test_pickled_adapter_weights_are_refused_with_how_to_save_them_again(tmp_path, base, settings):
    adapter = make_adapter(tmp_path / "adapter", base)
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(InferenceError, match="pickle file, which can run code.*safe_serialization"):
        find(adapter, settings)


@pytest.mark.parametrize(("content", "words"), [(b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"), (None, "cut short")])
def test_adapter_weights_that_are_a_pointer_or_cut_short_are_told(tmp_path, base, settings, content, words):
    weights = make_adapter(tmp_path / "adapter", base) / "adapter_model.safetensors"
    weights.write_bytes(content or weights.read_bytes()[:-100])
    with pytest.raises(InferenceError, match=rf"adapter_model.safetensors is .*{words}"):
        find(tmp_path / "adapter", settings)


def test_of_several_adapters_one_must_be_named(tmp_path, base, settings):
    for name in ("waiter", "cook"):
        make_adapter(tmp_path / "adapters" / name, base)
    with pytest.raises(InferenceError, match=r"\(cook, waiter\). Point MODEL_ID at one: .*adapters/waiter"):
        find(tmp_path / "adapters", settings)


def test_the_full_precision_copy_may_be_an_adapter_beside_a_whole_model(tmp_path, base):
    adapter = make_adapter(tmp_path / "adapter", base)
    settings = Settings(model_id=str(base), cpu_model_id=str(adapter), cache_dir=str(tmp_path / "cache"))
    assert find(settings.model_for("cpu:nf4"), settings).adapter is None
    assert find(settings.model_for("cpu:fp32"), settings).adapter == f"{adapter} (LORA, rank 4)"


def test_an_adapter_over_the_default_model_takes_the_packaged_one_and_says_so(tmp_path, base, settings, monkeypatch):
    """Where the Hub is out of reach the menu's adapter still has its base, whose past is told with it."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    packaged = default_model.entry(cache.of(settings)).path
    shutil.copytree(base, packaged)
    manifest.seal(packaged, default_model.REVISION)
    adapter = make_adapter(tmp_path / "adapter", base)
    changed(adapter, base_model_name_or_path=SMALL_MODEL)
    found = find(adapter, settings)
    assert found.base == SMALL_MODEL and f"merged into {SMALL_MODEL}; " in found.note and "Q4_1 before" in found.note
    assert fetching.begin(str(adapter), settings)._process is None


def test_the_base_of_a_whole_fine_tune_is_the_one_that_the_settings_name(base, settings):
    named = Settings(cache_dir=settings.cache_dir, base_model_id="owner/base")
    assert (find(base, settings).base, find(base, named).base) == (None, "owner/base")


def test_a_quantized_base_is_refused_and_another_can_be_named(tmp_path, base, settings):
    """The configuration of an adapter trained in 4 bits names the 4-bit variant of its base."""
    four_bit = tmp_path / "four-bit"
    shutil.copytree(base, four_bit)
    config = json.loads((four_bit / "config.json").read_text())
    (four_bit / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "bitsandbytes"}}))
    adapter = make_adapter(tmp_path / "adapter", base)
    changed(adapter, base_model_name_or_path=str(four_bit))
    with pytest.raises(InferenceError, match=r"is quantized \(quantization_config in its config.json: bitsandbytes\).*Set BASE_MODEL_ID"):
        find(adapter, settings)
    found = find(adapter, Settings(cache_dir=settings.cache_dir, base_model_id=str(base)))
    assert found.base == str(base)


def test_an_adapter_over_an_adapter_is_refused(tmp_path, base, settings):
    first = make_adapter(tmp_path / "first", base)
    second = make_adapter(tmp_path / "second", base)
    changed(second, base_model_name_or_path=str(first))
    with pytest.raises(InferenceError, match="is an adapter itself. Merge that one first"):
        find(second, settings)


def test_a_merged_model_beside_which_its_adapter_was_left_is_a_whole_model_and_not_merged_again(tmp_path, base, settings):
    adapter = make_adapter(tmp_path / "adapter", base)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copy(adapter / name, base / name)
    found = find(base, settings)
    assert found.folder == base and found.adapter is None
    lane = loaded_lane("cpu:fp32", str(base), tmp_path / "cache")
    own = load_file(base / "model.safetensors")
    assert torch.equal(lane.model.state_dict()["model.layers.0.self_attn.q_proj.weight"].float(), own["model.layers.0.self_attn.q_proj.weight"].float())


def test_a_configuration_alone_beside_whole_weights_does_not_matter(tmp_path, base):
    (base / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    for name in ("cpu:fp32", "cpu:nf4"):
        assert loaded_lane(name, str(base), tmp_path / "cache").facts.adapter is None


def test_other_tensors_and_a_configuration_beside_an_adapter_make_it_no_model(tmp_path, base, settings):
    adapter = make_adapter(tmp_path / "checkpoint-500", base)
    shutil.copy(base / "config.json", adapter)
    save_file({"new_embeddings": torch.zeros(2, 2)}, adapter / "new_embeddings.safetensors")  # what vLLM reads added tokens from
    for name in ("optimizer.pt", "rng_state.pth", "training_args.bin"):
        (adapter / name).write_bytes(b"of the training")
    assert "merged into" in find(adapter, settings).note


@pytest.mark.parametrize("text", [b"[]", b"null", b"", b'{"peft_type": "\xe9', b"[" * 20_000, b"version https://git-lfs.github.com/spec/v1"])
@pytest.mark.parametrize("whose", ["adapter_config.json", "config.json"])
def test_a_configuration_that_is_no_json_object_is_named(tmp_path, base, settings, whose, text):
    adapter = make_adapter(tmp_path / "adapter", base)
    (adapter if whose.startswith("adapter") else base).joinpath(whose).write_bytes(text)
    with pytest.raises(InferenceError, match=rf"{whose} of .* is (no JSON object|empty|cut off|a Git LFS pointer)"):
        find(adapter, settings)


@pytest.mark.parametrize("values", [{"quantization_config": "gptq"}, {"quantization_config": [4]}, {"text_config": {"quantization_config": {"bits": 4}}}])
def test_a_base_that_says_in_any_form_that_it_is_quantized_is_refused(tmp_path, base, settings, values):
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | values))
    with pytest.raises(InferenceError, match="the base of .* is quantized"):
        find(make_adapter_of(tmp_path, base, config), settings)


def make_adapter_of(tmp_path, base, config):
    """An adapter over `base`, whose configuration is `config` while it is trained."""
    said = (base / "config.json").read_text()
    (base / "config.json").write_text(json.dumps(config))
    adapter = make_adapter(tmp_path / "adapter", base)
    (base / "config.json").write_text(said)
    return adapter


@pytest.mark.parametrize("written", ["{}", "{}/", "{}/../base", "~/base"])
def test_a_base_in_a_folder_is_found_however_its_path_is_written_and_has_no_revision(tmp_path, base, settings, monkeypatch, written):
    """A trainer that notes `"revision": "main"` beside a local base sent us to look for the folder base@main."""
    monkeypatch.setenv("HOME", str(tmp_path))
    adapter = make_adapter(tmp_path / "adapter", base)
    changed(adapter, base_model_name_or_path=written.format(base), revision="main")
    assert find(adapter, settings).base == written.format(base)


@pytest.mark.parametrize(
    ("values", "words"), [(lambda tensor: tensor[:0], "tensors without a value .* ZeRO-3"), (lambda tensor: tensor * torch.nan, "not finite")]
)
def test_an_adapter_whose_values_were_not_saved_is_told(tmp_path, base, settings, values, words):
    adapter = make_adapter(tmp_path / "adapter", base)
    weights = adapter / "adapter_model.safetensors"
    save_file({name: values(tensor).clone() for name, tensor in load_file(weights).items()}, weights)
    with pytest.raises(InferenceError, match=words):
        find(adapter, settings)
