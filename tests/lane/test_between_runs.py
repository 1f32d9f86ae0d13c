"""What a lane does while nothing is asked: the 4-bit copy, a piece at a time, and never while a run is measured."""

from inference.cache import cache, manifest
from inference.cache.manifest import State
from inference.lane.lane import LOOK_S, Lane
from inference.models import loading, quantized_copy
from inference.settings import Settings
from tests.support.tiny import make_checkpoint


def test_the_copy_is_written_between_runs_and_keeps_still_while_one_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(quantized_copy, "PART_BYTES", 1)
    monkeypatch.setattr(quantized_copy, "IDLE_S", 0.0)
    settings = Settings(model_id=str(make_checkpoint(tmp_path / "m", "llama")), cache_dir=str(tmp_path / "cache"), fast=())
    lane, place, arguments = Lane("cpu:nf4", settings), cache.of(settings), loading.model_arguments("cpu:nf4")
    lane.load(lambda _: None)
    assert lane.between_runs() is None, "only the 4-bit lane on a GPU keeps a copy today"
    entry, key = (of(lane.source.checkpoint, arguments, *rest) for of, rest in ((quantized_copy.entry_of, (place,)), (quantized_copy.key_of, ())))
    lane._copy = quantized_copy.Writer(lane.model, entry, key, place)
    lane.hold(True)
    assert lane.between_runs() == LOOK_S and not entry.path.parent.exists()
    lane.hold(False)
    waits = [lane.between_runs() for _ in range(6)]
    assert waits[:5] == [LOOK_S] * 5 and waits[5] is None and manifest.state(entry.path, key) is State.WHOLE
