"""The lanes of one page or command: accepts comparisons, and gives every run as an iterator of events.

In: a `Request` for some lanes. Out: per run, events that end with one `Done` or `Failed`, with `None` as a tick
at least ten times a second. Knows no model and no page; imports no torch. One lock guards all state; the lane
processes' reader threads and a watch thread change it, readers only take from their own run's inbox.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from inference.engine.change import ModelChange
from inference.engine.dispatch import Dispatch, Starter
from inference.engine.process import end_all, start_worker
from inference.engine.runs import Comparison, Run
from inference.engine.silence import Silence
from inference.engine.watch import Watch
from inference.errors import InferenceError
from inference.events import ENDS, AnyRequest, RunEvent
from inference.settings import Settings
from inference.status import LaneStatus, ModelStatus

log = logging.getLogger(__name__)
TICK_S = 0.1
READER_PATIENCE_S = 15.0


class Engine:
    """The lanes and the queue before them; `with Engine(settings) as engine` starts and closes them."""

    def __init__(self, settings: Settings, starter: Starter = start_worker, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._dispatch = Dispatch(settings, starter, clock)
        self._lock = self._dispatch.lock
        self._silence = Silence(self._dispatch, clock)
        self._change = ModelChange(self._dispatch)
        self._watch = Watch(self.end_silent_lanes, self.end_unread_runs, self._change.look)

    @property
    def settings(self) -> Settings:
        """Those of the lanes: another model has others."""
        return self._dispatch.settings

    def start(self) -> None:
        """Start loading the lanes that are kept loaded; returns at once."""
        self._watch.start()
        with self._lock:
            self._dispatch.start()

    def close(self) -> None:
        """End every run and every lane process."""
        self._watch.close()
        with self._lock:
            processes = self._dispatch.close() + self._change.ending
        end_all(processes)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def submit(self, request: AnyRequest, lanes: tuple[str, ...] = (), mode: str = "auto") -> Comparison:
        """Accept one comparison, 4-bit lanes first; raises InferenceError for a bad request or an unknown lane."""
        request.check()
        with self._lock:
            return self._dispatch.accept(request, lanes or tuple(self._dispatch.lanes), mode)

    def events(self, run: Run) -> Generator[RunEvent | None, None, None]:
        """The run's events as they come, `None` as a tick, to one reader; closing the iterator stops the run."""
        with self._lock:
            if run.read_by_someone:
                raise InferenceError("This run is read already. Ask again.")
            run.read_by_someone = True
        try:
            while True:
                event = run.inbox.get(TICK_S)
                yield event
                if isinstance(event, ENDS):
                    return
        finally:
            self.stop(run.id)

    def stop(self, run_id: str) -> None:
        """End a run at its next token (at once if it has not begun); never waits."""
        with self._lock:
            if run := self._dispatch.runs.get(run_id):
                self._dispatch.stop(run)

    def retry(self, key: str) -> None:
        """Give a lane that failed or was refused another chance; one whose device is not there has none."""
        with self._lock:
            lane = self._dispatch.find(key)
            if lane.state in ("failed", "refused") and lane.available:
                self._dispatch.retry(lane)

    def status(self) -> list[LaneStatus]:
        """All lanes as they are now."""
        with self._lock:
            waiting = self._dispatch.turns.count()
            return [lane.status(waiting[lane.key]) for lane in self._dispatch.lanes.values()]

    def statuses_of(self, comparison: Comparison) -> list[LaneStatus]:
        """The comparison's lanes as they are now, or were when another model took their place."""
        with self._lock:
            return [comparison.runs[key].lane.status(0) for key in self._dispatch.lanes if key in comparison.runs]

    # ---- the model

    def model(self) -> ModelStatus:
        """Which model the lanes are for, and what becomes of the last change."""
        with self._lock:
            return self._change.status()

    def change_model(self, name: str) -> None:
        """Give up the lanes' processes and begin anew with another model; returns once they are gone, while the new ones load.

        Raises InferenceError while the model is in use or is being changed.
        """
        self._change.to(name)

    def cancel_change(self) -> None:
        """Go back to the model before, while the new one still loads; raises InferenceError where there is nothing to cancel."""
        self._change.cancel()

    def hold_model(self, number: int | None = None) -> AbstractContextManager[None]:
        """Nobody changes the model while this is open, also where no run is under way just then.

        Raises InferenceError while it is being changed, and where `number` is not that of the model there is.
        """
        return self._change.hold(number)

    def pids(self) -> dict[str, int]:
        """Process ids of the lanes that run, by configured lane name."""
        with self._lock:
            return {key: process.pid for key, process in self._dispatch.processes.items()}

    # ---- what the watch thread looks after

    def end_silent_lanes(self) -> None:
        """End each lane that does not stop, gives no sign of life, or does not get on (`silence.py`)."""
        self._silence.look()

    def end_unread_runs(self) -> None:
        """Stop the runs that nobody came to read, so that they hold nobody up.

        A run's reader is waited for from when nobody is before the run: until then it is in nobody's way, and the
        page may have no stream left to read it with.
        """
        with self._lock:
            now = self._clock()
            for run in list(self._dispatch.runs.values()):
                late = run.t_first is not None and now - run.t_first > READER_PATIENCE_S
                if late and not run.read_by_someone and run.t_stop is None:
                    self._dispatch.stop(run)
