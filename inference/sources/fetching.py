"""Begins to fetch a checkpoint in a process of its own (`fetch.py`) and asks for it later, so that fetching is in no figure of a lane.

In: a name, settings. Out: a checkpoint, or the sentence why not. What is at hand costs no process. Standard library only: a lane's
process begins this before its heavy imports.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from inference.cache import cache, manifest
from inference.errors import InferenceError, Refused
from inference.events import Loading, Report
from inference.fast import first_line
from inference.host import child, machine
from inference.settings import Settings
from inference.sources.at_hand import Checkpoint, at_hand

log = logging.getLogger(__name__)
Model = TypeVar("Model")
ENDED = "The process that fetches {} ended unexpectedly (exit code {}). Ask again, and see the log for the reason."
KILLED = "The process that fetches {} was killed (signal 9), as the system does when memory runs out. Free some, then ask again."


class Fetch:
    """A checkpoint that is there, on its way, or can't be had."""

    def __init__(self, name: str, outcome: Checkpoint | InferenceError | None, process: subprocess.Popen[str] | None = None) -> None:
        self._name, self._outcome, self._process = name, outcome, process
        self._news = threading.Condition()
        self._loading: Loading | None = None
        if process:
            threading.Thread(target=self._read, args=(process,), name="fetching", daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                with self._news:
                    self._take(json.loads(line))
                    self._news.notify_all()
        except Exception:
            log.exception("what the process that fetches %s said can't be understood", self._name)
            process.terminate()  # not killed: that is the system's way where memory runs out
        finally:  # whoever waits for the result must not wait for ever
            code = process.wait()
            with self._news:
                self._outcome = self._outcome or InferenceError((KILLED if code == -signal.SIGKILL else ENDED).format(self._name, code))
                self._news.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        if "loading" in message:
            self._loading = Loading(**message["loading"])
        elif "checkpoint" in message:
            self._outcome = Checkpoint(**{**message["checkpoint"], "folder": Path(message["checkpoint"]["folder"])})
        else:
            self._outcome = (Refused if message["refused"] else InferenceError)(message["failed"])

    def result(self, report: Report) -> Checkpoint:
        """The checkpoint, its progress reported until it is there; raises the InferenceError of the process that fetches it."""
        told = None
        with self._news:
            while self._outcome is None:
                if self._loading is not told:
                    told = self._loading
                    assert told is not None
                    report(told)
                self._news.wait()
        if isinstance(self._outcome, InferenceError):
            raise self._outcome
        return self._outcome

    def cancel(self) -> None:
        """End the process, if there is one: nobody wants its checkpoint."""
        if self._process and self._process.stdin:
            self._process.stdin.close()


def begin(name: str, settings: Settings) -> Fetch:
    """Begin to fetch `name`, unless it is at hand; returns at once. The cache is tidied on the way.

    From here on this process keeps the checkpoint's entry from being removed, also one that is still to be fetched.
    """
    name = settings.pin_of(name)  # a branch of the Hub may have moved since another lane had it
    try:
        found = at_hand(name, settings)
        cache.of(settings).tidy()
        if not found:
            command = [sys.executable, "-m", "inference.sources.fetch", name]
            environment = child.environment(**settings.to_env(), OMP_NUM_THREADS=str(machine.lane_threads(settings)))  # merging computes
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, encoding="utf-8")
            return Fetch(name, None, process)
    except InferenceError as error:
        return Fetch(name, error)
    except Exception as error:  # of files that hold what nobody foresaw; a lane's process must not end of them
        log.exception("%s can't be looked at", name)
        return Fetch(name, InferenceError(f"{name} can't be looked at ({first_line(error)}). Check that its files can be read and are whole."))
    return Fetch(name, found)


def load_sound(checkpoint: Checkpoint, settings: Settings, report: Report, load: Callable[[Checkpoint], Model]) -> tuple[Checkpoint, Model]:
    """(checkpoint, model) by `load`; a folder of our own cache that can't be read and is damaged is made anew, once, and said."""
    entry = cache.of(settings).holding(checkpoint.folder)
    if entry:
        entry.use()  # what was made of files that weren't there when it was begun
    try:
        return checkpoint, load(checkpoint)
    except Exception as error:
        if entry is None or manifest.not_the_files(error) or not manifest.damaged(entry.path):
            raise
        log.warning("%s can't be read (%s) and is damaged: it is made anew", checkpoint.folder, error)
    report(Loading("its copy in the cache is damaged: making it anew"))
    with entry.locked():
        if manifest.damaged(entry.path):  # else another lane has made it anew meanwhile
            entry.discard()
    checkpoint = begin(checkpoint.name, settings).result(report)
    return checkpoint, load(checkpoint)
