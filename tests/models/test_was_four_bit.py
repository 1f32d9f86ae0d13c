"""A full checkpoint whose values came out of a 4-bit file is told, by what is found in its files; an ordinary one never is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from inference.cache import manifest
from inference.models import was_four_bit
from inference.models.was_four_bit import Found, found
from inference.sources import default_model
from tests.support.four_bit import by_nf4, dequantized
from tests.support.real import loaded_lane
from tests.support.tiny import make_checkpoint

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def values(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 0.05


def by_q4_1(weight: torch.Tensor) -> torch.Tensor:
    """As llama.cpp does: in each block of 32 a smallest value and 15 steps."""
    blocks = weight.reshape(-1, 32)
    low, high = blocks.amin(1, keepdim=True), blocks.amax(1, keepdim=True)
    step = (high - low) / 15
    return (((blocks - low) / step).round() * step + low).reshape(weight.shape)


def by_q4_0(weight: torch.Tensor) -> torch.Tensor:
    blocks = weight.reshape(-1, 32)
    step = blocks.gather(1, blocks.abs().argmax(1, keepdim=True)) / -8
    return ((blocks / step).round().clamp(-8, 7) * step).reshape(weight.shape)


def by_int8(weight: torch.Tensor) -> torch.Tensor:
    step = weight.abs().amax(1, keepdim=True) / 127
    return (weight / step).round() * step


def ternary(weight: torch.Tensor) -> torch.Tensor:
    scale = weight.abs().mean()
    return (weight / scale).round().clamp(-1, 1) * scale


def saved(folder: Path, dtype: torch.dtype = torch.bfloat16, **tensors: torch.Tensor) -> Path:
    folder.mkdir(exist_ok=True)
    save_file({name: tensor.to(dtype).contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("way", "block"), [(by_nf4, 64), (by_q4_0, 32), (by_q4_1, 32)])
def test_dequantized_values_are_told_in_whatever_dtype_they_were_saved(tmp_path, way, block, dtype):
    folder = saved(tmp_path / "m", dtype, a=way(values(96, 160)), b=way(values(64, 320, seed=1)), norm=values(64))
    told = found(folder)
    assert told and (told.matrices, told.of, told.bytes_share, told.block) == (2, 2, 1.0, block) and 12 <= told.values <= 16
    assert (
        told.words
        == f"these values came out of a 4-bit file: 2 of 2 matrices (100 % of their bytes) hold at most {told.values} values in each block of {block}"
    )


def test_rows_that_no_block_divides_are_told_in_bitsandbytes_order(tmp_path):
    assert found(saved(tmp_path / "m", a=by_nf4(values(130, 150)))).block == 64


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", [lambda weight: weight, by_int8, lambda weight: by_nf4(weight) + 1e-3 * values(*weight.shape, seed=9)])
def test_ordinary_values_those_out_of_8_bits_and_a_merged_adapter_s_are_not_told(tmp_path, way, dtype):
    assert found(saved(tmp_path / "m", dtype, a=way(values(96, 160)), b=way(values(64, 320, seed=1)))) is None


def pruned(weight: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.rand(weight.shape, generator=torch.Generator().manual_seed(3)) < 0.9, 0.0, weight)


@pytest.mark.parametrize("natural", [torch.zeros(64, 64), torch.ones(64, 64), pruned(values(256, 256)), -torch.zeros(64, 64), torch.eye(96), values(3, 5)])
def test_matrices_of_few_values_by_nature_are_neither_told_nor_counted(tmp_path, natural):
    assert found(saved(tmp_path / "a", a=natural, b=values(64, 64))) is None
    told = found(saved(tmp_path / "b", a=natural, b=by_nf4(values(64, 64))))
    assert told and (told.matrices, told.of, told.bytes_share) == (1, 1, 1.0)


def test_ternary_values_are_told_as_what_they_are(tmp_path):
    told = found(saved(tmp_path / "m", a=ternary(values(128, 128))))
    assert told and told.words.startswith("these values came out of a 2-bit file") and "at most 3 values" in told.words


def test_a_part_is_told_as_a_part(tmp_path):
    embedding = values(500, 64)
    told = found(saved(tmp_path / "m", embedding=embedding, a=by_nf4(values(64, 64)), b=by_nf4(values(64, 64, seed=1))))
    assert told and (told.matrices, told.of) == (2, 3) and told.bytes_share == pytest.approx(2 * 64 * 64 / (500 * 64 + 2 * 64 * 64))
    assert told.words.startswith("a part of these values came out of a 4-bit file: 2 of 3 matrices (20 % of their bytes)")


def test_zero_rows_hide_nothing(tmp_path):
    weight = by_q4_1(values(512, 64))
    weight[100:400] = 0
    assert found(saved(tmp_path / "m", a=weight)).matrices == 1


def test_one_block_of_other_values_is_enough_against_it(tmp_path):
    weight = by_nf4(values(300, 640))
    weight[151, 64:128] = values(64, seed=5)  # not among the blocks that a sample sees
    folder = saved(tmp_path / "m", a=weight, b=by_nf4(values(64, 64)))
    told = found(folder)
    assert told and (told.matrices, told.of) == (1, 2)


def test_within_a_limit_an_even_share_is_looked_at_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(was_four_bit, "PIECE", 1024)
    folder = saved(tmp_path / "m", a=by_nf4(values(256, 512)), b=by_nf4(values(128, 512)))
    read = []
    own = was_four_bit._Matrix.read
    monkeypatch.setattr(was_four_bit._Matrix, "read", lambda matrix, first, count: read.append(count) or own(matrix, first, count))
    told = found(folder, 2 * 384 * 512 // 8)
    assert told and (told.matrices, told.of, told.every) == (2, 2, 8) and told.words.endswith("(1 block in 8 looked at)")
    assert read.count(1024) == 384 * 512 // 1024 // 8
    assert "looked at" not in found(folder).words


def test_only_the_files_that_the_model_is_read_from_count(tmp_path):
    folder = saved(tmp_path / "m", a=values(64, 64))
    save_file({"b": by_nf4(values(64, 64))}, folder / "other.safetensors")
    assert found(folder) is None
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "other.safetensors"}}))
    assert (told := found(folder)) and (told.matrices, told.of) == (1, 2)


@pytest.mark.parametrize("lane", ["cpu:fp32", "cpu:nf4"])
def test_the_lane_s_note_says_so(tmp_path, lane):
    facts = loaded_lane(lane, str(dequantized(tmp_path / "m"))).facts
    assert facts and "came out of a 4-bit file: 14 of 15 matrices" in (facts.note or "")


def test_an_ordinary_checkpoint_has_no_note(tmp_path):
    facts = loaded_lane("cpu:fp32", str(make_checkpoint(tmp_path / "m", "llama"))).facts
    assert facts and facts.note is None


def test_what_the_note_says_already_is_not_said_twice(tmp_path):
    folder = saved(tmp_path / "m", a=by_q4_1(values(64, 64)))
    figures = "1 of 1 matrices (100 % of their bytes) hold at most 16 values in each block of 32"
    assert was_four_bit.note(folder, default_model.NOTE) == f"{default_model.NOTE}; {figures}"
    assert was_four_bit.note(folder, "a remark") == f"a remark; these values came out of a 4-bit file: {figures}"


def test_the_packaged_default_model_is_one(default_folder):
    if not (Path(default_folder) / manifest.FILE).exists():
        pytest.skip("the Hub's own files are at hand, which are no 4-bit file's")
    told = found(Path(default_folder))
    assert told and replace(told, bytes_share=0) == Found(210, 211, 0, 16, 32)
