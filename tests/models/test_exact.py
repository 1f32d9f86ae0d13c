"""Compact storage is exact: the same logits as an FP32 load, decided for each tensor, and never a label that isn't so."""

import contextlib
import weakref

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from inference.cpu.install import use_kernels
from inference.errors import InferenceError
from inference.fast import ALL, FastWays
from inference.models import exact, loading, private, values
from inference.sources.at_hand import Checkpoint
from tests.support.tiny import make_checkpoint

KINDS = ("gemma3_text", "llama", "qwen3")


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("tiny") / request.param, request.param)


def read(folder):
    return loading.read(folder, "cpu:fp32", FastWays("cpu:fp32", ("compact",)))


def loaded(folder, kernels, allowed=ALL):
    """(model, facts) of an FP32 lane."""
    checkpoint, ways = Checkpoint("tiny", folder), FastWays("cpu:fp32", allowed)
    model = loading.load(checkpoint, "cpu:fp32", lambda _: None, ways)
    use_kernels(model, "cpu:fp32", kernels, ways)
    return model, loading.describe(model, checkpoint, "cpu:fp32", 1)


def plain_model(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.inference_mode()
def logits(model):
    return model(input_ids=torch.arange(5, 45)[None]).logits


def rewrite(folder, target, change):
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    tensors = change(load_file(target / "model.safetensors"))
    save_file(tensors, target / "model.safetensors", {"format": "pt"})
    return target


def test_the_logits_are_exactly_those_of_an_fp32_load(folder):
    model = read(folder)
    exact.install(model, exact.in_fp32)
    assert torch.equal(logits(model), logits(plain_model(folder)))


def test_everything_but_the_matrices_is_as_in_an_fp32_load(folder):
    model, plain = read(folder), plain_model(folder)
    for (name, ours), (_, theirs) in zip(model.named_buffers(), plain.named_buffers(), strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs), name
    for (name, ours), (_, theirs) in zip(model.named_parameters(), plain.named_parameters(), strict=True):
        assert ours.dtype == (torch.bfloat16 if ours.dim() == 2 else torch.float32) and torch.equal(ours.float(), theirs), name
    assert model.config.dtype == torch.float32


def test_a_tied_head_and_embedding_stay_one_storage(folder):
    model = read(folder)
    assert model.get_input_embeddings().weight.data_ptr() == model.get_output_embeddings().weight.data_ptr()
    assert loading.weights_bytes(model) < 0.53 * loading.weights_bytes(plain_model(folder))


def test_values_that_need_fp32_keep_it_and_the_others_do_not(folder, tmp_path):
    def change(tensors):
        tensors = {name: tensor.float() for name, tensor in tensors.items()}
        tensors["model.layers.0.self_attn.q_proj.weight"] += 1e-5
        return tensors

    merged = rewrite(folder, tmp_path / "merged", change)
    model = read(merged)
    assert model.model.layers[0].self_attn.q_proj.weight.dtype == torch.float32
    assert model.model.layers[0].self_attn.k_proj.weight.dtype == torch.bfloat16
    exact.install(model, exact.in_fp32)
    assert torch.equal(logits(model), logits(plain_model(merged)))
    assert exact.storage_label(model, model.loaded_from.values.hold) == "bfloat16 (exact)+float32" and exact.computes_in_fp32(model)


def test_fp16_values_are_kept_in_fp16(folder, tmp_path):
    half = rewrite(folder, tmp_path / "half", lambda tensors: {name: tensor.half() for name, tensor in tensors.items()})
    model = read(half)
    assert model.get_input_embeddings().weight.dtype == torch.float16
    exact.install(model, exact.in_fp32)
    assert torch.equal(logits(model), logits(plain_model(half)))


def test_without_transformers_plan_the_result_is_the_same(folder, monkeypatch):
    monkeypatch.setattr(private, "dtype_plan_with", lambda _: contextlib.nullcontext())
    model = read(folder)
    assert model.get_output_embeddings().weight.dtype == torch.bfloat16
    exact.install(model, exact.in_fp32)
    assert torch.equal(logits(model), logits(plain_model(folder)))


def test_switched_off_all_is_fp32(folder, kernels):
    _, facts = loaded(folder, kernels, ())
    assert (facts.precision, facts.storage_dtype, facts.compute_dtype) == ("FP32", "float32", "float32")


def test_the_label_tells_the_storage_and_the_arithmetic(folder, kernels):
    model, facts = loaded(folder, kernels)
    assert (facts.precision, facts.storage_dtype, facts.compute_dtype) == ("FP32", "bfloat16 (exact)", "float32")
    model.model.norm.weight.data = model.model.norm.weight.data.bfloat16()
    with pytest.raises(InferenceError, match="mixed"):
        loading.describe(model, Checkpoint("tiny", folder), "cpu:fp32", 1)


MAPPED = """7f00-7f10 rw-p 00000000 fe:00 21 {file}
Anonymous: {written} kB
{beside}
Anonymous: 0 kB
"""


@pytest.mark.parametrize(
    "beside", ["7f10-7f20 ---p 00000000 00:00 0", "7f10-7f20 rw-p 00000000 00:00 0      [heap]", "7f10-7f20 r--p 00000000 fe:00 22 /other file"]
)
@pytest.mark.parametrize("written", [4, 0])
def test_what_lies_beside_a_written_file_in_memory_does_not_vouch_for_it(tmp_path, monkeypatch, beside, written):
    """Memory of no file that followed the file's was taken for it: of a changed matrix "exact" was said, now and then."""
    file, told = tmp_path / "model.safetensors", tmp_path / "smaps"
    told.write_text(MAPPED.format(file=file, written=written, beside=beside))
    monkeypatch.setattr(values, "SMAPS", told)
    assert values._unwritten({file}) == ([] if written else [(file, 0x7F00, 0)])


def test_a_matrix_that_was_made_smaller_is_let_go_before_the_next(folder, monkeypatch):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    wide = {id(module.weight): weakref.ref(module.weight) for _, module in exact.matrices(model)}
    own, there = exact.exact_dtype, []

    def watched(weight):
        there.append(sum(reference() is not None for reference in wide.values()))
        return own(weight)

    monkeypatch.setattr(exact, "exact_dtype", watched)
    exact.shrink(model)
    assert there == list(range(len(wide), 0, -1))
