"""A lane's child process: start it, write requests, read events, end it. Knows nothing of runs or queues.

One JSON object a line on the child's stdin and stdout; its stderr is the log. The child ends itself when its stdin
closes, and is killed with this process where the system can do that, so none is left behind however this one ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from inference.errors import DEVICE_LOST_CODE, WRITTEN_OVER_CODE
from inference.events import Event, decode
from inference.host import child
from inference.lanes import LaneName
from inference.settings import Settings

log = logging.getLogger(__name__)
# How long an OpenMP thread spins before it sleeps. With GNU's default two lanes on the same cores decode together at
# 0.5 tokens/s: each waits, spinning, on cores that the other needs. At 3,000 they reach 8. A lane alone: 4-bit
# 19.4 tokens/s for 19.9 with the default, FP32 41.4 for 40.8 (medians of 9, taken in alternation).
OPENMP = {"GOMP_SPINCOUNT": "3000"}
# A child is killed with the thread that started it (`child.be_killed_with_parent`): this one lasts as long as the page.
_STARTER = ThreadPoolExecutor(1, "starts-lanes")
ENDING_S = 5.0  # for a child that has closed its output


class AnyProcess(Protocol):
    """What the engine asks of whatever answers for a lane: a child of ours, or what stands for one (`space/zero.py`).

    `on_event` and `on_exit` are called from a thread of its own; nothing here waits but `close`.
    """

    pid: int

    def watch(self, on_event: Callable[[Event], None], on_exit: Callable[[int], None]) -> None: ...
    def send(self, **message: object) -> None: ...
    def kill(self) -> None: ...
    def close(self, timeout_s: float = 2.0) -> None: ...


class LaneProcess:
    """One running child; `on_event` and `on_exit` are called from its reader thread."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._to_write: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._child = _STARTER.submit(
            subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True, encoding="utf-8",
            start_new_session=True,
        ).result()  # fmt: skip
        self.pid = self._child.pid

    def watch(self, on_event: Callable[[Event], None], on_exit: Callable[[int], None]) -> None:
        """Begin to read the child's events and to write it what was sent."""
        threading.Thread(target=self._write, name=f"to-lane-{self.pid}", daemon=True).start()
        threading.Thread(target=self._read, args=(on_event, on_exit), name=f"lane-{self.pid}", daemon=True).start()

    def _read(self, on_event: Callable[[Event], None], on_exit: Callable[[int], None]) -> None:
        assert self._child.stdout is not None
        try:
            with self._child.stdout as lines:
                for line in lines:
                    try:
                        event = decode(line)
                    except (ValueError, TypeError):
                        log.warning("a lane wrote a line that is no event (%d characters)", len(line))
                        continue
                    on_event(event)
        except Exception:
            # Nobody would read this child any more, and its lane would never answer again.
            log.exception("an event of lane process %d could not be taken; the process is ended", self.pid)
            self.kill()
        code = self._ended()
        self._to_write.put(None)  # nobody closes a process that ended by itself: its pipe and the thread that writes there go here
        on_exit(code)

    def _ended(self) -> int:
        """The code of a child whose output is closed: one that goes on all the same can tell nobody anything."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(ENDING_S)
        log.warning("lane process %d has closed its output and goes on; it is ended", self.pid)
        self.kill()
        return self._child.wait()

    def send(self, **message: object) -> None:
        """Hand over one request, at once; a child that is gone is told by `on_exit`, not here."""
        self._to_write.put(json.dumps(message))

    def _write(self) -> None:
        # A thread of its own: a pipe takes 64 KiB, and a child that does not read (stopped, or busy where it holds
        # the GIL) would hold up whoever sends it a long prompt, which is the engine under its lock.
        stdin = self._child.stdin
        assert stdin is not None
        try:
            with stdin:
                for line in iter(self._to_write.get, None):
                    stdin.write(line + "\n")
                    stdin.flush()
        except (OSError, ValueError):
            log.info("lane process %d no longer reads", self.pid)

    def kill(self) -> None:
        """End the child and what it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self, timeout_s: float = 2.0) -> None:
        """Let the child end by closing its input; kill it if it doesn't within `timeout_s`."""
        self._to_write.put(None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout_s)
        self.kill()
        self._child.wait()


def end_all(processes: Sequence[AnyProcess]) -> None:
    """Let them all end at once; returns when each is gone."""
    threads = [threading.Thread(target=process.close, name="end-lane") for process in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def start_worker(lane: str, settings: Settings) -> LaneProcess:
    """Start `python -m inference.lane.worker LANE` with these settings; for a server elsewhere `inference.endpoint.worker`."""
    if LaneName.parse(lane).elsewhere:
        return start_module(settings, "inference.endpoint.worker", lane)
    return start_module(settings, "inference.lane.worker", lane, **OPENMP)


def start_module(settings: Settings, module: str, *arguments: str, **env: str) -> LaneProcess:
    """Start `python -m MODULE ARGUMENTS` as a lane's process; what the environment already says wins over `env`."""
    return LaneProcess([sys.executable, "-m", module, *arguments], {**env, **child.environment(**settings.to_env(), PYTHONUNBUFFERED="1")})


def was_fault(returncode: int) -> bool:
    """Whether a child ended by a fault of its own code or device: not by itself, and not killed from outside."""
    return returncode == DEVICE_LOST_CODE or returncode in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE, -signal.SIGABRT)


def why_it_died(returncode: int) -> str:
    """A sentence for a child that ended by itself."""
    seconds = resource.getrlimit(resource.RLIMIT_CPU)[0]  # a child's is its parent's
    limited = seconds != resource.RLIM_INFINITY
    if returncode == -signal.SIGXCPU:
        allowed = f" ({seconds} s, ulimit -t)" if limited else ""
        return f"The lane's process used up the processor time that it may have{allowed}. The text so far is kept; raise that limit, and start again."
    if returncode == -signal.SIGKILL:
        or_time = f" or a process has had its {seconds} s of processor time (ulimit -t)" if limited else ""
        return (
            f"The lane's process was killed (signal 9), as the system does when memory runs out{or_time}. The text so far is kept; ask again to start it anew."
        )
    if returncode == DEVICE_LOST_CODE:
        return "The GPU reported an error after which nothing in that process could answer. The text so far is kept; a fresh process answers the next prompt."
    if returncode == WRITTEN_OVER_CODE:
        return "The model's files were written over while this lane had them loaded, so its answer would be of neither model. Ask again: it is loaded anew."
    if returncode < 0:
        return f"The lane's process crashed (signal {-returncode}). The text so far is kept; ask again to start it anew, and see the log for the trace."
    return f"The lane's process ended unexpectedly (exit code {returncode}). Ask again to start it anew, and see the log for the reason."


def why_it_did_not_start(error: OSError | RuntimeError) -> str:
    """A sentence for a child that the system would not start."""
    return f"The lane's process could not be started ({error}). Free memory or end other programs, then ask again."
