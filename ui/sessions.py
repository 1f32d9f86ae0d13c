"""What each visitor's tab is doing: its comparison, who streams it, and how its runs ended.

Keyed by Gradio's session hash, changed under one lock; holds no component and draws nothing. A session has at
most one comparison under way: this, not a disabled button, is what makes a double submit harmless.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from inference.engine.runs import Comparison, Run
from inference.errors import InferenceError
from inference.progress import Progress

MOST_SESSIONS = 500
STILL_RUNNING = "A comparison is still running. Wait for it, or stop it first."


@dataclass
class Session:
    """One tab's latest comparison; `claimed` holds the lanes whose run is streamed, `outcomes` those that ended."""

    comparison: Comparison
    claimed: set[str] = field(default_factory=set)
    outcomes: dict[str, Progress] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        """Whether a run is still under way; one that nobody came to read and the engine ended is over."""
        return any(key not in self.outcomes and not (run.ended and key not in self.claimed) for key, run in self.comparison.runs.items())

    @property
    def complete(self) -> bool:
        """Whether every run has been shown to its end."""
        return len(self.outcomes) == len(self.comparison.runs)


class Sessions:
    """All tabs of this page."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}

    def begin(self, tab: str, submit: Callable[[], Comparison]) -> Session:
        """Start a comparison by `submit` unless one is running here; raises InferenceError."""
        with self._lock:
            before = self._sessions.pop(tab, None)
            if before:
                self._sessions[tab] = before
                if before.running:
                    raise InferenceError(STILL_RUNNING)
            session = Session(submit())
            self._sessions[tab] = session
            while len(self._sessions) > MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            return session

    def get(self, tab: str) -> Session | None:
        """The tab's latest comparison, if it has begun one."""
        with self._lock:
            return self._sessions.get(tab)

    def claim(self, tab: str, lane: str) -> tuple[Session, Run] | None:
        """The run that a stream of `lane` is to show, once; None when it is taken or there is none."""
        with self._lock:
            session = self._sessions.get(tab)
            run = session.comparison.runs.get(lane) if session else None
            if session is None or run is None or lane in session.claimed:
                return None
            session.claimed.add(lane)
            return session, run

    def forget(self, tab: str) -> Session | None:
        """Drop a tab that was closed; returns what it was doing."""
        with self._lock:
            return self._sessions.pop(tab, None)
