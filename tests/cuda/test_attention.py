"""Attention of many rows against FP64: odd lengths, windows, caps, heads of every size, a prompt in chunks."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inference.cuda import kernels
from inference.cuda.memory import StepMemory
from inference.cuda.prefill import attention_launch
from inference.parts.description import ModelParts
from inference.parts.reader import read_parts
from tests.support.cuda_emulator import Emulator
from tests.support.quantized import made

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def over_a_cache(head_dim: int, wide: bool, cap: float, positions: int, folder: Path) -> tuple[Emulator, ModelParts, StepMemory, torch.dtype]:
    dtype = torch.float32 if wide else torch.bfloat16
    parts = replace(read_parts(made("llama, biases", dtype)), head_dim=head_dim, rotated=0, attention_cap=cap, attention_scale=0.7 / math.sqrt(head_dim))
    parts = replace(parts, layers=tuple(replace(layer, rotary=None) for layer in parts.layers))
    macros = kernels.macros(parts, 4, wide)
    emulator, memory = Emulator(kernels.source(macros), macros, folder), StepMemory(parts, positions)
    memory.keys.fill_(float("nan")), memory.values.fill_(float("nan"))
    return emulator, parts, memory, dtype


@pytest.mark.parametrize(("head_dim", "wide", "cap"), [(256, False, 0.0), (96, False, 3.0), (64, True, 3.0)])
@torch.no_grad()
def test_attention_over_the_cache_is_that_of_fp64(head_dim: int, wide: bool, cap: float, tmp_path: Path) -> None:
    emulator, parts, memory, dtype = over_a_cache(head_dim, wide, cap, 150, tmp_path)
    torch.manual_seed(0)
    for start, t, window in ((0, 33, 0), (0, 130, 12), (61, 70, 0), (61, 70, 70), (5, 1, 3)):
        end = start + t
        memory.keys[1, :, :end], memory.values[1, :, :end] = torch.randn(2, parts.kv_heads, end, head_dim).to(dtype)
        queries = torch.randn(t, parts.q_heads, head_dim).to(dtype) * 2
        answers, memory.position[0] = torch.full_like(queries, float("nan")), start
        rows, threads, shared = attention_launch(parts, memory)
        given = (queries, memory.words, 1, window, parts.attention_scale, answers, t)
        emulator.launch("attend_rows", (-(-t // rows), parts.q_heads), threads, shared, *given)
        truth = exact(parts, queries, memory.keys[1, :, :end], memory.values[1, :, :end], start, window)
        error = (answers.double() - truth).pow(2).sum() / truth.pow(2).sum()
        assert error < (1e-12 if wide else 2e-5)


@pytest.mark.parametrize(("head_dim", "wide"), [(96, False), (64, True)])
@torch.no_grad()
def test_one_row_over_a_long_cache_is_right_in_one_range_of_keys_and_in_several(head_dim: int, wide: bool, tmp_path: Path) -> None:
    emulator, parts, memory, dtype = over_a_cache(head_dim, wide, 3.0, 600, tmp_path)
    torch.manual_seed(0)
    memory.keys[1, :, :600], memory.values[1, :, :600] = torch.randn(2, parts.kv_heads, 600, head_dim).to(dtype)
    memory.keys[1] *= torch.linspace(0.1, 2, memory.keys.shape[2])[:, None].to(dtype)  # the largest scores come last
    memory.position[0] = 599
    scratch, arrived = torch.full((parts.q_heads * 3 * (head_dim + 2),), float("nan")), torch.zeros(parts.q_heads, dtype=torch.int32)
    for splits, window in ((1, 0), (3, 0), (3, 280), (3, 0)):
        queries = torch.randn(1, parts.q_heads, head_dim).to(dtype) * 2
        answers = torch.full_like(queries, float("nan"))
        given = (queries, memory.words, 1, -1, window, parts.attention_scale, scratch, arrived, answers)
        emulator.launch("attend", (splits, parts.q_heads, 1), 512, 0, None, 1, None, None, 0.0, *given)
        truth = exact(parts, queries, memory.keys[1, :, :600], memory.values[1, :, :600], 599, window)
        error = (answers.double() - truth).pow(2).sum() / truth.pow(2).sum()
        assert error < (1e-12 if wide else 2e-5) and not arrived.any()


def exact(parts, queries, keys, values, start: int, window: int) -> torch.Tensor:
    repeats = parts.q_heads // parts.kv_heads
    keys, values = (part.double().repeat_interleave(repeats, 0) for part in (keys, values))
    scores = queries.double().transpose(0, 1) @ keys.transpose(1, 2) * parts.attention_scale
    if parts.attention_cap:
        scores = parts.attention_cap * torch.tanh(scores / parts.attention_cap)
    back = torch.arange(start, start + queries.shape[0])[:, None] - torch.arange(keys.shape[1])
    seen = (back >= 0) & (back < (window or math.inf))
    return (scores.masked_fill(~seen, -math.inf).softmax(-1) @ values).transpose(0, 1)
