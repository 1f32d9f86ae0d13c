"""The Hub's library with a time-out for every request, of which it sets none itself. In: seconds. Out: a block in which they hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from huggingface_hub import get_session, set_client_factory


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
