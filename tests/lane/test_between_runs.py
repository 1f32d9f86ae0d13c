"""What a lane does while nothing is asked: the 4-bit copy, a piece at a time, and never while a run is measured; and what a long context took is given back."""

import pytest

from inference.cache import cache, manifest
from inference.cache.manifest import State
from inference.decode.eager import EagerDecoder
from inference.events import Loading, Prefill, Request
from inference.lane import energy
from inference.lane import lane as lane_module
from inference.lane.lane import LOOK_S, Lane
from inference.models import loading, quantized_copy
from inference.settings import Settings
from tests.support.tiny import make_checkpoint


@pytest.fixture(autouse=True)
def no_counter(tmp_path, monkeypatch):
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)  # whatever this machine has


def test_the_copy_is_written_between_runs_and_keeps_still_while_one_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(quantized_copy, "PART_BYTES", 1)
    monkeypatch.setattr(quantized_copy, "IDLE_S", 0.0)
    settings = Settings(model_id=str(make_checkpoint(tmp_path / "m", "llama")), cache_dir=str(tmp_path / "cache"), fast=())
    lane, place, arguments = Lane("cpu:nf4", settings), cache.of(settings), loading.model_arguments("cpu:nf4")
    lane.load(lambda _: None)
    assert lane.between_runs() is None, "only the 4-bit lane on a GPU keeps a copy today"
    entry, key = (of(lane.source.checkpoint, arguments, *rest) for of, rest in ((quantized_copy.entry_of, (place,)), (quantized_copy.key_of, ())))
    lane._copy = quantized_copy.Writer(lane.model, entry, key, place)
    lane.hold(["cpu"])
    assert lane.between_runs() == LOOK_S and not entry.path.parent.exists()
    lane.hold([])
    lane.meter = meter = Looked()
    waits = [lane.between_runs() for _ in range(6)]
    assert waits[:5] == [LOOK_S] * 5 and waits[5] is None and manifest.state(entry.path, key) is State.WHOLE
    assert meter.looks == 1, "no rest, whose power would be an idle one, begins while the copy is written"


class Looked(energy.Meter):
    """Counts how often it was asked whether a rest begins."""

    looks = 0

    def look(self) -> float | None:
        self.looks += 1
        return super().look()


class Growing(EagerDecoder):
    """The eager way with a cache that holds ten positions until it grows."""

    positions = 10

    def must_grow(self, prompt_tokens: int, new_tokens: int) -> bool:
        return prompt_tokens + new_tokens > self.positions

    def grow(self, prompt_tokens: int, new_tokens: int) -> None:
        self.positions = prompt_tokens + new_tokens

    def shrink(self) -> bool:
        shrunk, self.positions = self.positions > 10, 10
        return shrunk


def test_a_cache_grows_before_the_run_begins_and_shrinks_when_nothing_is_asked(tmp_path, monkeypatch):
    lane = Lane("cpu:fp32", Settings(model_id=str(make_checkpoint(tmp_path / "m", "llama")), cache_dir=str(tmp_path / "cache"), fast=()))
    lane.load(lambda _: None)
    lane.paths.fast = decoder = Growing(lane.model)
    for asked, grows in ((2, False), (40, True), (40, False)):
        events = list(lane.generate("r", Request("hi", format="raw", max_new_tokens=asked), lambda: False))
        assert [type(event) for event in events[:2]].count(Loading) == grows and isinstance(events[grows], Prefill)
        assert not any(isinstance(event, Loading) for event in events[1:]), "it never grows in a run"
    assert lane.paths.positions == decoder.positions > 40
    left = lane.between_runs()
    assert left is not None and 0 < left <= lane_module.IDLE_S and decoder.positions > 40
    monkeypatch.setattr(lane_module, "IDLE_S", 0.0)
    assert lane.between_runs() is None and decoder.positions == 10


def test_a_cache_that_fails_to_change_its_size_is_given_up_and_the_run_is_answered(tmp_path, monkeypatch):
    lane = Lane("cpu:fp32", Settings(model_id=str(make_checkpoint(tmp_path / "m", "llama")), cache_dir=str(tmp_path / "cache")))
    lane.load(lambda _: None)

    def broken(*_):
        raise RuntimeError("no pinned memory")

    for name in ("grow", "shrink"):
        lane.paths.fast = decoder = Growing(lane.model)
        lane.ways.why_not.clear()
        monkeypatch.setattr(decoder, name, broken)
        *_, done = lane.generate("r", Request("hi", format="raw", max_new_tokens=40), lambda: False)
        assert len(done.token_ids) == 40 or done.finish_reason == "stop"
        if name == "shrink":
            monkeypatch.setattr(lane_module, "IDLE_S", 0.0)
            assert lane.between_runs() is None
        assert lane.paths.fast is None and "no pinned memory" in lane.ways.why_not[lane.paths.name]
        assert (name == "grow") == bool(done.path_reason)
