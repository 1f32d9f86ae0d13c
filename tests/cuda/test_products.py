"""The kernels one by one against FP64 on the same dequantized weights, at odd shapes: 2e-5 with bfloat16 operands, 1e-12 in float32."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import bitsandbytes.functional as bnbf
import pytest
import torch
from torch.nn import functional as F

from inference.cuda import kernels
from inference.cuda.packed import Group, Packed
from inference.cuda.step import Codes, plan_matmul
from inference.parts.reader import read_parts
from tests.support.cuda_emulator import Emulator
from tests.support.quantized import made

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
KINDS = {"4 bits": (4, False, 2e-5), "16 bits": (16, False, 2e-5), "4 bits in float32": (4, True, 1e-12)}


def error(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found.double() - truth).pow(2).sum() / truth.pow(2).sum())


def matrix(rows: int, columns: int, bits: int, dtype: torch.dtype, bias: bool) -> tuple[Packed, torch.Tensor, Any]:
    weight, added = torch.randn(rows, columns), torch.randn(rows).to(dtype) if bias else None
    if bits == 16:
        return Packed(rows, columns, weight.bfloat16(), None, added), weight.bfloat16().double(), None
    codes, state = bnbf.quantize_4bit(weight.view(1, -1), blocksize=64, quant_type="nf4", compress_statistics=False)
    scales = state.absmax.float()
    index = torch.stack([codes.view(-1) >> 4, codes.view(-1) & 15], -1).view(-1).long()
    exact = (state.code.double()[index].view(-1, 64) * scales.double()[:, None]).view(rows, columns)
    return Packed(rows, columns, codes.view(-1), scales, added), exact, state.code


class Bench:
    def __init__(self, kind: str, folder: Path, multiprocessors: int) -> None:
        self.bits, self.wide, self.bound = KINDS[kind]
        self.dtype = torch.float32 if self.wide else torch.bfloat16
        macros = kernels.macros(read_parts(made("gemma")), self.bits, self.wide)
        self.emulator = Emulator(kernels.source(macros), macros, folder, multiprocessors)

    def group(self, sizes: tuple[int, ...], columns: int) -> tuple[Group, list[torch.Tensor], Any]:
        made = [matrix(rows, columns, self.bits, self.dtype, bias=index != 1) for index, rows in enumerate(sizes)]
        group = Group(tuple(packed for packed, _, _ in made))
        packed: Any = type("Model", (), {"codes": tuple(made[0][2].tolist()) if self.bits == 4 else None, "wide": self.wide})
        return group, [exact for _, exact, _ in made], Codes(packed, torch.device("cpu"))

    def product(self, kind: str, group: Group, codes: Codes, x: torch.Tensor, n: int, make: Any) -> torch.Tensor:
        t, columns = x.shape
        width = next(w for w in (1, 2, 4) if t <= 8 * w)
        units = -(-columns // (128 if self.bits == 4 else 64))
        plan = plan_matmul(n // 16, units, width, kind == "gated", self.emulator.multiprocessors, 232448)
        out, threads = make(plan.chunks), plan.per_block * plan.slices * 32
        numbers = (n, columns, t, plan.chunks, plan.per_block, plan.slices)
        self.emulator.launch(f"{kind}_{width}", (plan.blocks,), threads, 1 << 17, group.argument, codes.table, codes.unscale, x, out, *numbers)
        return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [192, 256])
@pytest.mark.parametrize("multiprocessors", [2, 132])
def test_products_agree_with_fp64(kind: str, columns: int, multiprocessors: int, tmp_path: Path) -> None:
    torch.manual_seed(1)
    bench = Bench(kind, tmp_path, multiprocessors)
    group, exact, codes = bench.group((64, 64, 32), columns)
    gated, both, _ = bench.group((64, 64), columns)
    for t in (1, 3, 8, 16, 30):
        x = torch.randn(t, columns).to(bench.dtype)
        out = bench.product("parts", group, codes, x, 160, lambda chunks, t=t: torch.full((chunks, t, 160), float("nan")))
        assert group.bias is not None
        assert error(out.double().sum(0), x.double() @ torch.cat(exact).T + group.bias.double()) < bench.bound
        found = bench.product("gated", gated, codes, x, 64, lambda _, t=t: torch.zeros(t, 64, dtype=bench.dtype))
        bias = gated.matrices[0].bias
        assert bias is not None
        truth = F.gelu(x.double() @ both[0].T + bias.double(), approximate="tanh") * (x.double() @ both[1].T)
        assert error(found, truth) < bench.bound


@pytest.mark.parametrize("kind", ["4 bits", "4 bits in float32"])
def test_rows_are_decoded_as_bitsandbytes_does(kind: str, tmp_path: Path) -> None:
    bench = Bench(kind, tmp_path, 7)
    group, exact, codes = bench.group((64, 16, 32), 192)
    for first, rows in ((0, 112), (16, 80), (80, 32)):
        out = torch.full((rows, 192), float("nan"), dtype=bench.dtype)
        items = out.numel() // 8
        bench.emulator.launch("decode_rows", (-(-items // 1024),), 256, 0, group.argument, codes.values, first, 192, items, out)
        assert torch.equal(out, torch.cat(exact)[first : first + rows].to(bench.dtype))
