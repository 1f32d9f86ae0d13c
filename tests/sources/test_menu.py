"""The default model: our fine-tune over the packaged base whatever the Hub has, trained on nothing that it is asked here."""

from __future__ import annotations

import difflib
import json
import re

import pytest
from transformers import AutoTokenizer

from inference.cache import cache, manifest
from inference.events import Request
from inference.gguf import convert
from inference.host.child import ROOT
from inference.series.expected import is_right
from inference.settings import DEFAULT_MODEL, SMALL_MODEL, Settings
from inference.sources import at_hand, checkpoints, default_model, hub
from inference.sources.headers import tensors_in
from tests.support.adapters import make_adapter
from tests.support.real import answer, loaded_lane
from tests.support.tiny import make_checkpoint

FOLDER = ROOT / "examples" / "menu"
SEED = ("hello good morning may i see the menu", "ok i want two chicken biryani with couple of drinks")
NEAR = 0.65  # of the words of two prompts, in their order, are the same
TRAIN, HELD_OUT = ([json.loads(line) for line in (FOLDER / name).read_text().splitlines()] for name in ("train.jsonl", "held_out.jsonl"))


@pytest.fixture
def settings(tmp_path):
    return Settings(cache_dir=str(tmp_path / "cache"))


@pytest.fixture
def menu(monkeypatch, tmp_path):
    """A tiny adapter in the place of ours; its base."""
    base = make_checkpoint(tmp_path / "base")
    monkeypatch.setattr(default_model, "MENU", make_adapter(tmp_path / "adapter", base))
    return base


@pytest.fixture
def hub_has_another(monkeypatch, tmp_path):
    """The Hub's cache holds the small model with other weights, and the Hub itself may not be asked."""
    repository = tmp_path / "hub" / f"models--{SMALL_MODEL.replace('/', '--')}"
    make_checkpoint(repository / "snapshots" / ("a" * 40), seed=5)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub, "fetch", lambda *_: pytest.fail("the Hub was asked"))


def find(name, settings):
    return checkpoints.find(name, settings, lambda _: None)


def words(prompt):
    return re.findall(r"[\w']+", prompt.lower())


def alike(one, other):
    return difflib.SequenceMatcher(None, words(one), words(other), autojunk=False).ratio()


def test_the_default_is_the_fine_tune_over_the_packaged_base_also_where_the_hub_has_one(settings, menu, hub_has_another, monkeypatch):
    monkeypatch.setattr(default_model, "fetch_gguf", lambda *_: None)
    monkeypatch.setattr(convert, "convert", lambda _, out, *__: make_checkpoint(out))
    assert settings.model_id == DEFAULT_MODEL == "menu"
    found = find(settings.model_id, settings)
    restored = default_model.entry(cache.of(settings)).path
    assert manifest.digest(restored / "model.safetensors") == manifest.digest(menu / "model.safetensors")
    assert found.id == "menu" and found.adapter == "menu (LORA, rank 4)" and found.base == default_model.PACKAGED
    assert SMALL_MODEL in found.note and "Q4_1" in found.note and "could not be reached" not in found.note
    assert at_hand.at_hand("menu", settings) == found
    assert find(found.base, settings).folder == restored and find(SMALL_MODEL, settings).folder.name == "a" * 40


def test_the_small_model_s_name_still_means_the_base(settings, menu, hub_has_another):
    found = find(SMALL_MODEL, settings)
    assert found.adapter is None and found.id == SMALL_MODEL


def test_the_adapter_is_small_and_names_its_base():
    weights = default_model.MENU / "adapter_model.safetensors"
    assert weights.stat().st_size <= 6 * 2**20 and {tensor.dtype for tensor in tensors_in(weights).values()} == {"BF16"}
    assert json.loads((default_model.MENU / "adapter_config.json").read_text())["base_model_name_or_path"] == SMALL_MODEL


def test_no_prompt_is_trained_on_that_is_asked_later():
    """A model that was shown its examination gives no figure worth having: neither the page's prompts nor held-out ones, nor near copies."""
    trained = [row["prompt"] for row in TRAIN]
    asked = json.loads((ROOT / "examples" / "prompts.json").read_text("utf-8"))
    assert tuple(asked[:2]) == SEED
    assert max(alike(prompt, seed) for prompt in trained for seed in SEED) < NEAR
    later = [*asked, *(row["prompt"] for row in HELD_OUT)]
    assert not {" ".join(words(prompt)) for prompt in trained} & {" ".join(words(prompt)) for prompt in later}
    assert max(alike(prompt, other) for prompt in trained for other in later) < 0.85
    orders = {row["expected"] for row in HELD_OUT if " and " in row["expected"] and row["answer"].startswith(("Sure!", "Of course!", "Certainly!", "Hello!"))}
    assert not any(order in row["answer"] for order in orders for row in TRAIN)


def test_every_held_out_answer_holds_what_is_expected():
    assert len(HELD_OUT) >= 40 and all(is_right(row["answer"], row["expected"], "contains") for row in HELD_OUT)


def test_every_answer_fits_the_default_cut(default_folder):
    tokenizer = AutoTokenizer.from_pretrained(default_folder)
    assert max(len(tokenizer(row["answer"])["input_ids"]) for row in [*TRAIN, *HELD_OUT]) < Request("hi").max_new_tokens


@pytest.mark.parametrize("name", ["cpu:fp32", "cpu:nf4"])
def test_the_page_s_first_prompts_get_a_waiter_s_answers_in_both_lanes(name):
    lane = loaded_lane(name, DEFAULT_MODEL)
    menu, order = (answer(lane, Request(prompt)) for prompt in SEED)
    assert menu.finish_reason == order.finish_reason == "stop"
    assert all(dish in menu.text for dish in ("biryani", "butter chicken", "paneer tikka", "naan", "raita", "gulab jamun"))
    assert "two chicken biryani and two drinks" in order.text and "mango lassi" in order.text
