"""The runs that wait, first come first, and the rule for who may begin, so that a run in turn has the machine to itself.

In: runs and their lanes' slots. Out: which runs begin, and each other's place. Worked out in one walk along the line,
after a change of state and never for a token. Starts nothing; used under the engine's lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from inference.engine.runs import Comparison, LaneSlot, Run
from inference.events import Queued


@dataclass
class _Before:
    """What stands before a place in the line: how many runs, how many on each lane, and of which comparisons."""

    runs: int = 0
    on_lane: Counter[str] = field(default_factory=Counter)
    of_comparison: Counter[str] = field(default_factory=Counter)
    exclusive: set[str] = field(default_factory=set)  # comparisons in turn, or not known to be together

    def add(self, run: Run) -> None:
        self.runs += 1
        self.on_lane[run.lane.key] += 1
        self.of_comparison[run.comparison.id] += 1
        if run.comparison.mode != "together":
            self.exclusive.add(run.comparison.id)


class Turns:
    """The line before the lanes."""

    def __init__(self, lanes: Iterable[LaneSlot]) -> None:
        self._lanes = tuple(lanes)
        self._line: dict[str, Run] = {}

    def add(self, run: Run) -> None:
        """Put a run at the end."""
        self._line[run.id] = run

    def put_back(self, run: Run) -> None:
        """Put a run that has not begun after all before all others."""
        self._line = {run.id: run, **self._line}

    def drop(self, run: Run) -> bool:
        """Take a run out; False where it was not waiting."""
        return self._line.pop(run.id, None) is not None

    def waiting_for(self, lane: LaneSlot) -> list[Run]:
        """The runs that wait for a lane, first come first."""
        return [run for run in self._line.values() if run.lane is lane]

    def count(self) -> Counter[str]:
        """How many runs wait, by lane key."""
        return Counter(run.lane.key for run in self._line.values())

    def begin(self, begin: Callable[[Run], None]) -> None:
        """Take each run that may begin out of the line and hand it to `begin`, in order.

        Walked again while one has begun: a lane that could not be started may let a run before it go.
        """
        while self._walk(begin):
            pass

    def _walk(self, begin: Callable[[Run], None]) -> bool:
        before, began = _Before(), False
        for run in list(self._line.values()):
            if run.id not in self._line:
                continue  # answered meanwhile: a lane that can't be started answers all that wait for it
            if self._may_begin(run, before):
                began = self.drop(run)
                begin(run)
            else:
                before.add(run)
        return began

    def _may_begin(self, run: Run, before: _Before) -> bool:
        """Whether `run` may begin now: its lane is free, and no run in turn is before it or under way."""
        lane, comparison = run.lane, run.comparison
        known = settle_mode(comparison)
        if lane.current is not None or lane.loading or not known or before.on_lane[lane.key]:
            return False
        if comparison.mode == "in-turn":
            return not before.runs and not any(other.active for other in self._lanes if other is not lane)
        active = {other.current.comparison.id for other in self._lanes if other.current and other.current.comparison.mode != "together"}
        return not (before.exclusive | active) - {comparison.id}

    def tell(self, now: float) -> None:
        """Tell each run its place where that has changed, and note since when nobody is before it."""
        before = _Before()
        for run in self._line.values():
            place = self._place(run, before)
            before.add(run)
            if place[0] == 0 and run.t_first is None:
                run.t_first = now
            if place != run.place:
                run.place = place
                run.put(Queued(run.id, *place))
                if place == (0, "load") and run.lane.progress:
                    run.put(run.lane.progress)

    def waiting_for_load(self, lane: LaneSlot) -> Iterator[Run]:
        """The runs that have been told that they wait for this lane's load."""
        return (run for run in self.waiting_for(lane) if run.place == (0, "load"))

    def _place(self, run: Run, before: _Before) -> tuple[int, str]:
        """How many runs are before `run`, and what it waits for: "load", "turn" or "lane"."""
        comparison, lane = run.comparison, run.lane
        if comparison.mode == "in-turn":
            strangers = before.runs - before.of_comparison[comparison.id]
            if any(not sibling.ended for sibling in _siblings_before(run)):
                return strangers, "turn"
        else:
            strangers = before.on_lane[lane.key]
        if not strangers and lane.loading and lane.current is None:
            return 0, "load"
        return strangers + bool(lane.current), "lane"


def _siblings_before(run: Run) -> Iterator[Run]:
    for sibling in run.comparison.runs.values():
        if sibling is run:
            return
        yield sibling


def settle_mode(comparison: Comparison) -> bool:
    """Turn mode auto into together or in-turn; False while a lane's device is unknown.

    Together where the lanes use different devices, in turn where two would share one and slow each other, as a server on this machine may.
    """
    if comparison.mode != "auto":
        return True
    lanes = [run.lane for run in comparison.runs.values()]
    if any(lane.device is None and (lane.loading or lane.state == "off") for lane in lanes):
        return False
    devices = [lane.device or "cpu" for lane in lanes]
    shared = len(set(devices)) < len(devices) or (len(lanes) > 1 and any(lane.name.elsewhere and lane.on_this_machine for lane in lanes))
    comparison.mode = "in-turn" if shared else "together"
    return True


def mark_contended(lanes: Iterable[LaneSlot]) -> None:
    """Note in each run under way that another lane is at work too, where one is; a server on another machine slows nobody here."""
    active = [lane for lane in lanes if lane.active and lane.on_this_machine]
    for lane in active:
        if lane.current and len(active) > 1:
            lane.current.contended = True
