"""4-bit layers whose form bitsandbytes gets wrong on a processor: the lane's numbers are those of the weights that it holds."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from inference.fast import ALL, FastWays
from inference.models import arguments, loading
from inference.sources.at_hand import Checkpoint
from tests.support.four_bit import by_nf4
from tests.support.kinds import GROUPED

WIDTHS = {"hidden_size": 96, "intermediate_size": 160}


def saved(folder, **more):
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **GROUPED | WIDTHS | more)).save_pretrained(folder)
    return folder


def load(folder):
    return loading.load(Checkpoint("tiny", folder), "cpu:nf4", lambda _: None, FastWays("cpu:nf4", ALL))


@torch.inference_mode()
def logits(model):
    return model(input_ids=torch.arange(5, 35)[None]).logits.float()


@pytest.mark.parametrize("computed, bound", [(torch.float32, 1e-4), (torch.bfloat16, 0.05)], ids=str)
@pytest.mark.parametrize("widths", [{}, {"hidden_size": 160, "intermediate_size": 400}], ids=["96 and 160", "160 and 400"])
def test_rows_that_are_no_whole_number_of_blocks_are_computed_right(tmp_path, monkeypatch, computed, bound, widths):
    """Rows of 96 were unpacked with the scales of other rows, without a word; where the processor has bf16 products, they raised."""
    monkeypatch.setattr(arguments, "compute_dtype", lambda *_: computed)
    folder = saved(tmp_path, **widths)
    model, right = load(folder), AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for name, parameter in right.named_parameters():
        if "proj" in name:
            parameter.data = by_nf4(parameter.data.to(computed).float())
    expected = logits(right)
    assert (logits(model) - expected).abs().max() < bound * expected.abs().max()


def test_it_is_said_that_they_are(tmp_path):
    folder = saved(tmp_path)
    found = loading.describe(load(folder), Checkpoint("tiny", folder), "cpu:nf4", 1)
    assert found.precision == "NF4" and "the rows of 14 4-bit layers are no whole number of blocks" in found.note


def test_rows_whose_number_is_no_multiple_of_32_are_computed(tmp_path):
    """A gate of one row, as Qwen2-MoE has it, ended the load where the processor has bf16 products."""
    model = load(saved(tmp_path, hidden_size=128, intermediate_size=192, num_attention_heads=8, head_dim=8, num_key_value_heads=1))
    assert torch.isfinite(logits(model)).all()
