"""An adapter is merged into its base once, as peft would in FP32; both lanes load the result; what can't be merged right is refused."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from peft import AdaLoraConfig, IA3Config, LNTuningConfig, LoHaConfig, LoKrConfig, OFTConfig
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from inference.cache import manifest
from inference.errors import InferenceError
from inference.events import Request
from inference.host import child
from inference.sources import fetching
from tests.support.adapters import TARGETS, changed, find, in_fp32, logits, lora, make_adapter
from tests.support.kinds import change_config, make_kind
from tests.support.multimodal import make_multimodal
from tests.support.real import answer, loaded_lane
from tests.support.tiny import make_checkpoint, make_tokenizer

KINDS = {
    "lora": lora(),
    "rslora, a rank of its own for one kind": lora(use_rslora=True, rank_pattern={"q_proj": 8}),
    "dora": lora(use_dora=True),
    "with a whole module saved": lora(modules_to_save=["up_proj"]),
    "with a whole head": lora(modules_to_save=["lm_head"]),
    "with the embedding adapted": lora(target_modules=[*TARGETS, "embed_tokens"]),
    "with a few tokens trained": lora(trainable_token_indices=[3, 4, 300]),
    "ia3": IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], task_type="CAUSAL_LM"),
    "adalora": AdaLoraConfig(init_r=4, target_r=2, total_step=10, target_modules=TARGETS, task_type="CAUSAL_LM"),
    "loha": LoHaConfig(r=4, target_modules=TARGETS, task_type="CAUSAL_LM"),
    "lokr": LoKrConfig(r=4, target_modules=TARGETS, task_type="CAUSAL_LM"),
    "norms": LNTuningConfig(target_modules=["input_layernorm"], task_type="CAUSAL_LM"),
    "oft": OFTConfig(oft_block_size=16, target_modules=TARGETS, task_type="CAUSAL_LM"),
}


def stored_as(base, dtype):
    """The checkpoint in folder `base` again, in another dtype, its matrices not exact in 16 bits."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + 1e-3 * torch.rand_like(parameter))
    model.to(dtype).save_pretrained(base)


@pytest.mark.parametrize(
    ("kind", "dtype"), [*((kind, dtype) for kind in KINDS for dtype in (torch.float32, torch.bfloat16)), ("lora", torch.float16), ("dora", torch.float16)]
)
def test_a_merged_adapter_answers_as_the_adapter_does_and_is_peft_s_own_merge_bit_for_bit(tmp_path, base, settings, kind, dtype):
    stored_as(base, dtype)
    adapter = make_adapter(tmp_path / "adapter", base, KINDS[kind])
    found = find(adapter, settings)
    unmerged = in_fp32(base, adapter)
    wanted = logits(unmerged)
    merged = unmerged.merge_and_unload()
    ours = AutoModelForCausalLM.from_pretrained(found.folder, dtype=torch.float32)
    if dtype == torch.float32:
        assert (logits(ours) - wanted).abs().max() < 1e-5 * wanted.abs().max()
    expected = {name: tensor.to(dtype) for name, tensor in merged.state_dict().items() if "rotary" not in name}
    if kind == "with the embedding adapted":
        expected.pop("lm_head.weight")  # peft lets the tied head change with the embedding, the adapter did not
    got = {name: tensor for file in found.folder.glob("*.safetensors") for name, tensor in load_file(file).items()}
    assert {tensor.dtype for tensor in got.values()} == {dtype}
    assert all(torch.equal(tensor, expected[name]) for name, tensor in got.items() if name in expected)
    assert set(expected) - set(got) <= {"lm_head.weight"}
    assert ("lm_head.weight" in got) == (kind in {"with a whole head", "with the embedding adapted"}), "the head stays the embedding unless one of them changed"


def test_what_rounding_lost_of_the_change_is_measured_and_told_with_what_the_base_is(tmp_path, base, settings):
    stored_as(base, torch.bfloat16)
    adapter = make_adapter(tmp_path / "adapter", base)
    found = find(adapter, settings)
    before, stored = (load_file(folder / "model.safetensors") for folder in (base, found.folder))
    exact = in_fp32(base, adapter).merge_and_unload().state_dict()
    change = sum((exact[name] - tensor.float()).double().square().sum() for name, tensor in before.items())
    lost = sum((stored[name].float() - exact[name]).double().square().sum() for name in before)
    share = 100 * float(lost / change) ** 0.5
    assert share > 0.1 and f"storing it in bfloat16 lost {share:.2g} % of its change" in found.note
    assert (found.id, found.base, found.adapter) == (str(adapter), str(base), f"{adapter} (LORA, rank 4)")


def test_on_a_base_in_fp32_nothing_is_lost(tmp_path, base, settings):
    stored_as(base, torch.float32)
    assert "stored in float32, nothing of its change was lost" in find(make_adapter(tmp_path / "adapter", base), settings).note


def test_a_base_of_several_dtypes_keeps_each(tmp_path, base, settings):
    tensors = load_file(base / "model.safetensors")
    save_file({name: tensor.float() if "norm" in name else tensor for name, tensor in tensors.items()}, base / "model.safetensors", {"format": "pt"})
    adapter = make_adapter(tmp_path / "adapter", base)
    merged = load_file(find(adapter, settings).folder / "model.safetensors")
    assert {name: tensor.dtype for name, tensor in merged.items()} == {name: tensor.dtype for name, tensor in load_file(base / "model.safetensors").items()}
    exact = in_fp32(base, adapter).merge_and_unload().state_dict()
    assert all(torch.equal(tensor, exact[name].to(tensor.dtype)) for name, tensor in merged.items())


@pytest.mark.parametrize("tied", [True, False])
def test_tokens_that_the_training_added_come_with_the_adapter(tmp_path, base, settings, tied):
    if not tied:
        model = AutoModelForCausalLM.from_pretrained(base, tie_word_embeddings=False)
        model.lm_head.weight.data.normal_(0, 0.02)
        model.save_pretrained(base)
    adapter = make_adapter(tmp_path / "adapter", base, rows=515)
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["<dish>", "<drink>"])
    tokenizer.save_pretrained(adapter)
    found = find(adapter, settings)
    wanted = logits(in_fp32(base, adapter, rows=515).to(torch.bfloat16).float())
    got = logits(AutoModelForCausalLM.from_pretrained(found.folder, dtype=torch.float32))
    assert got.shape[-1] == 515 and (got - wanted).abs().max() < 0.05 * wanted.abs().max()
    assert "<dish>" in AutoTokenizer.from_pretrained(found.folder).get_vocab()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("more", [{"modules_to_save": ["embed_tokens", "lm_head"]}, {"trainable_token_indices": [512, 513, 514]}], ids=str)
def test_what_peft_saves_twice_of_added_tokens_is_no_tensor_without_a_place(tmp_path, settings, tied, more):
    """The usual recipe for added tokens, embedding and head trained whole, was refused as if it were over another base."""
    base = make_kind(tmp_path / "base", "llama, tied" if tied else "llama, untied", torch.float32)
    adapter = make_adapter(tmp_path / "adapter", base, lora(**more), rows=515)
    wanted = logits(in_fp32(base, adapter, rows=515))
    got = logits(AutoModelForCausalLM.from_pretrained(find(adapter, settings).folder, dtype=torch.float32))
    assert got.shape[-1] == 515 and (got - wanted).abs().max() < 1e-5 * wanted.abs().max()
    if "modules_to_save" in more:
        weights = adapter / "adapter_model.safetensors"
        save_file({name: tensor + ("head.modules_to_save" in name) for name, tensor in load_file(weights).items()}, weights)
        with pytest.raises(InferenceError, match="has no place for 1 tensors .*lm_head.modules_to_save.weight"):
            find(adapter, settings)


def test_added_tokens_whose_rows_were_not_saved_are_refused(tmp_path, base, settings):
    adapter = make_adapter(tmp_path / "adapter", base, lora(target_modules=["embed_tokens"]), rows=515)
    tensors = load_file(adapter / "adapter_model.safetensors")
    save_file({name: tensor for name, tensor in tensors.items() if "base_layer" not in name}, adapter / "adapter_model.safetensors")
    with pytest.raises(InferenceError, match="does not fit|does not hold all the new rows"):
        find(adapter, settings)


def test_tokenizer_template_and_generation_config_come_from_the_adapter_where_it_has_them(tmp_path, base, settings):
    (base / "generation_config.json").write_text('{"eos_token_id": 1}')
    adapter = make_adapter(tmp_path / "adapter", base)
    found = find(adapter, settings)
    assert json.loads((found.folder / "generation_config.json").read_text())["eos_token_id"] == 1
    assert (found.folder / "tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()
    (adapter / "chat_template.jinja").write_text("waiter: {{ messages[0]['content'] }}")
    (adapter / "generation_config.json").write_text('{"eos_token_id": 4}')
    found = find(adapter, settings)
    assert AutoTokenizer.from_pretrained(found.folder).apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "waiter: hi"
    assert json.loads((found.folder / "generation_config.json").read_text())["eos_token_id"] == 4


@pytest.mark.parametrize("tuned", [True, False], ids=["the adapter's", "the base's"])
def test_of_several_templates_the_one_for_a_conversation_is_taken(tmp_path, base, settings, tuned):
    """Named templates in the adapter's tokenizer_config.json gave way to the base's template, without a word."""
    adapter = make_adapter(tmp_path / "adapter", base)
    owner = adapter if tuned else base
    make_tokenizer(with_template=False).save_pretrained(owner)
    (owner / "chat_template.jinja").unlink(missing_ok=True)
    file = owner / "tokenizer_config.json"
    several = [{"name": "tool_use", "template": "a tool"}, {"name": "default", "template": "waiter: {{ messages[0]['content'] }}"}]
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": several}))
    tokenizer = AutoTokenizer.from_pretrained(find(adapter, settings).folder)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "waiter: hi"


def test_what_an_adapter_says_and_this_peft_does_not_know_is_named(tmp_path, base, settings):
    adapter = make_adapter(tmp_path / "adapter", base)
    changed(adapter, use_superlora=True, superlora_config=None)
    note = find(adapter, settings).note
    assert "its settings use_superlora=True are not known to peft" in note and "superlora_config" not in note


def test_an_adapter_that_changes_nothing_is_told(tmp_path, base, settings):
    adapter = make_adapter(tmp_path / "adapter", base)
    weights = adapter / "adapter_model.safetensors"
    save_file({name: tensor * ("lora_A" in name) for name, tensor in load_file(weights).items()}, weights)
    assert "it changes nothing" in find(adapter, settings).note


def test_both_lanes_load_the_merged_adapter_and_name_it(tmp_path, base, settings):
    adapter = make_adapter(tmp_path / "adapter", base)
    folder = find(adapter, settings).folder
    for name in ("cpu:fp32", "cpu:nf4"):
        lane = loaded_lane(name, str(adapter), tmp_path / "cache")
        assert lane.facts.adapter == f"{adapter} (LORA, rank 4)" and lane.facts.base == str(base) and "merged into" in lane.facts.note
        assert (
            answer(lane, Request("hello", max_new_tokens=8)).token_ids
            == answer(loaded_lane(name, str(folder), tmp_path / "cache"), Request("hello", max_new_tokens=8)).token_ids
        )


def test_a_merge_is_done_once_and_found_without_a_process_or_torch(tmp_path, base, settings):
    adapter = make_adapter(tmp_path / "adapter", base)
    found = fetching.begin(str(adapter), settings).result(lambda _: None)
    stamp = (found.folder / "model.safetensors").stat().st_mtime_ns
    code = (
        "import sys, subprocess; subprocess.Popen = None\n"
        "from inference.sources import fetching; from inference.settings import from_env\n"
        "print(fetching.begin(sys.argv[1], from_env()).result(print).folder, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(adapter)], env=child.environment(**settings.to_env()), capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [str(found.folder), "False"], done.stderr
    assert (found.folder / "model.safetensors").stat().st_mtime_ns == stamp


def test_a_merge_is_made_anew_when_the_adapter_the_base_or_the_copy_changed(tmp_path, base, settings):
    adapter = make_adapter(tmp_path / "adapter", base)
    file = find(adapter, settings).folder / "model.safetensors"
    digests = [manifest.digest(file)]
    make_adapter(adapter, base, seed=2)
    find(adapter, settings)
    digests.append(manifest.digest(file))
    make_checkpoint(base, "llama", seed=5)
    find(adapter, settings)
    digests.append(manifest.digest(file))
    assert len(set(digests)) == 3
    file.write_bytes(file.read_bytes()[:1000])
    assert "made anew" in find(adapter, settings).note and manifest.digest(file) == digests[-1]


def test_a_base_that_names_an_attention_that_needs_a_package_is_merged_into(tmp_path, settings):
    base = make_checkpoint(tmp_path / "base", "llama")
    adapter = make_adapter(tmp_path / "adapter", base)
    change_config(base, _attn_implementation="flash_attention_2")
    merged = find(adapter, settings).folder
    assert "flash" not in (merged / "config.json").read_text() and AutoModelForCausalLM.from_pretrained(merged).config._attn_implementation == "sdpa"


def test_the_base_s_files_stay_as_they_are(tmp_path, base, settings):
    adapter = make_adapter(tmp_path / "adapter", base, lora(modules_to_save=["embed_tokens", "lm_head"]), rows=0)
    before = {file.name: manifest.digest(file) for file in base.iterdir()}
    find(adapter, settings)
    assert {file.name: manifest.digest(file) for file in base.iterdir()} == before


LANGUAGE = r".*language_model.*\.(q_proj|v_proj|down_proj)"


@pytest.mark.parametrize("config", [lora(), lora(target_modules=LANGUAGE)], ids=["vision too", "text alone"])
@pytest.mark.parametrize("trained_as_text", [False, True])
def test_an_adapter_on_a_multimodal_base_is_merged_into_its_text_whichever_class_it_was_trained_with(tmp_path, settings, config, trained_as_text):
    base = make_multimodal(tmp_path / "base", torch.float32)
    adapter = make_adapter(tmp_path / "adapter", base, config)
    wanted = logits(in_fp32(base, adapter))
    if trained_as_text:
        tensors = load_file(adapter / "adapter_model.safetensors")
        own = {name.replace(".language_model.", "."): tensor for name, tensor in tensors.items() if "language_model" in name}
        save_file(own, adapter / "adapter_model.safetensors")
        changed(adapter, target_modules=TARGETS)
    find(adapter, settings)
    lane = loaded_lane("cpu:fp32", str(adapter), tmp_path / "cache")
    got = logits(lane.model)
    assert (got - wanted).abs().max() < 1e-5 * wanted.abs().max() and "vision" not in " ".join(lane.model.state_dict())


@pytest.mark.parametrize(
    ("text_s", "whole_s"),
    [
        ({"alpha_pattern": {"model.layers.0.self_attn.q_proj": 64}}, {"alpha_pattern": {"model.language_model.layers.0.self_attn.q_proj": 64}}),
        ({"rank_pattern": {r"^model\.layers\.1.*": 2}}, {"rank_pattern": {r"^model\.language_model\.layers\.1.*": 2}}),
        ({"exclude_modules": ["layers.1.self_attn.q_proj"]}, {"exclude_modules": r".*vision.*|.*layers\.1\.self_attn\.q_proj"}),
        ({"exclude_modules": r"model\.layers\.1\..*"}, {"exclude_modules": r".*vision.*|model\.language_model\.layers\.1\..*"}),
        ({"target_modules": r"model\.layers\.\d+\.mlp\.up_proj"}, {"target_modules": r"model\.language_model\.layers\.\d+\.mlp\.up_proj"}),
        ({"target_modules": ["model.layers.0.mlp.up_proj"]}, {"target_modules": ["model.language_model.layers.0.mlp.up_proj"]}),
    ],
)
def test_what_a_text_model_s_adapter_sets_by_whole_names_holds_on_a_multimodal_base(tmp_path, settings, text_s, whole_s):
    """A scale set for model.layers.0... no longer matched, and the adapter was merged at another strength without a word."""
    base = make_multimodal(tmp_path / "base", torch.float32)
    adapter = make_adapter(tmp_path / "adapter", base, lora(**{"exclude_modules": ".*vision.*", **whole_s}))
    wanted = logits(in_fp32(base, adapter))
    tensors = load_file(adapter / "adapter_model.safetensors")
    save_file({name.replace(".language_model.", "."): tensor for name, tensor in tensors.items()}, adapter / "adapter_model.safetensors")
    changed(adapter, **{"exclude_modules": None, **text_s})
    got = logits(AutoModelForCausalLM.from_pretrained(find(adapter, settings).folder, dtype=torch.float32))
    assert (got - wanted).abs().max() < 1e-5 * wanted.abs().max()
