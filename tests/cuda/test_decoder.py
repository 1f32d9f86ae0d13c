"""What the decoder decides without a card: which way a row goes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from inference.cuda import decoder as cuda
from inference.cuda.decoder import GraphDecoder
from inference.cuda.device_code import NoDeviceCode


@pytest.mark.parametrize(("whole", "several", "kept"), [(1.0, 2.0, True), (2.0, 1.0, False), (None, 2.0, False), (2.0, None, True)])
def test_a_row_goes_the_faster_way_and_one_that_does_not_start_is_none(
    whole: float | None, several: float | None, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, made = object(), object.__new__(GraphDecoder)
    made.runner = SimpleNamespace(program=program, next=print)  # type: ignore[assignment]
    made._memory = SimpleNamespace(position=torch.ones(1))  # type: ignore[assignment]
    made.step = SimpleNamespace(device=torch.device("cpu"))  # type: ignore[assignment]

    def captured(_: Any) -> float:
        seconds = whole if made.runner.program else several
        if seconds is None:
            raise NoDeviceCode("whole_step: too many blocks in cooperative launch")
        return seconds

    monkeypatch.setattr(made, "_captured", captured)
    monkeypatch.setattr(cuda, "_seconds", lambda seconds, _: seconds)
    made.choose()
    assert (made.runner.program is program) == kept
