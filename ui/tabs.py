"""Something kept for each browser tab, in this process's memory: so many tabs and so many bytes, the tab unused longest goes first.

Safe from several threads. Knows no component and not what it keeps; who keeps something says how large it is (`bytes_of`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Generic, TypeVar

MOST_TABS = 500
MOST_BYTES = 128 * 2**20
POINTER, NUMBER, CONTAINER = 8, 24, 64  # bytes, of a 64-bit CPython
Kept = TypeVar("Kept")


class Tabs(Generic[Kept]):
    """What is kept, by the tab's session hash; to look at it is to use it."""

    def __init__(self, most: int = MOST_TABS, most_bytes: int = MOST_BYTES) -> None:
        self._lock, self._most, self._most_bytes = threading.Lock(), most, most_bytes
        self._kept: dict[str, tuple[Kept, int]] = {}

    def get(self, tab: str) -> Kept | None:
        """What is kept for a tab, if anything is."""
        with self._lock:
            return self._use(tab)

    def change(self, tab: str, change: Callable[[Kept | None], tuple[Kept, int]]) -> Kept:
        """Keep for a tab what `change` makes of what was there, and its size in bytes; nobody else changes it meanwhile.

        Where `change` raises, all stays as it was.
        """
        with self._lock:
            value, size = change(self._use(tab))
            self._keep(tab, value, size)
            return value

    def put(self, tab: str, value: Kept, size: int) -> None:
        """Keep `value`, of `size` bytes, for a tab, in the place of what was there."""
        self.change(tab, lambda _: (value, size))

    def resize(self, tab: str, value: Kept, size: int) -> None:
        """Note that `value` has now `size` bytes, if it is still what is kept for the tab."""
        with self._lock:
            if self._use(tab) is value:
                self._keep(tab, value, size)

    def drop(self, tab: str) -> None:
        """Keep nothing for a tab any more."""
        with self._lock:
            self._kept.pop(tab, None)

    def _use(self, tab: str) -> Kept | None:
        if tab not in self._kept:
            return None
        self._kept[tab] = self._kept.pop(tab)
        return self._kept[tab][0]

    def _keep(self, tab: str, value: Kept, size: int) -> None:
        self._kept.pop(tab, None)
        self._kept[tab] = value, size
        total = sum(size for _, size in self._kept.values())
        while len(self._kept) > self._most or (total > self._most_bytes and len(self._kept) > 1):
            _, size = self._kept.pop(next(iter(self._kept)))
            total -= size


def bytes_of(value: object) -> int:
    """About how many bytes a value made of texts, numbers, containers and dataclasses takes; what is in it twice counts twice."""
    if isinstance(value, str):
        return sys.getsizeof(value)
    parts: Iterable[object]
    if isinstance(value, Mapping):
        parts = chain(value.keys(), value.values())
    elif is_dataclass(value):
        parts = [getattr(value, field.name) for field in fields(value)]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = value
    else:
        return NUMBER
    return CONTAINER + sum(POINTER + bytes_of(part) for part in parts)
