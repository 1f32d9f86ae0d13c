"""When a lane's process was last heard, and when it last got on: kept of its events, judged by `silence.py`.

A process that answers a `ping` lives, however long its work takes; one whose work goes on has come further (`Alive.steps`).
"""

from __future__ import annotations

from dataclasses import dataclass

from inference.events import Alive, Event


@dataclass
class Signs:
    """Times on the engine's clock, in seconds."""

    heard: float = 0.0
    moved: float = 0.0
    asked: float | None = None  # when it was pinged, until anything comes back
    steps: int = 0

    def begin(self, now: float) -> None:
        """A new process, or one that is given all its time again."""
        self.heard, self.moved, self.asked = now, now, None

    def ask(self, now: float) -> None:
        """It is pinged."""
        self.asked = now

    def take(self, event: Event, now: float) -> None:
        """It said something: whatever it is, it lives."""
        self.heard, self.asked = now, None
        if not isinstance(event, Alive) or event.steps != self.steps:
            self.moved = now
        if isinstance(event, Alive):
            self.steps = event.steps

    def unanswered_s(self, now: float) -> float:
        """For how long a ping has been waiting for its answer; 0 where none is."""
        return 0.0 if self.asked is None else now - self.asked
