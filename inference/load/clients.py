"""Clients that ask one lane at once, each again as soon as it is answered (a closed loop), at one level of clients after the other.

In: settings and a plan. Out: per lane its levels. The lane is loaded and warm before the first question, so that no load is in a figure. Lanes of
ours answer one at a time, in one process. A server may answer many at once, while a lane's process asks one question at a time: so each client
has a process (and an engine) of its own there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from inference.engine.compare import answer, follow, names, warm_up
from inference.engine.engine import Engine
from inference.engine.runs import Comparison
from inference.errors import InferenceError
from inference.lanes import LaneName
from inference.load.level import ANSWERED, FAILED, LEFT, Level, Seen
from inference.load.plan import Plan
from inference.settings import Settings
from inference.units import count

Say = Callable[[str], None]
Made = TypeVar("Made")


@dataclass(frozen=True)
class LaneLoad:
    """A lane under load: its name as its process gives it, what it is on, its levels; `why_not` where it answered nothing at all."""

    lane: str
    levels: tuple[Level, ...] = ()
    model_id: str | None = None
    device_name: str = ""
    why_not: str | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether it is a server."""
        return LaneName.parse(self.lane).elsewhere


def lane_under_load(settings: Settings, plan: Plan, say: Say) -> LaneLoad:
    """The settings' one lane, asked by each number of clients of the plan; a lane that can't answer is told in its `why_not`."""
    (lane,) = settings.lanes
    stop = threading.Event()
    with ExitStack() as stack:
        needed = max(plan.clients) if LaneName.parse(lane).elsewhere else 1
        engines = [stack.enter_context(Engine(settings)) for _ in range(needed)]
        say(f"{lane}: loading, and warming up")
        try:
            _at_once([partial(_get_warm, engine, lane, plan, stop) for engine in engines], stop)
        except InferenceError as error:
            return LaneLoad(names(engines[0])[lane], why_not=str(error))
        status, levels = engines[0].status()[0], list[Level]()
        for clients in sorted(plan.clients):
            levels.append(_Asking(engines, lane, plan, clients, say).level(stop))
            if not levels[-1].of(ANSWERED):  # nor would it with more of them
                break
        facts = status.facts
        return LaneLoad(status.name, tuple(levels), facts.model_id if facts else None, facts.device_name if facts else "")


def _get_warm(engine: Engine, lane: str, plan: Plan, stop: threading.Event) -> None:
    """Answers that are not counted, until the lane is loaded and at its fastest; raises InferenceError where it can't answer."""
    answer(engine, lane, plan.longest)
    if not engine.status()[0].settled:
        warm_up(engine, plan.longest, stop=stop)


def _at_once(jobs: Sequence[Callable[[], Made]], stop: threading.Event) -> list[Made]:
    """What each job gives, all done at the same time; where one raises, or Ctrl+C comes, `stop` is set and nobody is waited for."""
    pool = ThreadPoolExecutor(len(jobs))
    try:
        return [future.result() for future in [pool.submit(job) for job in jobs]]
    except BaseException:
        stop.set()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class _Asking:
    """One level: so many clients over a lane's engine, or over one engine each."""

    def __init__(self, engines: Sequence[Engine], lane: str, plan: Plan, clients: int, say: Say) -> None:
        self._engines, self._lane, self._plan, self._clients, self._say = engines, lane, plan, clients, say
        self._ended = 0

    def level(self, stop: threading.Event) -> Level:
        """Every client's questions to their ends; the first of each is accepted before any of them is read, in the clients' order."""
        first = [self._ask(client, 0) for client in range(self._clients)]
        seen = _at_once([partial(self._client, client, comparison, stop) for client, comparison in enumerate(first)], stop)
        return Level(self._clients, tuple(each for one in seen for each in one))

    def _ask(self, client: int, number: int) -> Comparison:
        return self._engine(client).submit(self._plan.question(self._clients, client, number), (self._lane,))

    def _engine(self, client: int) -> Engine:
        return self._engines[client % len(self._engines)]

    def _client(self, client: int, comparison: Comparison, stop: threading.Event) -> list[Seen]:
        seen = [self._follow(client, comparison, self._plan.leaves(self._clients, client, 0))]
        for number in range(1, self._plan.rounds):
            if stop.is_set():
                break
            seen.append(self._follow(client, self._ask(client, number), self._plan.leaves(self._clients, client, number)))
        return seen

    def _follow(self, client: int, comparison: Comparison, leaves: bool) -> Seen:
        """Read one answer to its end, or, where the client leaves, until its first word."""
        (run,) = comparison.runs.values()
        last = None
        with closing(follow(self._engine(client), run)) as states:
            for last in states:
                if leaves and last.phase == "decode":
                    break
        self._ended += 1  # of threads that might count at once: for the progress line alone
        self._say(f"{self._lane}, {count(self._clients, 'client')}: question {self._ended} of {self._clients * self._plan.rounds} ended")
        if last is None or last.done is None and last.error is None or last.phase == "stopped":
            return Seen(client, run.t_accept, LEFT)
        if last.fault is not None:
            return Seen(client, run.t_accept, FAILED, error=last.fault)
        return Seen(client, run.t_accept, ANSWERED, last.done)


def under_load(settings: Settings, plan: Plan, say: Say) -> Iterator[LaneLoad]:
    """Each lane of the settings under load, one lane after the other, each alone; `plan` has been checked."""
    return (lane_under_load(replace(settings, lanes=(lane,)), plan, say) for lane in settings.lanes)
