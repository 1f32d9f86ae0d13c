"""One tiny model in every form that people bring it in: the same logits in full precision, the same in 4 bits, its text part alone."""

import pytest
import torch
from transformers import AutoConfig, SmolVLMForConditionalGeneration

from inference.cpu.decoder import ChunkedDecoder
from inference.fast import ALL, FastWays
from inference.models import exact, loading
from inference.sources.at_hand import Checkpoint
from inference.sources.headers import tensors_of
from tests.support.kinds import FORMS, VISION, WIDE, make_form
from tests.support.real import plain_model

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def load(folder, lane):
    model = loading.load(Checkpoint("tiny", folder), lane, lambda _: None, FastWays(lane, ALL))
    exact.install(model, exact.in_fp32)
    return model


@torch.inference_mode()
def logits(model):
    return model(input_ids=torch.arange(5, 35)[None]).logits.float()


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def first(request, tmp_path_factory):
    """(tied, each lane's logits from the text model in bfloat16)"""
    folder = make_form(tmp_path_factory.mktemp("first"), "text", torch.bfloat16, request.param)
    return request.param, {lane: logits(load(folder, lane)) for lane in ("cpu:fp32", "cpu:nf4")}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_logits_in_both_lanes(first, tmp_path, form, dtype):
    tied, expected = first
    folder = make_form(tmp_path, form, dtype, tied)
    for lane in ("cpu:fp32", "cpu:nf4"):
        model = load(folder, lane)
        assert type(model).__name__ == "Gemma3ForCausalLM"
        assert (logits(model) - expected[lane]).abs().max() <= 1e-5, lane
        assert not [name for name, _ in model.named_parameters() if "vision" in name or "projector" in name]


@pytest.mark.parametrize("form", ["multimodal", "multimodal, the Hub's names"])
@pytest.mark.parametrize("lane", ["cpu:fp32", "cpu:nf4"])
def test_the_text_part_answers_as_the_whole_model_does(tmp_path, form, lane):
    folder = make_form(tmp_path, form)
    assert any("vision" in name for name in tensors_of(folder))
    whole = plain_model(lane, str(folder))
    assert type(whole).__name__ == "Gemma3ForConditionalGeneration"
    assert (logits(load(folder, lane)) - logits(whole)).abs().max() <= 1e-5


def test_nothing_is_said_of_the_vision_part_and_nothing_of_it_is_counted(tmp_path):
    text, whole = make_form(tmp_path / "text", "text"), make_form(tmp_path / "whole", "multimodal, the Hub's names")
    found = [loading.describe(load(folder, "cpu:fp32"), Checkpoint("tiny", folder), "cpu:fp32", 1) for folder in (text, whole)]
    assert found[0].weights_bytes == found[1].weights_bytes and found[1].note is None and found[0].held == found[1].held


@pytest.mark.parametrize("whole", [False, True], ids=["as a lane has it", "as plain has it"])
def test_a_multimodal_model_can_be_stopped_in_its_prompt_and_reads_it_in_large_chunks(tmp_path, whole):
    """Its layers were not found: no Stop, and chunks of 16."""
    folder = make_form(tmp_path, "multimodal")
    model = plain_model("cpu:fp32", str(folder)) if whole else load(folder, "cpu:fp32")
    decoder = ChunkedDecoder(model)
    assert len(decoder.hook.layers) == 2 and decoder.chunk == 256
    looks = []
    assert list(decoder.prefill(list(range(5, 30)), 3, lambda: bool(looks.append(1)) or len(looks) > 1)) == [None]
    assert len(looks) == 2


def test_the_padding_of_the_whole_may_be_a_row_that_its_text_part_does_not_have(tmp_path):
    """SmolVLM's class sets 128,002 for all sizes, and the smallest have 49,280 rows: no model could be made."""
    config = AutoConfig.for_model("smolvlm", text_config={**WIDE, "model_type": "llama"}, vision_config=VISION, scale_factor=1)
    assert config.pad_token_id > config.text_config.vocab_size
    torch.manual_seed(0)
    SmolVLMForConditionalGeneration(config).save_pretrained(tmp_path)
    whole = SmolVLMForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32).eval()
    model = load(tmp_path, "cpu:fp32")
    assert (logits(model) - logits(whole)).abs().max() <= 1e-5
    assert loading.describe(model, Checkpoint("tiny", tmp_path), "cpu:fp32", 1).note is None
