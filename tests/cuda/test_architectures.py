"""Every architecture's code is made by NVRTC of CUDA 12.8 and of 13, which need no card; what is only compiled here has not been measured."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from inference import cuda
from inference.cuda import device_code, kernels
from inference.cuda.device_code import NoDeviceCode, compile_source
from inference.cuda.program import layout, program_source
from inference.parts.description import ModelParts
from inference.parts.reader import read_parts
from tests.support.quantized import made

# multiprocessors and shared memory of a block of a card of each: A100, A10, L4, H100, B200, RTX 5090 (a ZeroGPU's card is of its kind)
CARDS = {"sm_80": (108, 166912), "sm_86": (72, 101376), "sm_89": (58, 101376), "sm_90": (132, 232448), "sm_100": (148, 232448), "sm_120": (170, 101376)}
# what CUDA a torch is built for, architecture, bits of a weight: the two forms differ by no architecture, so each is made for half of them;
# a Space's torch is for 12.8, so all are made by that, and every other one by 13
MADE = [
    *[("12.8", architecture, 4 if odd % 2 else 16) for odd, architecture in enumerate(CARDS)],
    *[("13.0", architecture, 16 if architecture == "sm_90" else 4) for architecture in ("sm_80", "sm_90", "sm_120")],
]  # fmt: skip


@pytest.fixture
def built_for(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """torch as if it were built for that CUDA; skipped where its NVRTC is not installed."""
    monkeypatch.setattr(torch.version, "cuda", request.param)
    monkeypatch.setattr(device_code, "_images", {})
    try:
        device_code._nvrtc()
    except NoDeviceCode as reason:
        pytest.skip(str(reason))
    return str(request.param)


@pytest.fixture(scope="module")
def parts() -> ModelParts:
    return read_parts(made("gemma2"))


@pytest.mark.parametrize("built_for", ["12.8", "13.0"], indirect=True)
def test_the_compiler_is_of_the_cuda_that_torch_is_built_for(built_for: str) -> None:
    major, minor = ctypes.c_int(), ctypes.c_int()
    assert not device_code._nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    assert major.value == int(built_for.split(".")[0])


@pytest.mark.parametrize("broken", [False, True], ids=["there", "broken"])
def test_the_compiler_that_came_with_torch_goes_before_a_system_s(broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"
    own.parent.mkdir(parents=True)

    def opened(name: str) -> str:
        if broken and name == str(own):
            raise OSError
        return name

    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(ctypes, "CDLL", opened)
    assert device_code._nvrtc() == ("libnvrtc.so.12" if broken else str(own))


@pytest.mark.parametrize(("built_for", "architecture", "bits"), MADE, indirect=["built_for"])
def test_kernels_are_made_for_it(built_for: str, architecture: str, bits: int, parts: ModelParts) -> None:
    macros = kernels.macros(parts, bits, False)
    assert compile_source(kernels.source(macros), macros, architecture)


@pytest.mark.parametrize(("built_for", "architecture", "bits"), MADE, indirect=["built_for"])
def test_the_one_kernel_step_is_made_for_it(built_for: str, architecture: str, bits: int, parts: ModelParts) -> None:
    macros = layout(parts, *CARDS[architecture], 0b01111 if bits == 4 else 0).macros
    assert compile_source(program_source(), macros, architecture)


@pytest.mark.parametrize(("built_for", "head_bits"), [("12.8", 16), ("13.0", 32)], indirect=["built_for"])
def test_kernels_in_float32_are_made_for_cards_without_bfloat16(built_for: str, head_bits: int) -> None:
    macros = kernels.macros(read_parts(made("gemma2", torch.float32)), 4, True, head_bits)
    assert compile_source(kernels.source(macros), macros, "sm_75")


def test_no_file_of_kernels_is_left_out() -> None:
    def read() -> Iterator[str]:
        for bits, wide in ((4, False), (16, False), (4, True)):
            yield kernels.source({"WEIGHT_BITS": bits, "WIDE": int(wide)})
        yield program_source()

    texts = list(read())
    files = [file for file in Path(cuda.__file__).parent.iterdir() if file.suffix in (".cu", ".cuh")]
    assert files and not [file.name for file in files if not any(file.read_text("utf-8") in text for text in texts)]
