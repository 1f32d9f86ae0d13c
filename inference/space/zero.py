"""The GPU lanes of a ZeroGPU Space: made in the page's own process, which alone is lent a card, for a call at a time.

In: settings. Out: a `Starter` whose GPU lanes stand for a process (`AnyProcess`) and whose CPU lanes are ordinary children, with the card hidden
from them (`child.environment`). A run is one call of `answer`, decorated by the platform's package where the program has imported that (`app.py`,
before anything else) and as it is elsewhere. Whatever the platform raises becomes a sentence in its lane. Closing the iterator, or the lane's stop
mark, ends a run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import partial
from typing import Any

from inference.engine.process import AnyProcess, start_worker
from inference.engine.runs import CANT_RUN
from inference.errors import InferenceError, Refused
from inference.events import ENDS, Done, Event, Failed, Hello, Loaded, Loading, Prefill, decode
from inference.fast import first_line
from inference.lane.paths import GRAPH
from inference.lane.probe import hello_of
from inference.lanes import LaneName
from inference.life_events import Alive
from inference.settings import Settings
from inference.space.forked import ForkedLane
from inference.space.job import Job, duration_s
from inference.timing import Timings

log = logging.getLogger(__name__)
ASKING = Loading("waiting for ZeroGPU to lend a card")
MOST_LOST = 2  # workers that ended while they used our own kernels: from then on they are left out
OTHER_MODEL = "On ZeroGPU the model is put on the card when the Space starts, so the GPU lane can't change it. Set MODEL_ID to {} and restart the Space."
TOO_LONG = "ZeroGPU ended this run because it took longer than the {} s that were asked for. The text so far is kept; ask for fewer new tokens."
SHORTER = "The time follows from the prompt and the token limit: ask for fewer new tokens."
ENDED = "ZeroGPU ended this run's worker before the answer was complete. The text so far is kept; ask again."
FAILED = "The ZeroGPU worker failed ({}); the log has the trace. Ask again."
UNREACHED = "ZeroGPU could not be asked for a card ({}). Ask again in a moment."
TAG = re.compile(r"<[^>]*>")
_lanes: dict[str, ForkedLane] = {}


def takes_card(key: str) -> bool:
    """Whether a lane is lent the card; all others are ordinary processes."""
    name = LaneName.parse(key)
    return name.device != "cpu" and not name.elsewhere


def answer(job: Job) -> Iterator[str]:
    """The events of a job, each a line of JSON; on the platform it runs in a worker that has the card."""
    yield from _lanes[job.lane].serve(job)


# the platform looks for a decorated function when the page opens, so it is one from the start
lent: Callable[[Job], Iterator[str]] = sys.modules["spaces"].GPU(duration=duration_s)(answer) if "spaces" in sys.modules else answer


class ZeroStarter:
    """Starts the lanes of a page on ZeroGPU; `place` comes first, on the main thread and before the page opens."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._placed: dict[str, tuple[ForkedLane | None, Hello, Failed | None]] = {}

    def place(self) -> None:
        """Put each GPU lane's model on the card; one that can't be is told in its lane."""
        for key in self._settings.lanes:
            if takes_card(key):
                self._placed[key] = self._place(key)

    def _place(self, key: str) -> tuple[ForkedLane | None, Hello, Failed | None]:
        hello = hello_of(key)
        if not hello.available:
            return None, hello, None
        lane = ForkedLane(hello.lane, self._settings)
        try:
            lane.place(lambda step: log.info("lane %s: %s", key, step.stage))
        except InferenceError as error:
            log.warning("lane %s could not be loaded: %s", key, error, exc_info=error.__cause__ is not None)
            return None, hello, Failed(None, str(error), isinstance(error, Refused))
        except Exception as error:
            log.exception("lane %s could not be loaded", key)
            return (
                None,
                hello,
                Failed(None, f"The model could not be loaded ({first_line(error)}); the log has the trace. Check MODEL_ID, then restart the Space."),
            )
        _lanes[key] = lane
        return lane, hello, None

    def __call__(self, key: str, settings: Settings) -> AnyProcess:
        """The engine's way to start a lane."""
        if not takes_card(key):
            return start_worker(key, settings)
        lane, hello, failed = self._placed[key]
        if settings.model_for(key) != self._settings.model_for(key):
            lane, failed = None, Failed(None, OTHER_MODEL.format(settings.model_for(key)), refused=True)
        return ZeroProcess(key, lane, hello, failed)


class ZeroProcess:
    """Stands for a lane's process: takes the same messages, gives the same events, works one job after the other in a thread."""

    def __init__(self, key: str, lane: ForkedLane | None, hello: Hello, failed: Failed | None) -> None:
        self.pid = os.getpid()
        self._key, self._lane, self._hello, self._failed = key, lane, hello, failed
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._numbers: dict[str, int] = {}  # of the jobs that have not ended, by run
        self._stopped: set[str] = set()
        self._ended = False
        self._lost = 0
        self._pings = 0

    def watch(self, on_event: Callable[[Event], None], on_exit: Callable[[int], None]) -> None:
        """Say which lane this is, and begin to work."""
        self._on_event, self._on_exit = on_event, on_exit
        threading.Thread(target=self._serve, name=f"zero-{self._key}", daemon=True).start()

    def send(self, **message: Any) -> None:
        """Hand over one message; a job is done in the context of the sender: the platform reads there whose quota it counts on."""
        verb, run_id = message["do"], message.get("run_id", "")
        if verb == "stop":
            self._stop(run_id)
        elif verb == "ping":  # the page itself, and how long a run may take is the platform's to say
            self._pings += 1
            self._on_event(Alive(self._pings))
        elif verb == "load" and self._failed:
            self._work.put(partial(self._on_event, self._failed))
        elif run_id:
            number = self._numbers[run_id] = self._lane.next_number() if self._lane else 0
            job = Job(self._key, run_id, number, verb, message["request"], self._lost < MOST_LOST)
            self._work.put(partial(copy_context().run, self._do, job))

    def _stop(self, run_id: str) -> None:
        if self._lane and (number := self._numbers.get(run_id)):
            self._stopped.add(run_id)
            self._lane.stop(number)

    def kill(self) -> None:
        """Give up the job at hand, whose iterator is closed as soon as it yields: nothing else reaches a worker of the platform's."""
        self.close()
        threading.Thread(target=self._on_exit, args=(-signal.SIGKILL,), daemon=True).start()

    def close(self, timeout_s: float = 2.0) -> None:
        """The same, for one that nobody listens to any more; the workers end with the page."""
        self._ended = True
        self._work.put(None)

    # ---- in its thread

    def _serve(self) -> None:
        self._on_event(self._hello)
        if self._lane:
            self._on_event(self._lane.now())
        while not self._ended and (work := self._work.get()):
            work()

    def _do(self, job: Job) -> None:
        if self._lane is None:
            self._on_event(self._failed or Failed(job.run_id, self._hello.reason or CANT_RUN))
        else:
            self._call(job)
        self._numbers.pop(job.run_id, None)
        self._stopped.discard(job.run_id)

    def _call(self, job: Job) -> None:
        call = _Call(job)
        self._on_event(ASKING)
        try:
            with contextlib.closing(lent(job)) as lines:  # type: ignore[type-var]
                for line in lines:
                    event = decode(line)
                    call.note(event)
                    self._on_event(event)
                    if self._ended or (job.run_id in self._stopped and not call.began):
                        break
        except Exception as error:  # whatever the platform raises, the other lane goes on
            log.warning("a run on ZeroGPU failed", exc_info=True)
            self._lost = self._lost + 1 if call.lost_in_our_kernels(error) else 0
            if not call.over:
                self._on_event(Failed(job.run_id, call.told(error)))
        else:
            self._lost = 0
            if not call.over:  # its iterator was closed
                self._on_event(Done(job.run_id, "stopped", "", (), 0, Timings()))


class _Call:
    """One call of the platform as it goes: what came of it, and what is said where it fails."""

    def __init__(self, job: Job) -> None:
        self._asked_s = duration_s(job)
        self._since: float | None = None  # when a worker had the card
        self._in_our_kernels = False
        self.began = self.over = False

    def note(self, event: Event) -> None:
        """An event came."""
        self._since = self._since or time.perf_counter()
        match event:
            case Loading():
                self._in_our_kernels = bool(event.trying)
            case Loaded():
                self._in_our_kernels = False
            case Prefill():
                self.began, self._in_our_kernels = True, event.path == GRAPH
        self.over = self.over or isinstance(event, ENDS)

    def _too_long(self) -> bool:
        return self._since is not None and time.perf_counter() - self._since >= self._asked_s

    def lost_in_our_kernels(self, error: Exception) -> bool:
        """Whether the worker ended, and not for its time, while it used native code of ours."""
        return self._in_our_kernels and not self.over and is_abort(error) and not self._too_long()

    def told(self, error: Exception) -> str:
        """The sentence for what the platform raised."""
        if is_abort(error):
            return TOO_LONG.format(self._asked_s) if self._too_long() else ENDED
        title, message = getattr(error, "title", ""), TAG.sub("", str(getattr(error, "message", ""))).strip()
        if title == "ZeroGPU worker error":
            return FAILED.format(message)
        if str(title).startswith("ZeroGPU") and message:
            ended = f"{title}: {message}{'' if message.endswith(('.', '!', '?')) else '.'}"
            return f"{ended} {SHORTER}" if title == "ZeroGPU illegal duration" else ended
        return UNREACHED.format(first_line(error))


def is_abort(error: Exception) -> bool:
    """Whether the platform says that the worker is gone: it was killed, for its time or at will, or it crashed."""
    return getattr(error, "title", "") == "ZeroGPU worker error" and getattr(error, "message", "") == "GPU task aborted"
