"""What `models/private.py` relies on in torch, transformers and gguf, one by one; and that a lane still answers where a version has it no more."""

from __future__ import annotations

import inspect

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from inference.models import private
from tests.support.tiny import make_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("tiny") / "llama", "llama")


@pytest.fixture(scope="module")
def model(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.parametrize("kind", ["gemma3_text", "llama", "qwen3"])
@torch.inference_mode()
def test_a_cache_is_given_under_the_name_that_the_model_takes(kind, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(make_checkpoint(tmp_path / kind, kind), dtype=torch.float32).eval()
    ids, cache = torch.arange(3, 15)[None], transformers.DynamicCache(config=model.config)
    for part in (ids[:, :-1], ids[:, -1:]):
        steps = model(part, use_cache=True, **{private.cache_argument(model): cache}).logits[:, -1]
    assert cache.get_seq_length() == 12 and torch.allclose(steps, model(ids).logits[:, -1], atol=1e-4)


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_both_names_of_the_cache_are_known(name):
    model = torch.nn.Module()
    model.forward = eval(f"lambda input_ids, {name}=None: None")
    assert private.cache_argument(model) == name


@pytest.mark.parametrize(("kind", "kept"), [("recurrent_gemma", 1), ("llama", 0)])
@torch.inference_mode()
def test_the_modules_that_keep_a_state_beside_the_cache_are_known(kind, kept):
    values = {"num_hidden_layers": 2, "vocab_size": 64, "hidden_size": 32, "num_attention_heads": 2, "pad_token_id": 0}
    more = {"block_types": ["recurrent", "attention"], "lru_width": 32} if kept else {}
    model = AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **values, **more)).eval()
    model(torch.arange(3, 9)[None], use_cache=True)
    assert [module.conv1d_state is not None for module in private.state_keepers(model)] == [True] * kept


@pytest.mark.parametrize(("kind", "again"), [("phi3", True), ("phimoe", True), ("llama", False)])
def test_the_families_whose_generate_reads_all_anew_past_their_original_length_are_known(kind, again):
    config = transformers.AutoConfig.for_model(kind, num_hidden_layers=1, original_max_position_embeddings=24)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert private.read_again_after(model) == (24 if again else None)


def test_named_parameters_come_in_the_dtype_of_the_plan(folder, monkeypatch):
    def load():
        with private.dtype_plan_with(lambda _: {"model.layers.0.mlp.up_proj.weight": torch.bfloat16}):
            return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def sixteen_bit(model):
        return [name for name, parameter in model.named_parameters() if parameter.dtype == torch.bfloat16]

    plan = transformers.PreTrainedModel._get_dtype_plan
    assert sixteen_bit(load()) == ["model.layers.0.mlp.up_proj.weight"] and transformers.PreTrainedModel._get_dtype_plan is plan
    monkeypatch.setattr(private.PreTrainedModel, "_get_dtype_plan", None)
    with private.dtype_plan_with(lambda _: pytest.fail("it was asked")):
        assert private.PreTrainedModel._get_dtype_plan is None


def test_a_load_s_progress_is_told_and_the_hook_is_put_back(folder, monkeypatch):
    seen = []

    class Bar:
        def __init__(self, *args, total=None, **_):
            seen.append(total or len(args[0]))

            self.items = args[0] if args else ()

        def __iter__(self):
            return iter(self.items)

        def __getattr__(self, name):
            return lambda *_, **__: None

    before = transformers.logging.set_tqdm_hook(None)
    transformers.logging.set_tqdm_hook(before)
    with private.progress_bars(Bar):
        AutoModelForCausalLM.from_pretrained(folder)
    assert seen and max(seen) > 10 and transformers.logging.set_tqdm_hook(before) is before
    monkeypatch.delattr(transformers.logging, "set_tqdm_hook")
    with private.progress_bars(Bar):
        AutoModelForCausalLM.from_pretrained(folder)


def test_a_quantized_model_says_that_it_can_be_compiled(model):
    class Quantizer:
        is_compileable = False

    private.compile_also_quantized(model)
    model.hf_quantizer = Quantizer()
    private.compile_also_quantized(model)
    assert model.hf_quantizer.is_compileable
    from transformers.quantizers.quantizer_bnb_4bit import Bnb4BitHfQuantizer

    assert isinstance(inspect.getattr_static(Bnb4BitHfQuantizer, "is_compileable"), property)
