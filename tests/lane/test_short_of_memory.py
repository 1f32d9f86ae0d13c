"""Memory runs out, in the computer and on a card, in each phase of a lane: one sentence, and the next load or run is whole, by its fastest path."""

from __future__ import annotations

import errno

import pytest
import torch

from inference.errors import DeviceLost, OutOfMemory, Refused, memory_told
from inference.events import Request
from inference.lane import lane as lane_module
from inference.lane.lane import Lane
from inference.models import exact, private
from tests.support.real import answer, loaded_lane
from tests.support.tiny import make_checkpoint

ASKED = Request("hello good morning", max_new_tokens=6)
ERRORS = {
    "RAM": MemoryError(),
    "torch": RuntimeError("[enforce fail at alloc_cpu.cpp] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 2147483648 bytes."),
    "card": torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "system": OSError(errno.ENOMEM, "Cannot allocate memory"),
}


def fails(error):
    def call(*_, **__):
        raise error

    return call


@pytest.fixture(scope="module")
def lane(tmp_path_factory):
    return loaded_lane("cpu:fp32", str(make_checkpoint(tmp_path_factory.mktemp("tiny") / "llama", "llama")))


def test_a_first_forward_without_memory_is_told_as_such_and_the_matrices_stay_as_small_as_they_are(lane, monkeypatch):
    monkeypatch.setattr(lane_module, "Forward", fails(ERRORS["torch"]))
    monkeypatch.setattr(exact, "widen", lambda _: pytest.fail("made twice as large"))
    with pytest.raises(OutOfMemory, match=r"memory \(RAM\) ran out while loading"):
        Lane(lane.name, lane.settings).load(lambda _: None)


@pytest.mark.parametrize(("place", "error"), [("_read", "RAM"), ("_try", "card"), ("_warm_up", "torch"), ("one_tensor_at_a_time", "system")])
def test_a_load_without_memory_is_told_as_such_and_the_next_is_whole(place, error, lane, monkeypatch):
    anew = Lane(lane.name, lane.settings)
    monkeypatch.setattr(private if place == "one_tensor_at_a_time" else Lane, place, fails(ERRORS[error]))
    with pytest.raises(OutOfMemory, match=r"^The computer's memory \(RAM\) ran out while loading .*llama\. Free some, or set MODEL_ID to a smaller model\.$"):
        anew.load(lambda _: None)
    assert anew.model is None
    monkeypatch.undo()
    assert "c-step" in anew.load(lambda _: None).facts.fast_used


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("path", ["eager", "fast"])
def test_a_run_without_memory_is_told_as_such_and_keeps_its_path(path, phase, error, lane, monkeypatch):
    with monkeypatch.context() as patch:
        if path == "eager":
            patch.setattr(lane.paths, "fast", None)
        patch.setattr(getattr(lane.paths, path), phase, fails(ERRORS[error]))
        with pytest.raises(OutOfMemory, match="ran out in this run. Shorten the prompt"):
            answer(lane, ASKED)
    assert answer(lane, ASKED).path == "c-step"


@pytest.mark.parametrize("error", [Refused("The model needs more: not enough memory."), DeviceLost("out of memory, then gone"), ValueError("odd")])
def test_what_is_no_want_of_memory_or_is_said_already_goes_through(error):
    with pytest.raises(type(error)) as seen, memory_told("cuda", "in this run", "Ask again."):
        raise error
    assert seen.value is error


@pytest.mark.parametrize("error", ERRORS)
def test_a_lane_on_a_card_says_which_memory_it_was(error):
    said = "The GPU ran out of memory" if error == "card" else r"The computer's memory \(RAM\) ran out"
    with pytest.raises(OutOfMemory, match=f"^{said} in this run. Ask again.$"), memory_told("cuda", "in this run", "Ask again."):
        raise ERRORS[error]
