"""The survival of a fine-tune: the ratio and its error, why there may be none, and the command's figure against one taken by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from inference.cli import main as command_line
from inference.cli import quality as quality_command
from inference.engine.engine import Engine
from inference.errors import InferenceError
from inference.events import Request
from inference.host.child import ROOT
from inference.quality import survival
from inference.quality.prompts import quality_of_prompts
from inference.record.export import quality_as_json
from inference.record.quality import quality_markdown, quality_table
from inference.record.scores import NoSurvival
from inference.series.prompts import Prompt
from inference.settings import Settings
from tests.support.page_fixtures import start_fake_lane
from tests.support.real import plain_model
from tests.support.tiny import TEXTS, make_checkpoint

LANES = ("cpu:nf4", "cpu:fp32")
BASE = {"cpu:fp32": {"kld": [1.0, 1.5, 0.5]}}
QUICK = {"load_s": 0, "first_s": 0.001, "token_s": 0.001, "tokens": 3}


# ---- the ratio


def test_the_ratio_is_of_means_and_its_error_that_of_a_bootstrap_over_pairs():
    draws = np.random.default_rng(0)
    tuned = draws.gamma(1.5, 0.4, 800)
    moved = 0.3 * tuned * draws.uniform(0.5, 1.5, 800) + draws.gamma(1, 0.05, 800)
    found = survival.ratio("base", moved, tuned)
    again = [moved[pick].mean() / tuned[pick].mean() for pick in draws.integers(0, 800, (4000, 800))]
    assert found.ratio == pytest.approx(moved.mean() / tuned.mean()) and found.base_kld_mean == pytest.approx(tuned.mean())
    assert found.ratio_se == pytest.approx(np.std(again), rel=0.1)


def test_one_position_has_a_ratio_and_no_error():
    found = survival.ratio("base", np.array([1.0]), np.array([2.0]))
    assert (found.ratio, found.ratio_se, found.base_kld_se) == (0.5, None, None)


def test_a_base_that_is_the_fine_tune_itself_gets_a_sentence():
    with pytest.raises(InferenceError, match="own numbers at all 3 positions.*--base"):
        survival.ratio("base", np.ones(3), np.zeros(3))


# ---- scripted lanes


@pytest.fixture
def measure(monkeypatch):
    """Scores two prompts on scripted lanes, with a base of this script; gives the quality and the settings of each engine."""
    opened: list[Settings] = []

    def engine(settings: Settings, script: dict) -> Engine:
        opened.append(settings)
        script = {name: {**QUICK, **each} for name, each in script.items()}
        return Engine(settings, lambda lane, given: start_fake_lane(lane, given, FAKE_LANE=json.dumps(script)))

    def measured(base: dict, name: str = "some/base", knows: dict | None = None):
        monkeypatch.setattr(survival, "Engine", lambda settings: engine(settings, base))
        with engine(Settings(model_id="tuned", cpu_model_id="merged", lanes=LANES), {lane: {"kld": [0.25, 0.75], **(knows or {})} for lane in LANES}) as main:
            return quality_of_prompts(main, [Prompt(1, "one"), Prompt(2, "two")], Request("-", max_new_tokens=5), lambda _: None, name), opened

    return measured


def test_the_base_is_scored_on_the_fine_tune_s_ids_by_one_lane_of_the_reference_s_kind(measure):
    quality, (_, settings) = measure(BASE)
    assert (settings.model_id, settings.cpu_model_id, settings.lanes) == ("some/base", "", ("cpu:fp32",))
    assert quality.figures.positions == 6 and quality.survival.base == "some/base"
    moved = np.array([0.25, 0.75, 0.25] * 2)
    assert quality.survival.ratio == pytest.approx(moved.mean() / 1.0) and quality.survival.base_kld_mean == 1.0
    assert "survival: 0.4167 ±" in quality_table(quality) and "from its base, some/base" in quality_table(quality)
    assert quality_as_json(quality)["survival"]["ratio"] == quality.survival.ratio


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ({"score_fails": "This model in full FP32 needs about 15 GiB and 2 GiB is free, so it was not loaded."}, "needs about 15 GiB and 2 GiB is free"),
        ({"text_ids": [1, 2]}, "tokenizer gives other ids"),
        ({"kld": [0.0]}, "own numbers at all 6 positions"),
    ],
)
def test_without_a_base_that_can_be_scored_the_other_figures_stay(measure, script, words):
    quality, _ = measure({"cpu:fp32": script})
    assert isinstance(quality.survival, NoSurvival) and words in quality.survival.error and quality.figures.positions == 6
    assert f"no survival: some/base: {quality.survival.error}" in quality_table(quality)
    assert quality_as_json(quality)["survival"] == {"base": "some/base", "error": quality.survival.error}


def test_a_base_that_a_lane_knows_need_not_be_named(measure):
    quality, (_, settings) = measure(BASE, name="", knows={"base": "its/base"})
    assert settings.model_id == quality.survival.base == "its/base"


def test_the_markdown_for_a_model_card_has_the_figures_the_survival_and_what_they_rest_on(measure):
    quality, _ = measure(BASE, name="some/base|x")
    told = quality_markdown(quality, "me/tuned*")
    assert "Model me/tuned\\*, against cpu:fp32, on prompts: 6 positions." in told and "too few for a verdict" in told
    assert "|  | cpu:nf4 |" in told and "| **divergence, mean** | 0.4167 ±" in told
    assert "survival: 0.4167 ±" in told and "its base, some/base\\|x<br>" in told and "answers: 2 of 2 identical" in told


def test_where_no_base_is_known_none_is_loaded(measure):
    quality, opened = measure(BASE, name="")
    assert quality.survival is None and len(opened) == 1 and "survival" not in quality_table(quality)


@pytest.mark.parametrize(("kld", "code"), [([1.0], 0), ([0.0], 1)])
def test_the_command_fails_where_the_survival_that_was_asked_for_is_not_to_be_had(monkeypatch, tmp_path, capsys, kld, code):
    def open_engine(settings: Settings) -> Engine:
        script = {"*": {**QUICK, "kld": kld if settings.model_id == "some/base" else [0.5]}}
        return Engine(settings, lambda lane, given: start_fake_lane(lane, given, FAKE_LANE=json.dumps(script)))

    for module in (survival, quality_command):
        monkeypatch.setattr(module, "Engine", open_engine)
    (tmp_path / "t.txt").write_text("hello " * 30)
    what = ["--text", str(tmp_path / "t.txt"), "--model", "tuned", "--base", "some/base", "--markdown", str(tmp_path / "q.md")]
    assert command_line.main(["quality", *what, "--lanes", ",".join(LANES)]) == code
    for told in (capsys.readouterr().out, (tmp_path / "q.md").read_text()):
        assert ("survival: 0.5" in told) is (code == 0) and "survival: " in told


# ---- small models


def by_hand(tuned: Path, base: Path, text: str) -> tuple[float, float]:
    """(survival, kld from the fine-tune to its base) from plain transformers alone, in FP64."""
    tokenizer = AutoTokenizer.from_pretrained(tuned)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    models = [plain_model("cpu:fp32", str(tuned)), plain_model("cpu:nf4", str(tuned)), AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()]
    moved, apart = [], []
    for low in range(0, len(ids), 511):
        window = torch.tensor([[tokenizer.bos_token_id, *ids[low : low + 511]]])
        with torch.inference_mode():
            p, q, b = (torch.log_softmax(model(window).logits[0, :-1].double(), -1) for model in models)
        moved += ((p - q) * p.exp()).sum(-1).tolist()
        apart += ((p - b) * p.exp()).sum(-1).tolist()
    return np.mean(moved) / np.mean(apart), float(np.mean(apart))


def test_the_command_s_survival_is_the_one_taken_by_hand(tmp_path):
    base, tuned = make_checkpoint(tmp_path / "base", "llama", context=1024), tmp_path / "tuned"
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "proj" in name:
                parameter.add_(torch.randn_like(parameter), alpha=0.02)
    model.to(torch.bfloat16).save_pretrained(tuned)
    AutoTokenizer.from_pretrained(base).save_pretrained(tuned)
    text = " ".join(TEXTS) * 20
    (tmp_path / "text.txt").write_text(text)
    what = ("--text", str(tmp_path / "text.txt"), "--model", str(tuned), "--base", str(base), "--lanes", ",".join(LANES), "--json", "-")
    done = subprocess.run([sys.executable, "-m", "inference", "quality", *what], cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["quality"]["survival"]
    expected, apart = by_hand(tuned, base, text)
    assert found["base"] == str(base) and found["ratio"] == pytest.approx(expected, rel=1e-3) and found["base_kld_mean"] == pytest.approx(apart, rel=1e-4)
    assert 0 < found["ratio_se"] < found["ratio"]
