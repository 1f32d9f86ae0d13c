"""Who called an endpoint and waits for its answer: let in as the page's visitors are, told how far it is, and its run ended once nobody waits.

In: Gradio's request. Out: an event that is set when the caller has gone, to be handed on as `stop`; progress for the caller's job.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import gradio as gr

from inference.engine.compare import names
from inference.engine.engine import Engine
from inference.events import Request
from inference.progress import Progress
from inference.units import count
from ui import private
from ui.visitors import Visitors

UNHEARD_S = 60.0  # a caller may ask in one command and listen in a second, typed by hand; one that was killed between the two never will
Result = TypeVar("Result")


class Gone(threading.Event):
    """Set for good once the caller of the endpoint at hand has gone; made in the thread that answers it, looked at from any."""

    def __init__(self) -> None:
        super().__init__()
        self._left, self._unread = private.left(), private.unread()
        self._untaken: tuple[object, float] = (None, 0.0)  # the oldest message that nobody took, and when it was first seen

    def is_set(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return super().is_set() or self._left() or self._unheard()

    def _unheard(self) -> bool:
        now, message = time.monotonic(), self._unread()
        if message is not self._untaken[0]:
            self._untaken = (message, now)
        return message is not None and now - self._untaken[1] > UNHEARD_S

    def unless(self, make: Callable[..., Result]) -> Callable[..., Result | None]:
        """`make`, or nothing once the caller has gone."""
        return lambda *args: None if self.is_set() else make(*args)


class Callers:
    """All who wait for an endpoint of one page."""

    def __init__(self, visitors: Visitors) -> None:
        self._visitors, self._lock = visitors, threading.Lock()
        self._waiting: dict[str, set[Gone]] = {}  # by Gradio's session hash

    @contextmanager
    def calling(self, caller: gr.Request, asked: Request | None = None) -> Iterator[Gone]:
        """While a call is answered; raises InferenceError where this visitor may not ask now."""
        session, gone = caller.session_hash or "", Gone()
        with self._visitors.visiting(caller, asked):
            with self._lock:
                self._waiting.setdefault(session, set()).add(gone)
            try:
                yield gone
            finally:
                with self._lock:
                    self._waiting[session].discard(gone)
                    if not self._waiting[session]:
                        del self._waiting[session]

    def leave(self, caller: gr.Request) -> None:
        """A client has ended, perhaps before it began to listen for its answer."""
        with self._lock:
            for gone in self._waiting.get(caller.session_hash or "", ()):
                gone.set()


class Told:
    """What each lane of a comparison does, told to the client as the progress of its job whenever that changes: its place in the line first of all."""

    def __init__(self, engine: Engine) -> None:
        self._names, self._words, self._lock = names(engine), dict[str, str](), threading.Lock()
        self._progress = gr.Progress()  # as a parameter, `gr.api` would take it for an input
        self._context = contextvars.copy_context()  # a lane is read in a thread of its own, which does not know whose event it works for

    def __call__(self, lane: str, progress: Progress) -> None:
        """Lane `lane` has come so far."""
        words = f"{count(progress.position, 'run')} before this one" if progress.position and progress.phase in ("queued", "turn") else progress.phase
        with self._lock:
            if self._words.get(lane) != words:
                self._words[lane] = words
                said = "; ".join(f"{self._names[key]}: {words}" for key, words in self._words.items())
                self._context.run(self._progress, None, desc=said)
