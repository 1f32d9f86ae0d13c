"""The CUDA kernels' source run on the CPU: 4-bit products against float32 ones, whole steps against the models' own logits."""

from __future__ import annotations

import shutil
from pathlib import Path

import bitsandbytes.functional as bnbf
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from inference.cuda.decoder import chunks_of
from inference.cuda.parts import NotFusable, Packed, read_parts
from inference.cuda.step import FusedStep, _weights, code_table, kernel_macros, kernel_source, plan_matmul
from tests.support.cuda_emulator import Emulator
from tests.support.quantized import MODELS, quantized

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def distance(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found.float() - truth.float()).norm() / truth.float().norm())


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_steps_give_the_models_logits(name: str, tmp_path: Path) -> None:
    model = quantized(name)
    parts = read_parts(model)
    step = FusedStep(parts, Emulator(kernel_source(), kernel_macros(parts), tmp_path), 96)
    ids = torch.randint(0, 500, (60,))
    truth, history = model(ids[None]).logits[0].float(), torch.zeros(97, dtype=torch.int64)
    for sizes in ([1] * 16, [16, 1, 7, 1], [30, 1, 29], [20, 40]):  # past the window of 12; 40 rows go the wide way
        step.cache.fill_(float("nan"))  # what isn't written must not be read
        place = 0
        for size in sizes:
            step.position.fill_(place)
            row = step.hidden(ids[place : place + size], place)[-1]
            place += size
            step.position.fill_(place - 1)
            step.head(row)
            step.take_best(history)
            assert distance(step.logits, truth[place - 1]) < 0.03
            assert int(step.token) == int(history[place]) == int(step.logits.argmax()) and int(step.position) == place


@pytest.mark.parametrize("columns", [192, 256])
@pytest.mark.parametrize("multiprocessors", [2, 7, 132])
def test_products_agree_with_float32(columns: int, multiprocessors: int, tmp_path: Path) -> None:
    torch.manual_seed(1)
    emulator = Emulator(kernel_source(), {"HEAD_DIM": 64, "Q_HEADS": 4, "KV_HEADS": 2, "NORM_OFFSET": "1.f", "NORM_ROUNDS": 0, "ACTIVATION": 1}, tmp_path)
    matrices, exact = [], []
    for rows in (64, 64, 32):
        codes, state = bnbf.quantize_4bit(torch.randn(rows, columns), blocksize=64, quant_type="nf4", compress_statistics=False)
        matrices.append(Packed(codes, state.absmax.float(), rows, columns, nn.Identity()))
        exact.append(bnbf.dequantize_4bit(codes, state).float())
    pairs, unscale = code_table(tuple(state.code.tolist()))
    table = torch.tensor([p - (1 << 32) if p >> 31 else p for p in pairs], dtype=torch.int32)
    for t in (1, 3, 8, 16, 30):
        width, x = next(w for w in (1, 2, 4) if t <= 8 * w), torch.randn(t, columns).bfloat16()
        plan = plan_matmul(10, columns // 64, width, False, multiprocessors, 232448)
        out = torch.full((plan.chunks, t, 160), float("nan"))
        numbers = (columns, t, plan.chunks, plan.per_block, plan.slices)
        emulator.launch(
            f"parts_{width}", (plan.blocks,), plan.per_block * plan.slices * 32, 0, _weights(tuple(matrices)), table, unscale, x, out, 160, *numbers
        )
        assert distance(out.sum(0), x.float() @ torch.cat(exact).T) < 0.0015
        plan = plan_matmul(4, columns // 64, width, True, multiprocessors, 232448)
        gated, numbers = torch.zeros(t, 64, dtype=torch.bfloat16), (columns, t, 1, plan.per_block, plan.slices)
        emulator.launch(
            f"gated_{width}", (plan.blocks,), plan.per_block * plan.slices * 32, 0, _weights(tuple(matrices[:2])), table, unscale, x, gated, 64, *numbers
        )
        assert distance(gated, F.gelu(x.float() @ exact[0].T, approximate="tanh") * (x.float() @ exact[1].T)) < 0.012


def test_an_unknown_part_is_refused_by_name() -> None:
    model = quantized("llama")
    model.model.layers[1].self_attn.add_module("sinks", nn.Identity())
    with pytest.raises(NotFusable, match="layer 1 has sinks"):
        read_parts(model)


@pytest.mark.parametrize("length", [1, 16, 32, 33, 511, 512, 900, 2000])
def test_chunks_cover_the_prompt_once(length: int) -> None:
    pieces = chunks_of(length)
    assert [start for start, _ in pieces] == [sum(size for _, size in pieces[:i]) for i in range(len(pieces))]
    assert sum(size for _, size in pieces) == length
