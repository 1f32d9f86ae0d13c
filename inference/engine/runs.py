"""Runs, comparisons and lanes as the engine keeps them.

Pure bookkeeping under the engine's lock: no process, no thread, no clock of its own.
"""

from __future__ import annotations

from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace

from inference.engine.inbox import Inbox
from inference.engine.signs import Signs
from inference.errors import nothing_kept
from inference.events import ENDS, AnyRequest, Done, Failed, Hello, LaneFacts, Loaded, LoadFigures, Loading, Request, RunEvent, Text
from inference.fast import WAYS
from inference.lanes import LaneName
from inference.status import LOADING_STATES, LaneStatus, Quiet
from inference.timing import Timings, overlap_s

STARTING = Loading("starting its process")
LOADING_AGAIN = Loading("starting")
CANT_RUN = "This lane can't run here; see `python -m inference doctor`."

MOST_FAULTS = 2  # one may be the device's own, and passing


@dataclass
class Comparison:
    """One prompt for several lanes, or ids for one lane to score; `mode` is auto until the devices are known.

    `model_number`: which of the page's models it is for. `context`: that of who asked, for a lane that must know for whom it works (ZeroGPU).
    """

    id: str
    asked: AnyRequest
    mode: str
    runs: dict[str, Run] = field(default_factory=dict)
    prompt_ids: tuple[int, ...] | None = None
    model_number: int = 0
    context: Context = field(default_factory=copy_context)

    @property
    def request(self) -> Request:
        """The question; a comparison that scores ids has none."""
        assert isinstance(self.asked, Request)
        return self.asked


@dataclass(eq=False)
class Run:
    """One lane answering one prompt, from acceptance to its last event; `t_first` is when nobody was before it any more."""

    id: str
    lane: LaneSlot
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
    wrote: bool = False
    path: str | None = None
    place: tuple[int, str] | None = None
    t_first: float | None = None

    def put(self, event: RunEvent) -> None:
        """Hand an event to the reader; nothing follows a Done or Failed."""
        if self.ended:
            return
        self.wrote |= isinstance(event, Text) and bool(event.delta)
        if isinstance(event, Failed) and not self.wrote:
            event = replace(event, message=nothing_kept(event.message))
        self.ended = isinstance(event, ENDS)
        self.inbox.put(event)

    def stopped(self) -> Done:
        """The end of a run whose lane can't tell how far it came: not begun yet, or ended for not answering; its text is what its reader has."""
        return Done(self.id, "stopped", "", (), 0, Timings(), alone=self.alone)

    @property
    def alone(self) -> bool | None:
        """Whether no other lane was at work meanwhile; not known of a server elsewhere, which may have other clients."""
        return None if self.lane.name.elsewhere else not self.contended

    def with_waits(self, done: Done) -> Done:
        """`done` with its waits split into the turn, the load and the queue (each second counted once)."""
        if done.t_start is None:
            return replace(done, alone=self.alone)
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
            alone=self.alone,
        )


@dataclass(eq=False)
class LaneSlot:
    """One lane: `key` as configured, `name` as its process says it really is; `current` is the run it answers."""

    key: str
    name: LaneName
    title: str = ""  # of a server elsewhere
    state: str = "off"
    reason: str | None = None
    hello: Hello | None = None
    facts: LaneFacts | None = None
    load: LoadFigures | None = None
    progress: Loading | None = None
    loads: list[tuple[float, float | None]] = field(default_factory=list)
    deaths: int = 0
    rests_until: float = 0.0  # on the engine's clock: no run starts it before
    current: Run | None = None
    ever_loaded: bool = False
    lost_ways: tuple[str, ...] = ()  # faster ways that ended a process of this lane: its next ones do without
    signs: Signs = field(default_factory=Signs)
    quiet: Quiet | None = None
    why_ended: str = ""  # for a process that we ended
    faults: int = 0  # runs in which a process ended by a fault while it used native code of ours

    @property
    def device(self) -> str | None:
        """ "cuda", "cpu", or a server's own name; None while an automatic lane has not said which it is, and a server's process not where that stands."""
        if self.name.elsewhere:
            return str(self.name) if self.hello else None
        return None if self.name.automatic else self.name.device

    @property
    def keeps_loaded(self) -> bool:
        """4-bit lanes are loaded at start and again after a death, and servers are asked whether they are there; the others at their first prompt."""
        return self.name.four_bit or self.name.elsewhere

    @property
    def on_this_machine(self) -> bool:
        """Whether what it computes with is here, as far as its process has said: a server may be too."""
        return not self.name.elsewhere or bool(self.hello and self.hello.environment.get("on_this_machine"))

    @property
    def works_on(self) -> str:
        """The device that a run of it takes up; "" where nobody knows, as of a server on this machine."""
        return "" if self.device is None or (self.name.elsewhere and self.on_this_machine) else self.device

    @property
    def available(self) -> bool:
        """Whether the lane's device is there, as far as its process has said."""
        return self.hello is None or self.hello.available

    @property
    def loading(self) -> bool:
        """Whether its process is on its way up."""
        return self.state in LOADING_STATES

    @property
    def active(self) -> bool:
        """Whether it takes its device's time: it loads, or has a run."""
        return self.loading or self.current is not None

    def status(self, waiting: int) -> LaneStatus:
        """A snapshot for readers outside the engine; `waiting` runs are queued for this lane."""
        return LaneStatus(
            self.key, str(self.name), self.state, self.reason, self.available, self.hello, self.facts, self.load, self.progress, waiting, self.title,
            self.quiet,
        )  # fmt: skip

    def at_rest(self) -> str:
        """The state of a lane whose process lives and which neither loads nor failed."""
        return "busy" if self.current else "ready" if self.facts else "off"

    def take_hello(self, hello: Hello, now: float) -> None:
        """The process says which lane it is, and whether it can run."""
        self.hello, self.name = hello, LaneName.parse(hello.lane)
        if not hello.available:
            self.failed(hello.reason or CANT_RUN, now)

    def take_load(self, loaded: Loaded, now: float) -> None:
        """The model is usable."""
        cold = self.load.cold if self.facts and self.load else not self.ever_loaded
        self.facts, self.load, self.progress = loaded.facts, loaded.load and replace(loaded.load, cold=cold), None
        self.ever_loaded = True
        self.load_ended(now)
        self.state = self.at_rest()

    def starts(self, now: float) -> None:
        """A new process is being started."""
        self.state, self.reason, self.why_ended, self.quiet = "starting", None, "", None
        self.signs = Signs()
        self.signs.begin(now)
        self.load_began(now, STARTING)

    def loads_again(self, now: float) -> None:
        """The process that lives is about to load."""
        self.state, self.reason = "loading", None
        self.signs.moved = now
        self.load_began(now, LOADING_AGAIN)

    def takes(self, run: Run, now: float) -> None:
        """The run is the lane's from now on."""
        self.current, run.t_dispatch, self.signs.moved = run, now, now
        run.t_first = now if run.t_first is None else run.t_first

    def gives_up(self, now: float) -> Run | None:
        """The lane's run, which is over: it ended, or its lane did."""
        run, self.current = self.current, None
        if run:
            run.t_end = now
        return run

    def failed(self, reason: str, now: float, refused: bool = False) -> None:
        """The load can't go on: it failed, or was refused before it began."""
        self.state, self.reason = ("refused" if refused else "failed"), reason
        self.load_ended(now)

    def died(self, reason: str, now: float, fault: bool = False) -> bool:
        """The process is gone; True where that was in trying a faster way, which the next one does without.

        `fault`: it ended by one of its own, not killed from outside. In a run that is our native code's doing or the device's: the
        second time the next process does without what such a run uses of ours.
        """
        trying = self.progress.trying if self.progress else ""
        suspects = self._native_ways() if fault else ()
        self.faults += bool(suspects)
        blamed = suspects if self.faults >= MOST_FAULTS else ()
        self.lost_ways = tuple(dict.fromkeys((*self.lost_ways, *filter(None, (trying, *blamed)))))
        self.state, self.reason = "off", nothing_kept(reason)  # of the lane; its run is told by itself
        self.deaths += not trying  # the ways are few, and each is tried once
        self.facts = None
        self.load_ended(now)
        return bool(trying)

    def _native_ways(self) -> tuple[str, ...]:
        """Those of our ways whose native code the run at hand uses."""
        if self.current is None or self.facts is None:
            return ()
        path = self.current.path
        if path in WAYS:
            return (path,)
        return () if self.device == "cuda" else tuple(way for way in self.facts.fast_used if way in ("products", "nf4"))

    def closed_loads(self, now: float) -> list[tuple[float, float]]:
        """The loading spans so far, one that is still open ending at `now`."""
        return [(low, now if high is None else high) for low, high in self.loads]

    def load_began(self, now: float, progress: Loading) -> None:
        """Note how far a load is, and open a loading span, unless one is open."""
        self.progress = progress
        if not self.loads or self.loads[-1][1] is not None:
            self.loads = [*self.loads[-8:], (now, None)]

    def load_ended(self, now: float) -> None:
        """Close the open loading span, if any."""
        self.progress = None
        if self.loads and self.loads[-1][1] is None:
            self.loads[-1] = (self.loads[-1][0], now)
