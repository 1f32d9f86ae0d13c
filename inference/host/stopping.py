"""Ctrl+C before a program's work has begun: one sentence and the exit code, no trace of half an import.

In and out: what SIGINT does in this process. Imported before all else, so it imports next to nothing.
"""

from __future__ import annotations

import os
import signal

STOPPED = 130  # as a shell has it


def at_once() -> None:
    """From now on Ctrl+C ends this process: nothing is begun that would have to be undone. A job in the background, which heeds none, stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raised() -> None:
    """From now on it is a KeyboardInterrupt again, if it was to end this process at once."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    try:
        os.write(2, b"\nStopped.\n")
    finally:
        os._exit(STOPPED)
