"""A change to another model that is cancelled or fails: back to the one before, by what reason."""

import pytest

from inference.errors import InferenceError
from inference.events import Failed, Loading
from inference.settings import Settings
from tests.support.changes import FIRST, OTHER, change_to


def test_a_cancel_ends_the_new_processes_and_goes_back_to_the_model_before(loaded):
    loaded.engine.change_model(OTHER)
    new = loaded.lanes["auto:nf4"]
    new.emit(Loading("downloading", 10, 100, "bytes"))
    loaded.engine.cancel_change()
    assert new.closed and loaded.started_with == Settings()
    model = loaded.engine.model()
    assert (model.name, model.number, model.phase, model.other) == (FIRST, 0, "cancelled", OTHER)
    loaded.lanes["auto:nf4"].ready()
    assert loaded.state("auto:nf4") == "ready"
    change_to(loaded)
    loaded.engine.change_model("you/third")
    loaded.engine.cancel_change()
    assert (loaded.engine.model().name, loaded.engine.model().number) == (OTHER, 2)


def test_a_load_that_a_prompt_waits_for_is_not_cancelled_until_that_is_stopped(loaded):
    loaded.engine.change_model(OTHER)
    comparison = loaded.ask()
    with pytest.raises(InferenceError, match="2 runs under way or waiting"):
        loaded.engine.cancel_change()
    for run in comparison.runs.values():
        loaded.engine.stop(run.id)
    loaded.engine.cancel_change()
    assert loaded.engine.model().name == FIRST


@pytest.mark.parametrize("then", ["at rest", "loaded", "while the old ones are ended"])
def test_where_nothing_is_loaded_there_is_nothing_to_cancel(loaded, then, request):
    if then == "loaded":
        change_to(loaded)
    elif then != "at rest":
        request.getfixturevalue("slow_end")
    before = loaded.engine.model()
    with pytest.raises(InferenceError, match="nothing to cancel"):
        loaded.engine.cancel_change()
    assert loaded.engine.model() == before


@pytest.mark.parametrize("how", ["failed", "refused", "dead"])
def test_a_model_that_can_not_be_loaded_stays_with_its_reason_and_the_one_before_can_be_chosen(loaded, how):
    loaded.engine.change_model(OTHER)
    loaded.lanes["auto:nf4"].hello()
    if how == "dead":
        for _ in range(3):
            loaded.lanes["auto:nf4"].exit(1)
    else:
        loaded.lanes["auto:nf4"].emit(Failed(None, "It needs 30 GiB.", how == "refused"))
    model, lane = loaded.engine.model(), loaded.engine.status()[0]
    assert (model.name, model.phase, model.other) == (OTHER, "failed", FIRST) and lane.reason
    loaded.engine.change_model("you/third")
    loaded.engine.cancel_change()
    assert loaded.engine.model().name == FIRST, "a cancel goes back to the last model that could be loaded"


def test_a_failed_model_that_is_loaded_by_another_try_is_kept(loaded):
    loaded.engine.change_model(OTHER)
    loaded.lanes["auto:nf4"].hello()
    loaded.lanes["auto:nf4"].emit(Failed(None, "The download broke off."))
    assert loaded.engine.model().phase == "failed"
    loaded.engine.retry("auto:nf4")
    loaded.lanes["auto:nf4"].loaded()
    assert (loaded.engine.model().phase, loaded.engine.model().other) == ("kept", "")
