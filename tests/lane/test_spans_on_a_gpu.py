"""A GPU works on after a call has returned: it is waited for where a measured span begins, and a CPU lane asks no card."""

from __future__ import annotations

import pytest
import torch

from inference.events import Request
from inference.lane import lane as lane_module
from inference.lane import vram
from tests.support.real import answer, loaded_lane
from tests.support.tiny import make_checkpoint


@pytest.mark.parametrize(("device", "waits"), [("cuda", 1), ("cpu", 0)])
def test_only_a_cuda_device_is_waited_for(monkeypatch, device, waits):
    asked = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: asked.append(1))
    vram.synchronize(device)
    assert len(asked) == waits


def test_the_device_is_waited_for_just_before_each_clock_starts_and_after_each_span_of_a_load(monkeypatch, tmp_path):
    seen = []
    own = lane_module.Stopwatch.start
    monkeypatch.setattr(vram, "synchronize", lambda device: seen.append(device))
    monkeypatch.setattr(lane_module.Stopwatch, "start", lambda watch: seen.append("start") or own(watch))
    lane = loaded_lane("cpu:fp32", str(make_checkpoint(tmp_path / "tiny")))
    assert len(seen) >= len(lane.now().load.spans) - 1, "importing is over before there is a device"
    seen.clear()
    answer(lane, Request("hello", max_new_tokens=2))
    assert seen == ["cpu", "start"]
