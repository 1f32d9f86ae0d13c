"""What a machine can run, and why not, in true words."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from inference.doctor import report as doctor
from inference.host import nvml
from inference.host.child import ROOT
from inference.lane import paths, probe
from inference.models import loading
from inference.settings import Settings

NO_DRIVER = "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU."
TOO_OLD = "The NVIDIA driver on your system is too old (found version {}). Please update your GPU driver."
FULL = ("CUDA error: out of memory", "CUDA error: CUDA-capable device(s) is/are busy or unavailable")  # tried: a process can't begin on such a card
NO_GPU = "No CUDA GPUs are available"


@pytest.mark.parametrize(
    ("hip", "mps", "words"), [("6.3", False, "AMD GPUs, ROCm 6.3"), (None, True, "Apple's GPU, MPS"), (None, False, "this torch is a CPU build")]
)
def test_a_device_that_is_no_cuda_device_is_told_by_its_name(hip, mps, words, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert words in probe.cuda_reason() and probe.probe("auto:nf4").lane == "cpu:nf4"
    found = probe.probe("cuda:bf16")
    assert not found.available and words in found.reason and "cpu:fp32" in found.reason


@pytest.mark.parametrize(("capability", "offered"), [((7, 5), False), ((8, 0), True), ((12, 0), True)])
def test_bfloat16_is_offered_only_where_it_is_not_emulated(capability, offered, monkeypatch):
    monkeypatch.setattr(probe, "cuda_reason", lambda: None)
    monkeypatch.setattr(probe, "bitsandbytes_reason", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    found = probe.probe("cuda:bf16")
    assert found.available == offered and (offered or "7.5) only emulates bfloat16" in found.reason)
    assert probe.probe("cuda:nf4").available


def test_without_bitsandbytes_there_is_no_4_bit_lane_with_the_reason_and_the_others_run(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)  # its import fails
    monkeypatch.setattr(torch.version, "cuda", None)
    found = probe.probe("auto:nf4")
    assert not found.available and "bitsandbytes can't be imported" in found.reason
    assert probe.probe("cpu:fp32").available


def no_start(monkeypatch, words, cards=1, serves=12090, needs="13.0", available=False):
    """A torch for CUDA `needs` that doesn't start, with its own `words`, beside a driver (NVML) that serves `serves`; None: no NVML."""

    def fail(*_, **__):
        raise RuntimeError(words)

    driver = SimpleNamespace(nvmlDeviceGetCount=lambda: cards, nvmlSystemGetCudaDriverVersion_v2=lambda: serves)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(nvml, "ask", lambda what, question: None if serves is None else question(driver))
    monkeypatch.setattr(torch.version, "cuda", needs)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "init", fail)
    if available:
        monkeypatch.setattr(torch, "zeros", fail)


@pytest.mark.parametrize(
    "words", ["CUDA error: out of memory", "CUDA out of memory. Tried to allocate 2.00 MiB.", "CUDA error: CUDA-capable device(s) is/are busy or unavailable"]
)
def test_a_card_that_other_programs_fill_is_no_broken_one(words, monkeypatch):
    """It was told as one that does not work, for as long as the lane's process lived, and auto:nf4 went to the CPU."""
    no_start(monkeypatch, words, needs="12.8", available=True)
    found = probe.probe("auto:nf4")
    assert probe.cuda_reason() is None and (found.lane, found.available, found.reason) == ("cuda:nf4", True, None)


def test_of_a_card_on_which_a_process_can_t_even_begin_nothing_is_free(monkeypatch):
    said = [*FULL, "CUDA error: an illegal memory access was encountered"]

    def fail(*_):
        raise RuntimeError(said.pop(0))

    monkeypatch.setattr(torch.cuda, "mem_get_info", fail)
    assert [loading.free_bytes("cuda:nf4") for _ in FULL] == [0, 0]
    with pytest.raises(RuntimeError, match="illegal"):
        loading.free_bytes("cuda:nf4")


def test_a_full_card_is_not_lost(monkeypatch):
    said = [*FULL, "CUDA error: an illegal memory access was encountered"]

    def fail(*_):
        raise RuntimeError(said.pop(0))

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    assert [paths.device_lost() for _ in (*FULL, "lost")] == [False, False, True]


def in_pre_requirements():
    return next(line for line in (ROOT / "pre-requirements.txt").read_text("utf-8").splitlines() if line.startswith("torch"))


@pytest.mark.parametrize("serves", [12090, None], ids=["NVML", "no NVML"])
@pytest.mark.parametrize("available", [False, True], ids=["torch asks the driver", "torch asks NVML"])
def test_a_driver_too_old_for_this_torch_is_told_with_both_versions_and_the_line_to_add(serves, available, monkeypatch):
    no_start(monkeypatch, TOO_OLD.format(12090), serves=serves, available=available)
    fallen, named = probe.probe("auto:nf4"), probe.probe("cuda:bf16")
    gpu = next(line for line in doctor._hardware(Settings(), ram=0) if "GPU: " in line)
    assert fallen.available and fallen.lane == "cpu:nf4" and not named.available
    for said in (fallen.reason, named.reason, gpu):
        assert "driver is too old for this torch" in said and "CUDA 12.9" in said and f"{torch.__version__} is built for CUDA 13.0" in said
        assert f'pip install "{in_pre_requirements()}"' in said and "no cuda device" not in said.lower()
    assert named.reason.endswith("pre-requirements.txt). Use the lane cpu:fp32 here.")


def test_a_driver_too_old_is_seen_by_its_versions_whatever_torch_says(monkeypatch):
    no_start(monkeypatch, "CUDA driver version is insufficient for CUDA runtime version")
    assert "serves CUDA 12.9" in probe.cuda_reason()


def test_a_driver_that_serves_no_torch_of_ours_must_be_updated(monkeypatch):
    no_start(monkeypatch, TOO_OLD.format(11040), serves=11040, needs="12.8")
    assert "serves CUDA 11.4" in probe.cuda_reason() and "update the driver)" in probe.cuda_reason()


@pytest.mark.parametrize(
    ("words", "cards", "serves", "said"),
    [
        (NO_DRIVER, 0, None, "no CUDA device"),
        (NO_GPU, 0, 12090, "no CUDA device"),
        (NO_GPU, 1, 13000, f"no CUDA device that torch can use, though the driver sees one ({NO_GPU})"),
    ],
    ids=["no driver", "no card", "a card that torch can't use"],
)
def test_without_a_card_no_driver_is_blamed(words, cards, serves, said, monkeypatch):
    no_start(monkeypatch, words, cards, serves)
    assert probe.cuda_reason() == said
