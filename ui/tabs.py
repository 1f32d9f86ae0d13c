"""Something kept for each browser tab, in this process's memory: at most so many tabs, the one unused longest goes first.

Safe from several threads. Knows no component and not what it keeps.
"""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

MOST_TABS = 500
Kept = TypeVar("Kept")


class Tabs(Generic[Kept]):
    """What is kept, by the tab's session hash; to look at it is to use it."""

    def __init__(self, most: int = MOST_TABS) -> None:
        self._lock, self._most = threading.Lock(), most
        self._kept: dict[str, Kept] = {}

    def get(self, tab: str) -> Kept | None:
        """What is kept for a tab, if anything is."""
        with self._lock:
            if tab in self._kept:
                self._kept[tab] = self._kept.pop(tab)
            return self._kept.get(tab)

    def put(self, tab: str, value: Kept) -> None:
        """Keep `value` for a tab, in the place of what was there."""
        with self._lock:
            self._kept.pop(tab, None)
            self._kept[tab] = value
            while len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]

    def drop(self, tab: str) -> None:
        """Keep nothing for a tab any more."""
        with self._lock:
            self._kept.pop(tab, None)
