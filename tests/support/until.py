"""Waiting for something that another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], timeout_s: float = 10.0, what: str = "") -> None:
    """Wait in small steps until `condition` holds."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s} s: {what or condition}"
        time.sleep(0.02)
