"""Starts, watches, restarts and stops lane processes; gives every run as an iterator of events.

In: a `Request` for some lanes. Out: per run, events that end with one `Done` or `Failed`, with `None` as a tick
at least ten times a second. Knows no model and no page; imports no torch. One lock guards all state; the lane
processes' reader threads and a watch thread change it, readers only take from their own run's inbox.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import asdict

from inference.engine.process import LaneProcess, start_worker, why_it_died
from inference.engine.runs import Comparison, Lane, Run, mark_contended, may_start, waiting
from inference.errors import InferenceError
from inference.events import ENDS, AnyRequest, Done, Event, Failed, Hello, Loaded, Loading, Prefill, Queued, RunEvent, Scored, Text
from inference.settings import Settings
from inference.status import LOADING_STATES, LaneStatus

log = logging.getLogger(__name__)
TICK_S = 0.1
STOP_PATIENCE_S = 5.0
READER_PATIENCE_S = 15.0
MOST_DEATHS = 3
OTHER_IDS = (
    "The two lanes turned this prompt into different token ids, so their answers can't be compared. Use the same tokenizer in MODEL_ID and CPU_MODEL_ID."
)
Starter = Callable[[str, Settings], LaneProcess]


class Engine:
    """The lanes of one page (or one command) and the queue before them."""

    def __init__(self, settings: Settings, starter: Starter = start_worker, clock: Callable[[], float] = time.perf_counter) -> None:
        self.settings = settings
        self._starter, self._clock = starter, clock
        self._lock = threading.RLock()
        self._lanes = {key: Lane(key, key) for key in settings.lanes}
        self._processes: dict[str, LaneProcess] = {}
        self._runs: dict[str, Run] = {}
        self._pending: list[Run] = []
        self._ids = itertools.count(1)
        self._running = False
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="engine-watch", daemon=True)

    # ---- what callers use

    def start(self) -> None:
        """Start loading the lanes that are kept loaded; returns at once."""
        self._watcher.start()
        with self._lock:
            for lane in filter(lambda lane: lane.keeps_loaded, self._lanes.values()):
                self._spawn(lane)

    def submit(self, request: AnyRequest, lanes: tuple[str, ...] = (), mode: str = "auto") -> Comparison:
        """Accept one comparison, 4-bit lanes first; raises InferenceError for a bad request or an unknown lane."""
        request.check()
        keys = lanes or tuple(self._lanes)
        with self._lock:
            if self._closing.is_set():
                raise InferenceError("The page is shutting down. Start it again and ask once more.")
            chosen = [self._find(key) for key in keys]
            comparison = Comparison(f"c{next(self._ids)}", request, mode)
            now = self._clock()
            for lane in sorted(chosen, key=lambda lane: not lane.keeps_loaded):
                run = Run(f"r{next(self._ids)}", lane, comparison, now)
                comparison.runs[lane.key] = run
                self._runs[run.id] = run
                self._pending.append(run)
            self._pump()
        return comparison

    def events(self, run_id: str) -> Generator[RunEvent | None, None, None]:
        """The run's events as they come, `None` as a tick; closing the iterator stops the run."""
        run = self._runs.get(run_id)
        if run is None or run.read_by_someone:
            raise InferenceError("This run is over, or is read already. Ask again.")
        run.read_by_someone = True
        try:
            while True:
                event = run.inbox.get(TICK_S)
                yield event
                if isinstance(event, ENDS):
                    return
        finally:
            self.stop(run_id)
            self._runs.pop(run_id, None)

    def stop(self, run_id: str) -> None:
        """End a run at its next token (at once if it has not begun); never waits."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or run.ended:
                return
            run.t_stop = run.t_stop or self._clock()
            if run in self._pending:
                self._pending.remove(run)
                run.put(run.stopped())
                self._pump()
                return
            self._send(run.lane, do="stop", run_id=run.id)
            if not run.began:
                run.put(run.stopped())

    def retry(self, key: str) -> None:
        """Give a lane that failed or was refused another chance: a new process, or a new load in the one that lives."""
        with self._lock:
            lane = self._find(key)
            if lane.state not in ("failed", "refused"):
                return
            lane.deaths, lane.reason = 0, None
            if key not in self._processes:
                self._spawn(lane)
            else:
                lane.state = "loading"
                lane.load_began(self._clock())
                self._send(lane, do="load")

    def status(self) -> list[LaneStatus]:
        """All lanes as they are now."""
        with self._lock:
            return [lane.status(sum(run.lane is lane for run in self._pending)) for lane in self._lanes.values()]

    def pids(self) -> dict[str, int]:
        """Process ids of the lanes that run, by configured lane name."""
        return {key: process.pid for key, process in self._processes.items()}

    def close(self) -> None:
        """End every run and every lane process."""
        self._closing.set()
        with self._lock:
            self._pending.clear()
            for run in self._runs.values():
                run.put(Failed(run.id, "The page was shut down before this answer was complete."))
        for process in list(self._processes.values()):
            process.close()

    # ---- lane processes

    def _find(self, key: str) -> Lane:
        for lane in self._lanes.values():
            if key in (lane.key, lane.name):
                return lane
        raise InferenceError(f"Lane {key!r} is not one of this page's lanes ({', '.join(self._lanes)}). Start with LANES naming it.")

    def _spawn(self, lane: Lane, load: bool = True) -> None:
        lane.state, lane.reason, lane.progress = "starting", None, None
        lane.load_began(self._clock())
        process = self._starter(lane.key, self.settings)
        self._processes[lane.key] = process
        process.watch(lambda event: self._on_event(lane, process, event), lambda code: self._on_exit(lane, process, code))
        if self._running:
            process.send(do="hold", still=True)
        if load:
            process.send(do="load")

    def _send(self, lane: Lane, **message: object) -> None:
        if process := self._processes.get(lane.key):
            process.send(**message)

    def _on_exit(self, lane: Lane, process: LaneProcess, returncode: int) -> None:
        with self._lock:
            if self._processes.get(lane.key) is not process or self._closing.is_set():
                return
            del self._processes[lane.key]
            log.warning("lane %s ended with code %d", lane.name, returncode)
            lane.deaths += 1
            lane.reason = why_it_died(returncode)
            lane.facts, lane.progress, lane.path_pending = None, None, False
            lane.load_ended(self._clock())
            stopped = lane.current is not None and lane.current.t_stop is not None
            self._end_current(lane, None if stopped else lane.reason)
            lane.state = "failed" if lane.deaths >= MOST_DEATHS else "off"
            if lane.state == "off" and lane.keeps_loaded:
                self._spawn(lane)
            self._pump()

    def _end_current(self, lane: Lane, message: str | None) -> None:
        run = lane.current
        if run:
            lane.current, run.t_end = None, self._clock()
            run.put(Failed(run.id, message) if message else run.stopped())

    # ---- events from lane processes

    def _on_event(self, lane: Lane, process: LaneProcess, event: Event) -> None:
        with self._lock:
            if self._processes.get(lane.key) is not process:
                return
            match event:
                case Hello():
                    self._hello(lane, event)
                case Loading():
                    lane.state, lane.progress = "loading", event
                    lane.load_began(self._clock())
                    for run in [*self._pending, lane.current]:
                        if run and run.lane is lane:
                            run.put(event)
                case Loaded():
                    lane.take_load(event, self._clock())
                case Failed(run_id=None):
                    lane.load_ended(self._clock())
                    lane.state, lane.reason = ("refused" if event.refused else "failed"), event.message
                    self._end_current(lane, event.message)
                case Prefill() | Text() | Done() | Failed() | Scored():
                    self._run_event(lane, event)
            self._pump()

    def _hello(self, lane: Lane, hello: Hello) -> None:
        lane.take_hello(hello, self._clock())
        if not hello.available:
            self._end_current(lane, hello.reason)

    def _run_event(self, lane: Lane, event: Prefill | Text | Done | Failed | Scored) -> None:
        run = lane.current
        if run is None or run.id != event.run_id:
            return
        if isinstance(event, Prefill):
            run.began, lane.state, lane.deaths = True, "busy", 0
            known = run.comparison.prompt_ids
            if known is not None and known != event.prompt_ids:
                run.put(Failed(run.id, OTHER_IDS))
                self._send(lane, do="stop", run_id=run.id)
                return
            run.comparison.prompt_ids = event.prompt_ids
        if isinstance(event, ENDS):
            lane.current, run.t_end = None, self._clock()
            lane.state = "ready" if lane.facts else "off"
            lane.load_ended(self._clock())
            if isinstance(event, Done):
                event = run.with_waits(event)
        run.put(event)

    # ---- the queue

    def _pump(self) -> None:
        """Begin every run that may begin, tell the others their place; called under the lock after each change."""
        started = True
        while started and not self._closing.is_set():
            ready = (run for run in self._pending if may_start(run, self._pending, list(self._lanes.values())))
            run = next(ready, None)
            started = run is not None
            if run:
                self._pending.remove(run)
                self._begin(run)
        mark_contended(list(self._lanes.values()))
        if (running := any(lane.current for lane in self._lanes.values())) != self._running:
            self._running = running
            for process in self._processes.values():
                process.send(do="hold", still=running)
        for run in self._pending:
            position = waiting(run, self._pending)
            if position != run.position:
                run.position = position
                run.put(Queued(run.id, *position))

    def _begin(self, run: Run) -> None:
        lane = run.lane
        if lane.hello and not lane.hello.available or lane.deaths >= MOST_DEATHS:
            run.put(Failed(run.id, lane.reason or "This lane can't run here; see `python -m inference doctor`."))
            return
        lane.current, run.t_dispatch, request = run, self._clock(), run.comparison.asked
        if lane.key not in self._processes:
            self._spawn(lane, load=False)
        elif lane.facts is None:
            lane.load_began(self._clock())
            lane.state = "loading"
        else:
            lane.state = "busy"
        self._send(lane, do=request.verb, run_id=run.id, request=asdict(request))

    def _watch(self) -> None:
        while not self._closing.wait(0.5):
            self.end_silent_lanes()
            self.end_unread_runs()

    def end_silent_lanes(self) -> None:
        """End the process of each lane that has not answered a stop in time; its run ends as stopped."""
        with self._lock:
            now = self._clock()
            for lane in self._lanes.values():
                run = lane.current
                if run and run.t_stop and now - run.t_stop > STOP_PATIENCE_S and lane.state not in LOADING_STATES:
                    log.warning("lane %s did not stop in %.0f s; its process is ended", lane.name, STOP_PATIENCE_S)
                    lane.deaths -= 1
                    run.t_stop = now
                    self._processes[lane.key].kill()

    def end_unread_runs(self) -> None:
        """Stop the runs that were accepted and then never read, so that they hold nobody up."""
        with self._lock:
            for run in list(self._runs.values()):
                if not run.read_by_someone and self._clock() - run.t_accept > READER_PATIENCE_S:
                    self.stop(run.id)
                    if run.ended:
                        del self._runs[run.id]
