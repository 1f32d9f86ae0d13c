"""What a lane asks transformers for: one device for all of the model, never float16, and no keyword that transformers 5 has dropped."""

from __future__ import annotations

import ast

import pytest
import torch

from inference.host.child import ROOT
from inference.host.hardware import BFLOAT16
from inference.models.arguments import model_arguments

DROPPED = {"load_in_4bit", "load_in_8bit", "torch_dtype", "use_auth_token"}
OLDER = (7, 5)


@pytest.mark.parametrize("capability", [OLDER, BFLOAT16])
@pytest.mark.parametrize("lane", ["cuda:nf4", "cuda:bf16", "cpu:nf4", "cpu:fp32"])
def test_the_whole_model_is_on_one_device_and_nothing_of_it_is_asked_for_in_float16(lane, capability):
    arguments = model_arguments(lane, capability)
    assert arguments["device_map"] in ({"": 0}, "cpu") and (arguments["device_map"] == "cpu") == lane.startswith("cpu")
    assert arguments["dtype"] in (torch.float32, torch.bfloat16)
    if lane.endswith("nf4"):
        quantization = arguments["quantization_config"]
        assert quantization.load_in_4bit and quantization.bnb_4bit_quant_type == "nf4" and quantization.bnb_4bit_compute_dtype == arguments["dtype"]


def keywords_of_loads(code: str) -> set[str]:
    calls = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call))
    return {word.arg for call in calls if ast.unparse(call.func).endswith("from_pretrained") for word in call.keywords if word.arg}


def test_no_load_has_a_keyword_that_was_dropped():
    assert keywords_of_loads("Model.from_pretrained(x, load_in_4bit=True)") == {"load_in_4bit"}
    for path in (path for room in ("inference", "examples") for path in (ROOT / room).rglob("*.py")):
        assert not DROPPED & keywords_of_loads(path.read_text("utf-8")), path
