"""Waiting for something that another thread or process does, or that a coroutine gives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def until(condition: Callable[[], object], timeout_s: float = 10.0, what: str = "") -> None:
    """Wait in small steps until `condition` holds."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s} s: {what or condition}"
        time.sleep(0.02)


def in_a_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine gives, run in a thread: that of the tests has a loop once a browser was there."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result(30)
