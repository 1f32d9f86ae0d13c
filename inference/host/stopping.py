"""How a program is asked to end, and its streams, before its work has begun: Ctrl+C is one sentence and the exit code, no trace of half an import.

In and out: what signals do in this process, and that its three streams are there. Imported before all else, so it imports next to nothing.
"""

from __future__ import annotations

import os
import signal
import sys

STOPPED = 130  # as a shell has it


def whole_streams() -> None:
    """Let a stream that was closed for this program (`>&-`, some starters of services) lead nowhere: else the next file that is opened takes its place."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            if (null := os.open(os.devnull, os.O_RDWR)) != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def hang_up() -> tuple[signal.Signals, ...]:
    """SIGHUP, a terminal that is closed: it ends a program as SIGTERM does, but for one that was begun to outlast it (nohup)."""
    number = getattr(signal, "SIGHUP", None)  # Windows has none, and is told later that nothing runs there
    return () if number is None or signal.getsignal(number) is signal.SIG_IGN else (number,)


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
