"""What lies between a run's lane and its reader: events in, the same events out, however slow the reader."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace

from inference.events import RunEvent, Text


class Inbox:
    """A run's events on their way to its reader; a text joins one that still waits, so no reader falls behind."""

    def __init__(self) -> None:
        self._events: deque[RunEvent] = deque()
        self._first: Text | None = None
        self._filled = threading.Condition()

    def put(self, event: RunEvent) -> None:
        """Add an event; never blocks."""
        with self._filled:
            last = self._events[-1] if self._events else None
            if isinstance(event, Text) and self._first is None:
                self._first = event
            if isinstance(event, Text) and isinstance(last, Text) and last is not self._first:  # the first stays alone: its stamp is a figure
                self._events[-1] = replace(event, delta=last.delta + event.delta)
            else:
                self._events.append(event)
            self._filled.notify()

    def get(self, timeout_s: float) -> RunEvent | None:
        """The next event, or None when none came within `timeout_s`."""
        with self._filled:
            self._filled.wait_for(lambda: self._events, timeout_s)
            return self._events.popleft() if self._events else None
