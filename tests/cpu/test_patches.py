"""Norms, rotary embedding, gate and attention in one call each: the model's own numbers, and the model's own code where they don't apply."""

from __future__ import annotations

import collections

import pytest
import torch
from transformers import AutoModelForCausalLM

from inference.cpu import patches, probe
from inference.cpu.library import NotOurs
from inference.cpu.patches import Taken
from inference.models import private
from tests.support.tiny import make_checkpoint

# of two layers: (what is taken, calls of ours in one forward)
EXPECTED = {
    "llama": (Taken(5, 2, True, True), {"norm": 5, "silu_times": 2, "rotate": 4, "attend": 2}),
    "qwen3": (Taken(9, 2, True, True), {"norm": 9, "silu_times": 2, "rotate": 4, "attend": 2}),
    "gemma3_text": (Taken(13, 0, True, True), {"norm": 13, "rotate": 4, "attend": 2}),  # its gate is another function
}


class Counting:
    """Our library, counting the calls of each function; `change` is done to what they give."""

    def __init__(self, library, change=lambda found: found):
        self.library, self.change, self.calls = library, change, collections.Counter()

    def __getattr__(self, name):
        def call(*arguments):
            self.calls[name] += 1
            return self.change(getattr(self.library, name)(*arguments))

        return call


@pytest.fixture(autouse=True)
def own_attention():
    """transformers' attention as it comes; what was there is put back."""
    before = private.attention()
    private.set_attention(getattr(before, "own", before))
    yield
    private.set_attention(before)


@pytest.fixture(params=EXPECTED)
def model(request, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(make_checkpoint(tmp_path / request.param, request.param), dtype=torch.float32).eval()
    before = private.rotary(model)
    private.set_rotary(model, getattr(before, "own", before))
    yield model
    private.set_rotary(model, before)


@torch.inference_mode()
def logits(model, ids):
    return model(input_ids=ids).logits


def test_every_part_is_ours_and_gives_the_models_logits(model, library, monkeypatch):
    monkeypatch.setattr(probe, "faster", lambda ours, own: True)
    counting, (taken, calls) = Counting(library), EXPECTED[model.config.model_type]
    for ids in (torch.arange(3, 40)[None], torch.tensor([[3]])):
        parts = [logits(model, ids)]
        if ids.shape[1] > 1:
            assert patches.install(model, counting) == taken
        counting.calls.clear()
        with torch.profiler.profile() as seen:
            parts.append(logits(model, ids))
        assert (parts[1] - parts[0]).abs().max() < 1e-5 * parts[0].abs().max() and dict(counting.calls) == calls
        assert not {event.key for event in seen.key_averages()} & {"aten::pow", "aten::rsqrt", "aten::neg", "aten::silu"}


def test_what_is_slower_here_is_not_taken(model, library, monkeypatch):
    monkeypatch.setattr(probe, "faster", lambda ours, own: False)
    own = logits(model, torch.arange(3, 40)[None])
    with pytest.raises(NotOurs):
        patches.install(model, library)
    assert torch.equal(logits(model, torch.arange(3, 40)[None]), own)


def test_what_is_wrong_is_not_taken_however_fast(model, library, monkeypatch):
    monkeypatch.setattr(probe, "faster", lambda ours, own: True)
    with pytest.raises(NotOurs):
        patches.install(model, Counting(library, lambda found: found * 1.0001))


def test_the_trial_finds_the_faster_call():
    long, short = torch.randn(400, 400), torch.randn(2, 2)
    assert probe.faster(lambda: short @ short, lambda: long @ long) and not probe.faster(lambda: long @ long, lambda: short @ short)


def test_a_gated_norm_and_a_norm_of_another_form_keep_their_own_code(library, monkeypatch):
    monkeypatch.setattr(probe, "faster", lambda ours, own: True)

    class Gated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.eps = torch.nn.Parameter(torch.ones(16)), 1e-6

        def forward(self, x, gate):
            return x * gate

    class Centred(Gated):
        def forward(self, x):
            x = x - x.mean(-1, keepdim=True)
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight

    model = torch.nn.ModuleList([Gated(), Centred(), torch.nn.LayerNorm(16), torch.nn.RMSNorm(16, eps=1e-6)])
    assert patches.install(model, library).norms == 1 and "forward" in vars(model[3])


def test_a_mask_or_another_dtype_goes_to_torchs_own_attention(library, monkeypatch):
    monkeypatch.setattr(probe, "faster", lambda ours, own: True)
    model = torch.nn.Module()
    model.is_causal, model.num_key_value_groups = True, 1
    assert patches._attention(library)
    attend = private.attention()
    monkeypatch.setattr(library, "attend", lambda *_: pytest.fail("ours was called"))
    q = torch.randn(1, 2, 5, 16)
    mask = torch.ones(1, 1, 5, 5, dtype=torch.bool)
    assert attend(model, q, q, q, mask)[0].shape == (1, 5, 2, 16)
    assert attend(model, q.double(), q.double(), q.double(), None)[0].dtype == torch.float64
    assert attend(model, q[:, :, :3], q, q, None)[0].shape == (1, 3, 2, 16)
