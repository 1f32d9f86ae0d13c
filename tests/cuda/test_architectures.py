"""Every architecture's code is made by NVRTC, which needs no card; what is only compiled here has not been measured."""

from __future__ import annotations

import pytest
import torch

from inference.cuda import kernels
from inference.cuda.device_code import NoDeviceCode, compile_source
from inference.parts.reader import read_parts
from tests.support.quantized import made

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


@pytest.fixture(scope="module", autouse=True)
def nvrtc() -> None:
    try:
        compile_source('extern "C" __global__ void nothing() {}', {}, "sm_80")
    except NoDeviceCode as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("bits", [4, 16])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_are_made_for_it(architecture: str, bits: int) -> None:
    macros = kernels.macros(read_parts(made("gemma2")), bits, False)
    assert compile_source(kernels.source(macros), macros, architecture)


def test_kernels_in_float32_are_made_for_cards_without_bfloat16() -> None:
    macros = kernels.macros(read_parts(made("gemma2", torch.float32)), 4, True)
    source = kernels.source(macros)
    assert compile_source(source, macros, "sm_75") and b".target sm_75" in compile_source(source, macros, "compute_75")
