"""Which model the lanes are for, and the change to another: refused while the model is in use, and back to the one before by a cancel.

In: a model's name. Out: lanes begun anew in `Dispatch`, a `ModelStatus`. The processes before are waited for, so that their memory is
given back, by the thread that asks and never under the lock. Knows no checkpoint: whether there is such a model, its load says.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from inference.engine.dispatch import Dispatch
from inference.engine.process import AnyProcess, end_all
from inference.errors import InferenceError
from inference.settings import Settings
from inference.status import ModelStatus

log = logging.getLogger(__name__)
BEING_CHANGED = "The model is being changed to {}. Ask again in a moment."
ANOTHER_CHANGE = "The model is being changed to {}. Wait until it is loaded, or cancel that, then choose another."
IN_USE = "The model is in use ({}). Wait until that is over, or stop it, then try again."
CHANGED_SINCE = "The model was changed after this comparison. Ask again; what is there now can't score what the one before wrote."
NOTHING_TO_CANCEL = "No other model is being loaded, so there is nothing to cancel."


class ModelChange:
    """The model of one engine; what changes here changes under the lock of its `Dispatch`."""

    def __init__(self, dispatch: Dispatch) -> None:
        self.ending: list[AnyProcess] = []  # processes that are waited for
        self._dispatch, self._lock = dispatch, dispatch.lock
        self._first, self._before, self._numbers = dispatch.settings, (dispatch.settings, 0), itertools.count(1)
        self._phase, self._other, self._holds = "kept", "", 0

    def status(self) -> ModelStatus:
        """The model and the last change, as they are now."""
        self.look()
        return ModelStatus(self._dispatch.settings.model_id, self._dispatch.model_number, self._phase, self._other)

    def look(self) -> None:
        """Note how a load ended: the model is kept once a lane that is kept loaded has it, or there is none that could."""
        with self._lock:
            lanes = [lane for lane in self._dispatch.lanes.values() if lane.keeps_loaded and lane.available and not lane.name.elsewhere]
            if self._phase not in ("loading", "failed") or any(lane.loading for lane in lanes):
                return
            if lanes and all(lane.state in ("failed", "refused") for lane in lanes):
                self._phase = "failed"
            else:
                self._phase, self._other, self._before = "kept", "", (self._dispatch.settings, self._dispatch.model_number)

    def to(self, name: str) -> None:
        """Change to the model `name`, unless one is in use or on its way; raises InferenceError."""
        with self._lock:
            if self.status().changing:
                raise InferenceError(ANOTHER_CHANGE.format(self._dispatch.settings.model_id))
            self._refuse_while_used()
            settings = self._first if name == self._first.model_id else self._first.for_model(name)
            self._begin(settings, next(self._numbers), self._before[0])
        self._finish("loading")

    def cancel(self) -> None:
        """Go back to the last model that could be loaded; raises InferenceError."""
        with self._lock:
            if self.status().phase != "loading":
                raise InferenceError(NOTHING_TO_CANCEL)
            self._refuse_while_used()
            self._begin(*self._before, self._dispatch.settings)
        self._finish("cancelled")

    @contextmanager
    def hold(self, number: int | None = None) -> Iterator[None]:
        """See `Engine.hold_model`."""
        with self._lock:
            if self._dispatch.refusal:
                raise InferenceError(self._dispatch.refusal)
            if number not in (None, self._dispatch.model_number):
                raise InferenceError(CHANGED_SINCE)
            self._holds += 1
        try:
            yield
        finally:
            with self._lock:
                self._holds -= 1

    def _refuse_while_used(self) -> None:
        if self._dispatch.refusal:
            raise InferenceError(self._dispatch.refusal)
        if runs := len(self._dispatch.runs):
            raise InferenceError(IN_USE.format(f"{runs} run{'s' * (runs > 1)} under way or waiting"))
        if self._holds:
            raise InferenceError(IN_USE.format("a file of prompts, a comparison or a scoring goes on"))

    def _begin(self, settings: Settings, number: int, other: Settings) -> None:
        """The old lanes are gone for everybody; nothing is accepted until the new ones begin."""
        log.info("the model is changed from %s to %s", self._dispatch.settings.model_id, settings.model_id)
        self._phase, self._other = "ending", other.model_id
        self._dispatch.refusal = BEING_CHANGED.format(settings.model_id)
        self._dispatch.settings, self._dispatch.model_number = settings, number
        self.ending = self._dispatch.clear()

    def _finish(self, phase: str) -> None:
        """Wait for the old processes to be gone, then begin the new ones, however that waiting ends."""
        try:
            end_all(self.ending)
        finally:
            with self._lock:
                self.ending, self._phase = [], phase
                self._dispatch.accept_again()
                self._dispatch.start()
                self.look()
