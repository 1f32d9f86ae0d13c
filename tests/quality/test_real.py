"""Quality on real weights: our figures against an independent calculation, exact zeros, one changed weight, vocabularies."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from inference.errors import InferenceError
from inference.host.child import ROOT
from inference.lane.lane import Lane
from inference.lane.scoring import divergence, score
from inference.quality.figures import Positions, Span, check_took_hold, figures, windows
from inference.score_events import Scored, ScoreRequest, nameless
from tests.support.real import loaded_lane, plain_model
from tests.support.tiny import make_checkpoint

TEXT = (ROOT / "LICENSE").read_text("utf-8")
POSITIONS = 4 * 511  # whole windows, one token of each being the start mark


def scorer(lane: Lane) -> tuple:
    """What `score` wants of a loaded lane."""
    return lane.model, lane.source, lane.name


def ours(reference: Lane, other: Lane, spans: list[Span], file: Path) -> Positions:
    def pair(span: Span) -> tuple[Scored, Scored]:
        last = len(span.ids)
        first = score(*scorer(reference), "r", ScoreRequest(span.ids, span.first, last, write=str(file)))
        return first, score(*scorer(other), "o", ScoreRequest(span.ids, span.first, last, read=str(file)))

    return Positions.of([pair(span) for span in spans])


def test_the_divergence_is_that_of_the_other_from_the_reference():
    reference, other = torch.tensor([[0.5, 0.5], [0.2, 0.8]]), torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    found = divergence(reference.log(), other.log())
    assert found.tolist() == pytest.approx([0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1), 0], abs=1e-6)


# ---- the default model


def independent(folder: str) -> dict[str, float]:
    """The figures from plain transformers alone: whole logits, FP64 throughout."""
    ids = AutoTokenizer.from_pretrained(folder)(TEXT, add_special_tokens=False)["input_ids"][:POSITIONS]
    start = AutoTokenizer.from_pretrained(folder).bos_token_id
    models = [plain_model(lane, folder) for lane in ("cpu:fp32", "cpu:nf4")]
    kld, same, moved = [], [], []
    for low in range(0, len(ids), 511):
        window = torch.tensor([start, *ids[low : low + 511]])
        with torch.inference_mode():
            p, q = (torch.log_softmax(model(window[None]).logits[0, :-1].double(), -1) for model in models)
        kld += ((p - q) * p.exp()).sum(-1).tolist()
        same += (p.argmax(-1) == q.argmax(-1)).tolist()
        moved += (p - q).gather(1, window[1:, None])[:, 0].tolist()
    return {"positions": len(kld), "kld_mean": np.mean(kld), "top1_agreement": np.mean(same), "ppl_ratio": math.exp(np.mean(moved))}


def test_figures_are_those_of_an_independent_calculation(default_folder, default_lane, tmp_path):
    reference, other = default_lane("cpu:fp32"), default_lane("cpu:nf4")
    text = score(*scorer(reference), "t", ScoreRequest(text=TEXT))
    found = figures(ours(reference, other, windows(text.ids[:POSITIONS], text.start_mark), tmp_path / "p"))
    expected = independent(default_folder)
    assert found.positions == expected["positions"] >= 2000
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-4), name


# ---- small models


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("quality") / "gemma")


SPANS = [Span(tuple(range(5, 105))), Span(tuple(range(50, 90)), 30)]


def test_fp32_against_itself_is_exactly_zero_and_no_guard_fires(tiny, tmp_path):
    lane = loaded_lane("cpu:fp32", str(tiny))
    positions = ours(lane, lane, SPANS, tmp_path / "p")
    found = figures(positions)
    assert (found.kld_mean, found.kld_max, found.top1_agreement, found.ppl_ratio) == (0, 0, 1, 1) and found.positions == 99 + 10
    check_took_hold(positions, "cpu:fp32", False, False)
    with pytest.raises(InferenceError, match="did not take hold"):
        check_took_hold(positions, "cpu:nf4", True, False)


def test_one_changed_weight_gives_more_than_zero(tiny, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.bfloat16)
    with torch.no_grad():
        model.get_parameter("model.layers.0.mlp.down_proj.weight")[3, 4] += 1
    model.save_pretrained(tmp_path / "changed")
    AutoTokenizer.from_pretrained(tiny).save_pretrained(tmp_path / "changed")
    lanes = [loaded_lane("cpu:fp32", str(each)) for each in (tiny, tmp_path / "changed")]
    assert figures(ours(*lanes, SPANS, tmp_path / "p")).kld_mean > 0


def test_the_models_own_forward_is_scored_with_all_that_follows_its_head(tmp_path):
    lane = loaded_lane("cpu:fp32", str(make_checkpoint(tmp_path / "gemma")))
    lane.model.config.final_logit_softcapping = 3.0  # as Gemma-2 has it: the head alone would miss it
    ids = tuple(range(5, 45))
    scored = score(*scorer(lane), "r", ScoreRequest(ids, 1, len(ids)))
    with torch.inference_mode():
        logits = lane.model(torch.tensor([ids])).logits[0, :-1]
    expected = -torch.log_softmax(logits, -1)[range(39), list(ids[1:])]
    assert logits.abs().max() <= 3 and np.allclose(scored.nll, expected, atol=1e-5)
    assert "forward" not in vars(lane.model.base_model), "the trunk is itself again"


def test_blocks_of_positions_give_the_figures_of_one_block(tiny, tmp_path, monkeypatch):
    lanes = loaded_lane("cpu:fp32", str(tiny)), loaded_lane("cpu:nf4", str(tiny))
    whole = ours(*lanes, SPANS, tmp_path / "p")
    monkeypatch.setattr("inference.lane.scoring.BLOCK_NUMBERS", 512 * 7)
    assert np.allclose(ours(*lanes, SPANS, tmp_path / "p").kld, whole.kld, rtol=1e-3, atol=1e-6)
    assert (whole.kld > 0).any()


def test_another_vocabulary_is_refused(tiny, tmp_path):
    larger = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.bfloat16)
    larger.resize_token_embeddings(520)
    larger.save_pretrained(tmp_path / "larger")
    AutoTokenizer.from_pretrained(tiny).save_pretrained(tmp_path / "larger")
    lanes = [loaded_lane("cpu:fp32", str(each)) for each in (tiny, tmp_path / "larger")]
    with pytest.raises(InferenceError, match="vocabularies differ: 512 tokens in the reference lane, 520"):
        ours(*lanes, SPANS, tmp_path / "p")


def test_logits_that_are_not_finite_are_told_with_their_position(tiny, tmp_path):
    lane = loaded_lane("cpu:fp32", str(tiny))
    ids = tuple(range(5, 45))
    real = lane.model.base_model.forward

    def broken(*args, **kwargs):
        output = real(*args, **kwargs)
        output.last_hidden_state[0, 17] = float("nan")
        return output

    lane.model.base_model.forward = broken
    with pytest.raises(InferenceError, match="not finite numbers at position 18"):
        score(*scorer(lane), "r", ScoreRequest(ids, 1, len(ids)))


def test_a_token_that_the_model_has_no_row_for_is_refused_by_its_number(tiny):
    with pytest.raises(InferenceError, match="Token 515 is to be scored, and this model has 512 rows"):
        score(*scorer(loaded_lane("cpu:fp32", str(tiny))), "r", ScoreRequest((5, 6, 515, 7), 1, 4))


def test_more_tokens_than_the_context_are_refused(tiny):
    with pytest.raises(InferenceError, match="600 tokens"):
        score(*scorer(loaded_lane("cpu:fp32", str(tiny))), "r", ScoreRequest((5,) * 600, 1, 500))


def test_a_stop_need_not_wait_for_the_end_of_the_forward(tiny):
    lane, asked = loaded_lane("cpu:fp32", str(tiny)), []
    finished = []
    lane.model.base_model.norm.register_forward_hook(lambda *_: finished.append(True))
    with pytest.raises(InferenceError, match="stopped"):
        score(*scorer(lane), "r", ScoreRequest(tuple(range(5, 45)), 1, 40), lambda: bool(asked.append(1) or len(asked) > 3))
    assert not finished
    score(*scorer(lane), "r", ScoreRequest(tuple(range(5, 45)), 1, 40))
    assert finished and len(asked) == 4, "nothing looks any more"


def test_an_id_that_the_tokenizer_has_no_entry_for_is_shown_by_its_number(tmp_path):
    folder = make_checkpoint(tmp_path / "gemma")
    larger = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    larger.resize_token_embeddings(len(AutoTokenizer.from_pretrained(folder)) + 9)
    larger.save_pretrained(folder)
    lane = loaded_lane("cpu:fp32", str(folder))
    unnamed = larger.config.vocab_size - 1
    scored = score(*scorer(lane), "r", ScoreRequest((5, 6, unnamed, 7), 1, 4, pieces=True))
    assert scored.pieces[1] == nameless(unnamed) == f"[{unnamed}]" and nameless(unnamed) not in (scored.pieces[0], scored.pieces[2])
