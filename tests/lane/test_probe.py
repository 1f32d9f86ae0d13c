"""What a machine can run, and why not, in true words."""

from __future__ import annotations

import pytest
import torch

from inference.lane import probe


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
