"""Looks after something every now and then, in a thread of its own, until it is closed. Knows no lane and no run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)
LOOK_S = 0.5


class Watch:
    """Calls each of `looks` every `LOOK_S`; one that raises is logged, and looks again the next time."""

    def __init__(self, *looks: Callable[[], None]) -> None:
        self._looks, self._closed = looks, threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more; a look under way ends by itself."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """One look of each."""
        for look in self._looks:
            try:
                look()
            except Exception:
                log.exception("a look after the lanes failed; the next one comes in %.1f s", LOOK_S)
