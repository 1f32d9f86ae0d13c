"""Runs, comparisons and lanes as the engine keeps them, and the rule for who may start.

Pure bookkeeping under the engine's lock: no process, no thread, no clock of its own. A comparison's runs are
accepted together; `may_start` decides in first-come order, so that a run in turn has the machine to itself.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field, replace

from inference.events import ENDS, AnyRequest, Done, Hello, LaneFacts, Loaded, LoadFigures, Loading, Request, RunEvent, Text
from inference.status import LOADING_STATES, LaneStatus
from inference.timing import Timings, overlap_s

ACTIVE_STATES = (*LOADING_STATES, "busy")


class Inbox:
    """A run's events on their way to its reader; a text joins one that still waits, so no reader falls behind."""

    def __init__(self) -> None:
        self._events: deque[RunEvent] = deque()
        self._filled = threading.Condition()

    def put(self, event: RunEvent) -> None:
        """Add an event; never blocks."""
        with self._filled:
            last = self._events[-1] if self._events else None
            if isinstance(event, Text) and isinstance(last, Text) and last.n > 1:  # the first stays alone: its stamp is a figure
                self._events[-1] = replace(event, delta=last.delta + event.delta)
            else:
                self._events.append(event)
            self._filled.notify()

    def get(self, timeout_s: float) -> RunEvent | None:
        """The next event, or None when none came within `timeout_s`."""
        with self._filled:
            self._filled.wait_for(lambda: self._events, timeout_s)
            return self._events.popleft() if self._events else None


@dataclass
class Comparison:
    """One prompt for several lanes, or ids for one lane to score; `mode` is auto until the devices are known."""

    id: str
    asked: AnyRequest
    mode: str
    runs: dict[str, Run] = field(default_factory=dict)
    prompt_ids: tuple[int, ...] | None = None

    @property
    def request(self) -> Request:
        """The question; a comparison that scores ids has none."""
        assert isinstance(self.asked, Request)
        return self.asked


@dataclass(eq=False)
class Run:
    """One lane answering one prompt, from acceptance to its last event."""

    id: str
    lane: Lane
    comparison: Comparison
    t_accept: float
    inbox: Inbox = field(default_factory=Inbox)
    t_dispatch: float | None = None
    t_end: float | None = None
    t_stop: float | None = None
    read_by_someone: bool = False
    ended: bool = False
    contended: bool = False
    began: bool = False
    position: tuple[int, str] | None = None
    text: str = ""

    def put(self, event: RunEvent) -> None:
        """Hand an event to the reader; nothing follows a Done or Failed."""
        if self.ended:
            return
        self.ended = isinstance(event, ENDS)
        if isinstance(event, Text):
            self.text += event.delta
        self.inbox.put(event)

    def stopped(self) -> Done:
        """The end of a run whose lane can't tell how far it came: not begun yet, or ended for not answering."""
        return Done(self.id, "stopped", self.text, (), 0, Timings(), alone=not self.contended)

    def with_waits(self, done: Done) -> Done:
        """`done` with its waits split into the turn, the load and the queue (each second counted once)."""
        if done.t_start is None:
            return replace(done, alone=not self.contended)
        span = (self.t_accept, done.t_start)
        siblings = [run for run in self.comparison.runs.values() if run is not self]
        turns: list[tuple[float, float]] = []
        if self.comparison.mode == "in-turn":
            turns = [(r.t_dispatch, r.t_end or done.t_start) for r in siblings if r.t_dispatch is not None]
            turns += [load for r in siblings for load in r.lane.closed_loads(done.t_start)]
        turn_wait_s = overlap_s(span, turns)
        covered = overlap_s(span, turns + self.lane.closed_loads(done.t_start))
        return replace(
            done,
            turn_wait_s=turn_wait_s,
            load_wait_s=covered - turn_wait_s,
            queue_s=max(0.0, span[1] - span[0] - covered),
            alone=not self.contended,
        )


@dataclass(eq=False)
class Lane:
    """A lane's place in the engine: `key` as configured, `name` as its process says it really is."""

    key: str
    name: str
    state: str = "off"
    reason: str | None = None
    hello: Hello | None = None
    facts: LaneFacts | None = None
    load: LoadFigures | None = None
    progress: Loading | None = None
    loads: list[tuple[float, float | None]] = field(default_factory=list)
    deaths: int = 0
    current: Run | None = None
    ever_loaded: bool = False
    path_pending: bool = False

    @property
    def device(self) -> str | None:
        """ "cuda" or "cpu"; None while an automatic lane has not said which it is."""
        device = self.name.split(":")[0]
        return None if device == "auto" else device

    @property
    def keeps_loaded(self) -> bool:
        """4-bit lanes are loaded at start and again after a death; the others at their first prompt."""
        return self.key.endswith(":nf4")

    def status(self, waiting: int) -> LaneStatus:
        """A snapshot for readers outside the engine; `waiting` runs are queued for this lane."""
        available = self.hello is None or self.hello.available
        return LaneStatus(
            self.key, self.name, self.state, self.reason, available, self.hello, self.facts, self.load, self.progress, waiting, self.path_pending
        )  # fmt: skip

    def closed_loads(self, now: float) -> list[tuple[float, float]]:
        """The loading spans so far, one that is still open ending at `now`."""
        return [(low, now if high is None else high) for low, high in self.loads]

    def take_hello(self, hello: Hello, now: float) -> None:
        """The process says which lane it is, and whether it can run."""
        self.hello, self.name = hello, hello.lane
        if not hello.available:
            self.state, self.reason = "failed", hello.reason
            self.load_ended(now)

    def take_load(self, loaded: Loaded, now: float) -> None:
        """The model is usable; said again by the same process when a faster path has been made ready."""
        cold = self.load.cold if self.facts and self.load else not self.ever_loaded
        self.facts, self.load, self.progress = loaded.facts, replace(loaded.load, cold=cold), None
        self.ever_loaded, self.path_pending = True, loaded.path_pending
        self.load_ended(now)
        self.state = "busy" if self.current else "ready"

    def load_began(self, now: float) -> None:
        """Open a loading span, unless one is open."""
        if not self.loads or self.loads[-1][1] is not None:
            self.loads = [*self.loads[-8:], (now, None)]

    def load_ended(self, now: float) -> None:
        """Close the open loading span, if any."""
        if self.loads and self.loads[-1][1] is None:
            self.loads[-1] = (self.loads[-1][0], now)


def settle_mode(comparison: Comparison) -> bool:
    """Turn mode auto into together or in-turn; False while a lane's device is unknown.

    Together where the lanes use different devices, in turn where two would share one and slow each other.
    """
    if comparison.mode != "auto":
        return True
    lanes = [run.lane for run in comparison.runs.values()]
    if any(lane.device is None and lane.state in ("off", *LOADING_STATES) for lane in lanes):
        return False
    devices = [lane.device or "cpu" for lane in lanes]
    comparison.mode = "together" if len(set(devices)) == len(devices) else "in-turn"
    return True


def may_start(run: Run, pending: list[Run], lanes: list[Lane]) -> bool:
    """Whether `run` may begin now: its lane is free, and no run in turn is before it or under way."""
    lane = run.lane
    if lane.current is not None or lane.state in LOADING_STATES or not settle_mode(run.comparison):
        return False
    before = pending[: pending.index(run)]
    if any(other.lane is lane for other in before):
        return False
    if run.comparison.mode == "in-turn":
        return not before and not any(other.state in ACTIVE_STATES or other.current for other in lanes if other is not lane)
    active = [other.current for other in lanes if other.current]
    return not any(other.comparison.mode in ("in-turn", "auto") for other in (*before, *active) if other.comparison is not run.comparison)


def mark_contended(lanes: list[Lane]) -> None:
    """Note in each run under way that another lane is at work too, where one is."""
    active = [lane for lane in lanes if lane.state in ACTIVE_STATES or lane.current]
    for lane in active:
        if lane.current and len(active) > 1:
            lane.current.contended = True


def waiting(run: Run, pending: list[Run]) -> tuple[int, str]:
    """How many runs are before `run`, and what it waits for: "load", "turn" or "lane"."""
    before = pending[: pending.index(run)]
    comparison, lane = run.comparison, run.lane
    if comparison.mode == "in-turn":
        siblings = list(comparison.runs.values())
        strangers = [other for other in before if other.comparison is not comparison]
        if any(not other.ended for other in siblings[: siblings.index(run)]):
            return len(strangers), "turn"
    else:
        strangers = [other for other in before if other.lane is lane]
    if not strangers and lane.state in LOADING_STATES and lane.current is None:
        return 0, "load"
    return len(strangers) + bool(lane.current), "lane"
