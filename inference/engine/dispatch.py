"""What happens to lanes and runs: begun, answered, failed, stopped, started anew.

In: runs, and the events and ends of lane processes. Out: events in the runs' inboxes, requests to the processes.
All of it under `lock`, which a caller holds and a process's reader thread takes. Has no thread of its own and never waits.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, replace

from inference.engine.process import AnyProcess, was_fault, why_it_did_not_start, why_it_died
from inference.engine.runs import CANT_RUN, Comparison, LaneSlot, Run
from inference.engine.turns import Turns, mark_contended
from inference.errors import InferenceError
from inference.events import ENDS, AnyRequest, Done, Event, Failed, Hello, Loaded, Loading, Prefill, Queued, RunEvent, Scored, Text
from inference.lanes import LaneName
from inference.life_events import Alive
from inference.settings import Settings

log = logging.getLogger(__name__)
MOST_DEATHS = 3  # in a row: then a lane rests for REST_S, so that one which can't come up doesn't take all of its machine
REST_S = 60.0
OTHER_IDS = (
    "The two lanes turned this prompt into different token ids, so their answers can't be compared. Use the same tokenizer in MODEL_ID and CPU_MODEL_ID."
)
SHUT_DOWN = "The page was shut down before this answer was complete."
SHUTTING_DOWN = "The page is shutting down. Start it again and ask once more."
RESTS = " It ended {} times in a row: a prompt starts it anew from a minute after the last time on, the page's button Try again at once."
Starter = Callable[[str, Settings], AnyProcess]


class Dispatch:
    """The lanes, their processes, and the runs that have not ended."""

    def __init__(self, settings: Settings, starter: Starter, clock: Callable[[], float]) -> None:
        self.lock = threading.RLock()
        self.settings, self._starter, self._clock = settings, starter, clock
        self.processes: dict[str, AnyProcess] = {}
        self.runs: dict[str, Run] = {}
        self.model_number = 0
        self.refusal = ""  # why no comparison is accepted, where that is so
        self._ids = itertools.count(1)
        self._at_work: list[str] = []  # the devices whose runs are measured now
        self._closed = False
        self._new_lanes()

    def _new_lanes(self) -> None:
        self.lanes = {key: LaneSlot(key, LaneName.parse(key), title=self.settings.title_of(key)) for key in self.settings.lanes}
        self.turns = Turns(self.lanes.values())
        self._pins: dict[str, str] = {}  # what a name of the Hub stood for when a lane first had it

    def accept(self, request: AnyRequest, keys: tuple[str, ...], mode: str) -> Comparison:
        """A comparison on these lanes, 4-bit lanes first, whose runs begin or wait; raises InferenceError for an unknown lane."""
        if self.refusal:
            raise InferenceError(self.refusal)
        chosen = [self.find(key) for key in keys]
        comparison = Comparison(f"c{next(self._ids)}", request, mode, model_number=self.model_number)
        now = self._clock()
        for lane in sorted(chosen, key=lambda lane: not lane.keeps_loaded):
            run = Run(f"r{next(self._ids)}", lane, comparison, now)
            comparison.runs[lane.key] = self.runs[run.id] = run
            self.turns.add(run)
        self._pump()
        return comparison

    def stop(self, run: Run) -> None:
        """End a run at its next token, at once if it has not begun."""
        run.t_stop = run.t_stop or self._clock()
        if self.turns.drop(run):
            self._put(run, run.stopped())
            self._pump()
            return
        self._send(run.lane, do="stop", run_id=run.id)
        if not run.began:
            self._put(run, run.stopped())

    def close(self) -> list[AnyProcess]:
        """End every run, begin no other; gives the processes, which the caller is to end."""
        self._closed, self.refusal = True, SHUTTING_DOWN
        for run in list(self.runs.values()):
            self.turns.drop(run)
            self._put(run, Failed(run.id, SHUT_DOWN))
        return list(self.processes.values())

    # ---- lane processes

    def start(self) -> None:
        """Begin to load the lanes that are kept loaded."""
        for lane in self.lanes.values():
            if lane.keeps_loaded and not self._closed:
                self.spawn(lane)

    def clear(self) -> list[AnyProcess]:
        """Lanes that have run nothing, in the place of those there are, which may have no run.

        Gives the processes of those before: the caller is to end them, and what they still say counts no more.
        """
        processes, self.processes = list(self.processes.values()), {}
        self._new_lanes()
        for lane in self.lanes.values():
            if lane.keeps_loaded:
                lane.starts(self._clock())  # as soon as those processes are gone
        return processes

    def accept_again(self) -> None:
        """The lanes are ready for comparisons, unless all is being shut down."""
        self.refusal = SHUTTING_DOWN if self._closed else ""

    def find(self, key: str) -> LaneSlot:
        """The lane of that configured or real name; raises InferenceError."""
        for lane in self.lanes.values():
            if key in (lane.key, str(lane.name)):
                return lane
        raise InferenceError(f"Lane {key!r} is not one of this page's lanes ({', '.join(self.lanes)}). Start with LANES naming it.")

    def spawn(self, lane: LaneSlot, load: bool = True) -> bool:
        """Start the lane's process; False where the system would not, which whoever waits for the lane is told."""
        lane.starts(self._clock())
        process = None
        try:
            pinned = tuple(f"{name}={pin}" for name, pin in self._pins.items())
            process = self._starter(lane.key, replace(self.settings, fast_lost=lane.lost_ways, pinned=pinned))
            self._watch_process(lane, process)
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread to read it with
            log.exception("the process of lane %s could not be started", lane.name)
            if process:
                process.close(0)
            self._load_failed(lane, why_it_did_not_start(error))
            return False
        self.processes[lane.key] = process
        if self._at_work:
            process.send(do="hold", devices=self._at_work)
        if load:
            process.send(do="load")
        return True

    def _watch_process(self, lane: LaneSlot, process: AnyProcess) -> None:
        process.watch(lambda event: self._on_event(lane, process, event), lambda code: self._on_exit(lane, process, code))

    def retry(self, lane: LaneSlot) -> None:
        """Give a lane that failed or was refused another chance: a new process, or a new load in the one that lives."""
        lane.deaths, lane.faults, lane.lost_ways, lane.rests_until = 0, 0, (), 0.0
        if lane.key not in self.processes:
            self.spawn(lane)
        else:
            lane.loads_again(self._clock())
            self._send(lane, do="load")
        self._pump()

    def _send(self, lane: LaneSlot, **message: object) -> None:
        if process := self.processes.get(lane.key):
            process.send(**message)

    def _on_exit(self, lane: LaneSlot, process: AnyProcess, returncode: int) -> None:
        with self.lock:
            if self.processes.get(lane.key) is not process or self._closed:
                return
            del self.processes[lane.key]
            log.warning("lane %s ended with code %d", lane.name, returncode)
            reason, was_loaded = lane.why_ended or why_it_died(returncode), lane.facts is not None
            run = lane.current
            answers_without = lane.died(reason, self._clock(), was_fault(returncode)) and lane.deaths < MOST_DEATHS
            if answers_without and run and not run.began and run.t_stop is None:
                lane.current = None
                self.turns.put_back(run)
            self._end_current(lane, reason)
            if lane.deaths >= MOST_DEATHS:
                lane.state, lane.rests_until = "failed", self._clock() + REST_S
            elif lane.keeps_loaded:
                self.spawn(lane)
            elif not (was_loaded or answers_without or lane.why_ended):  # a process that we ended did not say that the next one fails too
                self._answer_waiting(lane, reason)
            self._pump()

    def _load_failed(self, lane: LaneSlot, reason: str, refused: bool = False) -> None:
        """One load failed: all that waited for it are told the same; who asks later causes another."""
        lane.failed(reason, self._clock(), refused)
        self._end_current(lane, reason)
        self._answer_waiting(lane, reason)

    def _end_current(self, lane: LaneSlot, reason: str) -> None:
        if run := lane.gives_up(self._clock()):
            self._put(run, Failed(run.id, reason) if run.t_stop is None else run.stopped())

    def _answer_waiting(self, lane: LaneSlot, reason: str) -> None:
        for run in self.turns.waiting_for(lane):
            self.turns.drop(run)
            self._put(run, Failed(run.id, reason))

    # ---- events from lane processes

    def _on_event(self, lane: LaneSlot, process: AnyProcess, event: Event) -> None:
        with self.lock:
            if self.processes.get(lane.key) is not process:
                return
            lane.signs.take(event, self._clock())
            was = lane.state
            match event:
                case Alive():
                    return
                case Hello():
                    lane.take_hello(event, self._clock())
                    if not lane.available:
                        self._end_current(lane, lane.reason or CANT_RUN)
                case Loading():
                    self._loading(lane, event)
                case Loaded():
                    lane.take_load(event, self._clock())
                    if event.facts.revision and not lane.title:
                        self._pins.setdefault(self.settings.model_for(lane.key), f"{event.facts.model_id}@{event.facts.revision}")
                case Failed(run_id=None):
                    self._load_failed(lane, event.message, event.refused)
                case Queued() | Prefill() | Text() | Done() | Failed() | Scored():
                    self._run_event(lane, event)
            # The line is looked at when a lane's state has changed: never for a token, nor for each step of a load.
            if not isinstance(event, Text | Loading) or lane.state != was:
                self._pump()

    def _loading(self, lane: LaneSlot, event: Loading) -> None:
        lane.state = "loading"
        lane.load_began(self._clock(), event)
        for run in (lane.current, *self.turns.waiting_for_load(lane)):
            if run:
                run.put(event)

    def _run_event(self, lane: LaneSlot, event: Queued | Prefill | Text | Done | Failed | Scored) -> None:
        run = lane.current
        if run is None or run.id != event.run_id:
            return
        if isinstance(event, Prefill):
            run.began, run.path, lane.state, lane.deaths = True, event.path, "busy", 0
            lane.load_ended(self._clock())  # its cache may have grown just before
            if lane.name.elsewhere:  # whose ids nobody knows
                self._put(run, event)
                return
            known = run.comparison.prompt_ids
            if known is not None and known != event.prompt_ids:
                self._put(run, Failed(run.id, OTHER_IDS))
                self._send(lane, do="stop", run_id=run.id)
                return
            run.comparison.prompt_ids = event.prompt_ids
        if isinstance(event, ENDS):
            lane.gives_up(self._clock())
            lane.load_ended(self._clock())
            lane.state = lane.at_rest()
            if isinstance(event, Done):
                event = run.with_waits(event)
        self._put(run, event)

    def _put(self, run: Run, event: RunEvent) -> None:
        run.put(event)
        if run.ended:
            self.runs.pop(run.id, None)

    # ---- the queue

    def _pump(self) -> None:
        """Begin every run that may begin, tell the others their place; called under the lock after each change of state."""
        if self._closed:
            return
        self.turns.begin(self._begin)
        mark_contended(self.lanes.values())
        if (at_work := sorted({lane.works_on for lane in self.lanes.values() if lane.current})) != self._at_work:
            self._at_work = at_work
            for process in self.processes.values():
                process.send(do="hold", devices=at_work)
        self.turns.tell(self._clock())

    def _begin(self, run: Run) -> None:
        lane, request = run.lane, run.comparison.asked
        if not lane.available or lane.rests_until > self._clock():
            self._put(run, Failed(run.id, (lane.reason or CANT_RUN) + (RESTS.format(lane.deaths) if lane.available else "")))
            return
        lane.takes(run, self._clock())
        if lane.key not in self.processes:
            if not self.spawn(lane, load=False):
                return
        elif lane.facts is None:
            lane.loads_again(self._clock())
        else:
            lane.state = "busy"
        if lane.progress:
            run.put(lane.progress)
        # whoever's run ended just now is another visitor: the message goes in the context of the one who asked
        run.comparison.context.run(self._send, lane, do=request.verb, run_id=run.id, request=asdict(request))
