"""Waiting for the Hub, bounded: its library sets hardly a time-out itself, and its uploader in Rust none that we know.

In: seconds, work. Out: its result, or a TimeoutError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from huggingface_hub import get_session, set_client_factory

from inference.host.patience import Watch

Result = TypeVar("Result")


@contextmanager
def time_outs(seconds: float) -> Iterator[None]:
    """Within it no request waits longer than `seconds` for a connection, for an answer's next bytes or for room to write; a shorter one that is given stays."""
    default = get_session()

    def bound(request: Any) -> None:
        given = request.extensions.get("timeout", {})
        request.extensions["timeout"] = {step: min(given.get(step) or seconds, seconds) for step in ("connect", "read", "write", "pool")}

    hooks = {**default.event_hooks, "request": [*default.event_hooks["request"], bound]}
    set_client_factory(lambda: type(default)(event_hooks=hooks, follow_redirects=True))
    try:
        yield
    finally:
        set_client_factory(lambda: type(default)(event_hooks=default.event_hooks, follow_redirects=True, timeout=None))


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """What `work` gives, or raises; a TimeoutError after `seconds`, and then it is left to its thread, which holds nobody up (Ctrl+C neither)."""
    return Watch(seconds, TimeoutError).run(work)
