"""Every architecture's code is made by NVRTC, which needs no card; what is only compiled here has not been measured."""

from __future__ import annotations

import pytest
import torch

from inference.cuda import kernels
from inference.cuda.device_code import NoDeviceCode, compile_source
from inference.cuda.program import layout, program_source
from inference.parts.description import ModelParts
from inference.parts.reader import read_parts
from tests.support.quantized import made

# multiprocessors and shared memory of a block of a card of each (A100, A10, L4, H100, B200, RTX 5090); bits of a weight: the two forms
# differ by no architecture, so each is made for half of them
CARDS = {
    "sm_80": (108, 166912, 4),
    "sm_86": (72, 101376, 16),
    "sm_89": (58, 101376, 4),
    "sm_90": (132, 232448, 16),
    "sm_100": (148, 232448, 4),
    "sm_120": (170, 101376, 16),
}


@pytest.fixture(scope="module", autouse=True)
def nvrtc() -> None:
    try:
        compile_source('extern "C" __global__ void nothing() {}', {}, "sm_80")
    except NoDeviceCode as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def parts() -> ModelParts:
    return read_parts(made("gemma2"))


@pytest.mark.parametrize("architecture", CARDS)
def test_kernels_are_made_for_it(architecture: str, parts: ModelParts) -> None:
    macros = kernels.macros(parts, CARDS[architecture][2], False)
    assert compile_source(kernels.source(macros), macros, architecture)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_120"])
def test_the_one_kernel_step_is_made_for_it(architecture: str, parts: ModelParts) -> None:
    multiprocessors, shared, bits = CARDS[architecture]
    macros = layout(parts, multiprocessors, shared, 0b01111 if bits == 4 else 0).macros
    assert compile_source(program_source(), macros, architecture)


def test_kernels_in_float32_are_made_for_cards_without_bfloat16() -> None:
    macros = kernels.macros(read_parts(made("gemma2", torch.float32)), 4, True)
    assert compile_source(kernels.source(macros), macros, "sm_75")
