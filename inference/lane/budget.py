"""How long a chat template may compute and how much it may hold: it is a program that came with the checkpoint, and the sandbox it runs in knows no end.

In: code that renders one. Out: its result, or an error that it raises like the template's own. Knows no template.
"""

from __future__ import annotations

import sys
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


@contextmanager
def bounded(most_s: float = MOST_S) -> Iterator[None]:
    """Raise TooMuch from within a template once it has computed for `most_s`, or the process holds MOST_BYTES more than before; its lines look at the clock."""
    began = looked = time.monotonic()
    process = psutil.Process()
    held, before = process.memory_info().rss, sys.gettrace()

    def look(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal looked
        if frame.f_code.co_filename != TEMPLATE:
            return None
        now = time.monotonic()
        if now - looked > LOOK_S:
            looked = now
            if process.memory_info().rss - held > MOST_BYTES:
                raise TooMuch("its text does not come to an end")
            if now - began > most_s:
                raise TooMuch(f"it did not come to its end in {most_s:g} s")
        return look

    sys.settrace(look)
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
