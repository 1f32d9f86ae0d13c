"""What a load is admitted by is what it then holds, for every kind of model on each lane; files that are not read don't count."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, BitsAndBytesConfig

from inference.errors import Refused
from inference.fast import ALL, FastWays
from inference.models import arguments, exact, fits, loading
from inference.models.skeleton import skeleton
from inference.sources.headers import Stored, tensors_of
from tests.support.kinds import KINDS, NOT_IN_4_BITS, make_form, make_kind
from tests.support.tiny import make_checkpoint


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    return request.param, make_kind(tmp_path_factory.mktemp("kinds") / "model", request.param)


def need(folder, lane, compact=True):
    return fits.need(AutoConfig.from_pretrained(folder), tensors_of(folder), lane, compact)


def load(folder, lane, ways=ALL):
    return loading.read(folder, lane, FastWays(lane, ways))


@pytest.mark.parametrize("lane", ["cpu:nf4", "cpu:fp32"])
def test_need_is_what_is_held(kind, lane):
    name, folder = kind
    if lane == "cpu:nf4" and name in NOT_IN_4_BITS:
        with pytest.raises(Refused, match="no layer that bitsandbytes puts in 4 bits"):
            load(folder, lane)
        return
    found, model = need(folder, lane), load(folder, lane)
    held = loading.held(model)
    assert found.weights_bytes == pytest.approx(sum(held.values()), rel=0.01)
    assert found.kept == held and found.peak_bytes >= found.weights_bytes


def test_a_gpu_without_bfloat16_reads_embedding_and_head_in_fp32_and_ends_with_16_bits(tmp_path, monkeypatch):
    folder = make_kind(tmp_path, "llama, untied")
    monkeypatch.setattr(arguments, "compute_dtype", lambda *_: torch.float32)
    one = 512 * 64
    found, wide = need(folder, "cuda:nf4"), need(folder, "cuda:nf4", compact=False)
    assert found.kept["bfloat16"] == 2 * one * 2 and 2 * one * 4 < wide.kept["float32"] < 2 * one * 4 * 1.2
    assert found.weights_bytes == wide.weights_bytes - 2 * one * 2
    assert found.peak_bytes >= wide.weights_bytes + one * 2, "both are there in FP32, and one in 16 bits too"


def test_a_gpu_with_bfloat16_holds_nothing_else(tmp_path, monkeypatch):
    folder = make_kind(tmp_path, "llama, untied")
    monkeypatch.setattr(arguments, "compute_dtype", lambda *_: torch.bfloat16)
    assert need(folder, "cuda:nf4") == need(folder, "cuda:nf4", compact=False)


def test_a_processor_without_bfloat16_keeps_them_compact(tmp_path, monkeypatch):
    folder = make_kind(tmp_path, "llama, untied")
    monkeypatch.setattr(arguments, "compute_dtype", lambda *_: torch.float32)
    model = load(folder, "cpu:nf4")
    assert need(folder, "cpu:nf4").kept == loading.held(model)
    assert model.lm_head.weight.dtype == model.model.embed_tokens.weight.dtype == torch.bfloat16


def test_scales_that_are_quantized_themselves_are_counted(tmp_path):
    folder = make_kind(tmp_path / "whole", "llama, tied")
    double = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_use_double_quant=True)
    found = exact_model(folder, double)
    found.save_pretrained(tmp_path / "double")
    model = load(tmp_path / "double", "cpu:nf4")
    layer = model.model.layers[0].mlp.up_proj
    assert layer.weight.quant_state.nested
    one = {part.data_ptr(): part.nbytes for part in loading.state_tensors(layer.weight.quant_state)}
    assert len(one) == 5, "scales, their scales, both codes and the offset"
    assert need(tmp_path / "double", "cpu:nf4").weights_bytes == pytest.approx(loading.weights_bytes(model), rel=0.01)


def exact_model(folder, quantization):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, quantization_config=quantization, device_map="cpu")


def test_a_file_beside_the_model_s_is_neither_counted_nor_read(tmp_path):
    """A 263 KB model was refused for the 30 GiB of a file that nobody reads."""
    folder = make_checkpoint(tmp_path / "model")
    before = need(folder, "cpu:fp32")
    make_kind(tmp_path / "other", "mixtral")
    (folder / "consolidated.safetensors").write_bytes((tmp_path / "other" / "model.safetensors").read_bytes())
    assert need(folder, "cpu:fp32") == before
    assert exact.dtype_name(next(load(folder, "cpu:fp32").parameters()).dtype) == "bfloat16"


@pytest.mark.parametrize("rounded", [True, False])
def test_fp32_files_of_16_bit_values_are_counted_as_they_are_kept(tmp_path, rounded):
    folder = make_form(tmp_path, "text", torch.float32)
    if not rounded:
        tensors = load_file(folder / "model.safetensors")
        save_file({name: tensor + 1e-5 for name, tensor in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    found, held = need(folder, "cpu:fp32"), loading.held(load(folder, "cpu:fp32"))
    assert found.kept == held and ("bfloat16" in held) == rounded


def test_need_can_be_asked_of_headers_alone(tmp_path):
    """As for a model that is still on the Hub."""
    config = AutoConfig.for_model(KINDS["qwen3"][0], **KINDS["qwen3"][1])
    names = {name: Stored(tuple(part.shape), "BF16") for name, part in skeleton(config, (), torch.bfloat16).model.named_parameters()}
    assert fits.need(config, names, "cpu:nf4", True).weights_bytes == need(make_kind(tmp_path, "qwen3"), "cpu:nf4").weights_bytes


def test_the_peak_counts_what_is_held_beside_the_weights(tmp_path):
    folder = make_kind(tmp_path, "llama, tied")
    found = need(folder, "cpu:nf4")
    largest = 128 * 64  # values of a matrix of the largest kind that is quantized
    assert largest * 2 < found.peak_bytes - found.weights_bytes - fits.BESIDE_BYTES < largest * 40
    whole = need(folder, "cpu:fp32")
    assert whole.peak_bytes - whole.weights_bytes - fits.BESIDE_BYTES < largest * 4


def test_a_model_is_refused_by_its_peak(monkeypatch):
    """A lane was admitted by 3.4 GiB at rest and took 12.7 while loading."""
    monkeypatch.setattr(loading, "free_bytes", lambda _: 2**30)
    loading.check_fits(fits.Need(2**20, 2**29), "cpu:nf4")
    with pytest.raises(Refused, match=r"needs about 1\.50 GiB and 1\.00 GiB is free"):
        loading.check_fits(fits.Need(2**20, 2**30), "cpu:nf4")


def test_a_head_stored_beside_the_embedding_it_is_tied_to_counts_in_the_peak(tmp_path):
    """A file with a head of its own was loaded untied, as transformers does, and held a third more than it was admitted by."""
    folder = make_kind(tmp_path, "llama, tied")
    before = need(folder, "cpu:nf4")
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}, folder / "model.safetensors", {"format": "pt"})
    held = sum(loading.held(load(folder, "cpu:nf4")).values())
    assert need(folder, "cpu:nf4").peak_bytes - before.peak_bytes == 512 * 64 * 2 == pytest.approx(held - before.weights_bytes, rel=0.05)
