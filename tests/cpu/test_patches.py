"""Norms, rotary embedding, gate and attention in one call each: the model's own numbers, and the model's own code where they don't apply."""

from __future__ import annotations

import sys

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from inference.cpu import patches
from tests.support.tiny import make_checkpoint


@pytest.fixture(autouse=True)
def own_code():
    """What the parts change in this process is put back."""
    attention = ALL_ATTENTION_FUNCTIONS["sdpa"]
    yield
    ALL_ATTENTION_FUNCTIONS["sdpa"] = attention


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text"])
def test_a_model_gives_the_same_logits_with_fewer_calls(kind, library, tmp_path, monkeypatch):
    model = AutoModelForCausalLM.from_pretrained(make_checkpoint(tmp_path / kind, kind), dtype=torch.float32).eval()
    ids = torch.arange(3, 40)[None]
    code = sys.modules[type(model).__module__]
    monkeypatch.setattr(code, "apply_rotary_pos_emb", code.apply_rotary_pos_emb)
    with torch.inference_mode():
        own = model(input_ids=ids).logits
        patches.install(model, library)
        with torch.profiler.profile() as seen:
            mine = model(input_ids=ids).logits
    assert (mine - own).abs().max() < 1e-5 * own.abs().max()
    left = {event.key for event in seen.key_averages()}
    assert not left & {"aten::pow", "aten::rsqrt", "aten::neg", "aten::silu"}


@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (1, 700), (37, 37), (128, 128)])
def test_attention_is_that_of_torch(rows, keys, library):
    generator = torch.Generator().manual_seed(rows)
    q, k, v = (torch.randn(1, heads, count, 64, generator=generator) for heads, count in ((6, rows), (2, keys), (2, keys)))
    k = k.transpose(1, 2).contiguous().transpose(1, 2)  # as the cache keeps them
    exact = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=rows > 1, enable_gqa=True, scale=0.3)
    mine = library.attend(q, k, v, 0.3).transpose(1, 2)
    assert (mine - exact).abs().max() < 1e-5 * exact.abs().max()


def test_attention_with_large_scores_stays_finite(library):
    q = torch.full((1, 1, 4, 16), 50.0)
    v = torch.randn(1, 1, 4, 16)
    assert torch.isfinite(library.attend(q, -q, v, 1.0)).all() and torch.allclose(library.attend(q, q, v, 1.0)[0, 0, 0], v[0, 0, 0])


def test_the_gate_holds_from_minus_to_plus_infinity(library):
    gate = torch.tensor([-1e4, -100.0, -88.0, -10.0, 0.0, 10.0, 100.0, 1e4])
    up = torch.full((8,), 2.0)
    assert torch.allclose(library.silu_times(gate, up), torch.nn.functional.silu(gate.double()).float() * up, rtol=1e-6, atol=1e-30)


def test_a_mask_or_another_dtype_goes_to_torchs_own_attention(library, monkeypatch):
    model = torch.nn.Module()
    model.is_causal, model.num_key_value_groups = True, 1
    patches._attention(library)
    attend = ALL_ATTENTION_FUNCTIONS["sdpa"]
    monkeypatch.setattr(library, "attend", lambda *_: pytest.fail("ours was called"))
    q = torch.randn(1, 2, 5, 16)
    mask = torch.ones(1, 1, 5, 5, dtype=torch.bool)
    assert attend(model, q, q, q, mask)[0].shape == (1, 5, 2, 16)
    assert attend(model, q.double(), q.double(), q.double(), None)[0].dtype == torch.float64
    assert attend(model, q[:, :, :3], q, q, None)[0].shape == (1, 3, 2, 16)
