"""How long a chat template may compute and how much it may hold: it is a program that came with the checkpoint, and the sandbox it runs in knows no end.

In: code that renders one. Out: its result, or an error that it raises like the template's own. Knows no template.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import psutil
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

MOST_S = 5.0  # those that are in use take milliseconds
MOST_BYTES = 2**28  # more than the process held before; nothing else of it grows so in milliseconds
LOOK_S = 0.01
MOST_REPEATED = 10**7  # letters or items of one product; bits of one power
TEMPLATE = "<template>"  # what jinja calls the code that it makes of a text


class TooMuch(RuntimeError):
    """A template that was ended."""


class _Look:
    """Looks at what a template has taken since the first look; raises TooMuch."""

    def __init__(self, most_s: float) -> None:
        self._most_s, self._held = most_s, 0
        self._began = self._looked = time.thread_time()  # computing, not waiting: a busy or a suspended machine is no fault of the template

    def __call__(self, *_: object) -> None:
        now = time.thread_time()
        if now - self._looked < LOOK_S:
            return
        self._looked, rss = now, psutil.Process().memory_info().rss
        self._held = self._held or rss
        if rss - self._held > MOST_BYTES:
            raise TooMuch("its text does not come to an end")
        if now - self._began > self._most_s:
            raise TooMuch(f"it did not come to its end in {self._most_s:g} s")


@contextmanager
def bounded(most_s: float = MOST_S) -> Iterator[None]:
    """Raise TooMuch from within a template once it has computed for `most_s`, or the process holds MOST_BYTES more than at the first look."""
    look = _Look(most_s)
    with _by_timer(look) if threading.current_thread() is threading.main_thread() else _by_trace(look):
        yield


@contextmanager
def _by_timer(look: _Look) -> Iterator[None]:
    """Look each time so much was computed: an ordinary template ends before the first look, and pays nothing for it before each first token."""
    before = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, LOOK_S, LOOK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def _by_trace(look: _Look) -> Iterator[None]:
    """Look at each line of the template, in a thread that gets no signals."""

    def traced(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != TEMPLATE:
            return None
        look()
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        yield
    finally:
        sys.settrace(before)


def _calculate(environment: Any, context: Any, operator: str, left: Any, right: Any) -> Any:
    """A product or a power in a template, of which one alone could fill the memory; raises SecurityError, as the sandbox does, for one that is too large."""
    if operator == "**":
        large = isinstance(left, int) and isinstance(right, int) and left.bit_length() * right
    else:
        large = next(
            (len(some) * times for some, times in ((left, right), (right, left)) if isinstance(some, (str, list, tuple)) and isinstance(times, int)), 0
        )
    if large > MOST_REPEATED:
        raise SecurityError(f"{operator} of something that large")
    return environment.binop_table[operator](left, right)


# the sandbox's own way to have operators looked at, of the one kind of it that transformers makes
ImmutableSandboxedEnvironment.intercepted_binops = frozenset({"*", "**"})
ImmutableSandboxedEnvironment.call_binop = _calculate  # type: ignore[method-assign, assignment]
