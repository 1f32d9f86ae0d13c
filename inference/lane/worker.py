"""`python -m inference.lane.worker LANE`: one lane behind JSON lines, one object a line (`bench/worker.py`: another way of answering).

Reads `load`, `generate`, `score`, `stop`, `hold` and `exit` from stdin and writes events to stdout. The first line takes both
descriptors for itself and points stdout at stderr, so that a library's print can't break a message; stderr is the
log. The process ends as soon as its input closes, whatever it is doing.
"""

from __future__ import annotations

import os
import sys

_IN, _OUT = os.fdopen(os.dup(0), "r", encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)

import contextlib  # noqa: E402
import json  # noqa: E402
import logging  # noqa: E402
import queue  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import replace  # noqa: E402
from typing import Any  # noqa: E402

from inference import machine  # noqa: E402
from inference.errors import InferenceError, Refused  # noqa: E402
from inference.events import Event, Failed, Hello, Request, encode  # noqa: E402
from inference.score_events import ScoreRequest  # noqa: E402
from inference.settings import Settings, from_env  # noqa: E402

log = logging.getLogger(__name__)
Starter = Callable[[str, Settings], tuple[Any, Hello]]


class Worker:
    """The loop around a lane: requests in, events out, one at a time."""

    def __init__(self, lane: str, settings: Settings, start: Starter) -> None:
        self.settings = settings
        self.requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.stopped: set[str] = set()
        self.path_pending = False
        self.lane: Any = None
        self.held = False
        threading.Thread(target=self._read, name="requests", daemon=True).start()
        self.lane, self.hello = start(lane, settings)

    def run(self) -> None:
        """Say hello, then serve until the input closes."""
        self.emit(self.hello)
        while True:
            message = self._next()
            run_id: str | None = message.get("run_id")
            try:
                if message["do"] == "load":
                    self._load()
                elif message["do"] == "generate" and run_id:
                    self._generate(run_id, _request(message["request"]))
                elif message["do"] == "score" and run_id:
                    self._score(run_id, message["request"])
            except InferenceError as error:
                self.emit(Failed(run_id, str(error), isinstance(error, Refused)))
            except Exception:
                log.exception("lane %s failed", self.lane.name if self.lane else "?")
                self.emit(Failed(run_id, "This lane failed unexpectedly; the log has the trace. Ask again, or run `python -m inference doctor`."))
            finally:
                self.stopped.discard(run_id or "")

    def _next(self) -> dict[str, Any]:
        """The next request, before which a faster path that has become ready is changed over to, and told."""
        while self.path_pending:
            if loaded := self.lane.change_over(self.emit):
                self.path_pending = False
                self.emit(loaded)
                break
            with contextlib.suppress(queue.Empty):
                return self.requests.get(timeout=0.1)
        return self.requests.get()

    def emit(self, event: Event) -> None:
        """Write one event."""
        _OUT.write(encode(event) + "\n")
        _OUT.flush()

    def _read(self) -> None:
        for line in _IN:
            message = json.loads(line)
            if message["do"] == "exit":
                break
            if message["do"] == "stop":
                self.stopped.add(message["run_id"])
            elif message["do"] == "hold":
                self.held = message["still"]
                if self.lane:
                    self.lane.hold(self.held)
            else:
                self.requests.put(message)
        os._exit(0)

    def _load(self) -> None:
        if self.lane is None or self.lane.loaded:
            return
        try:
            loaded = self.lane.load(self.emit)
            self.lane.compile_beside()
            self.lane.hold(self.held)
            self.path_pending = self.lane.path_pending
            self.emit(replace(loaded, path_pending=self.path_pending))
        except InferenceError as error:
            self.emit(Failed(None, str(error), isinstance(error, Refused)))
        except Exception:
            log.exception("lane %s could not load", self.lane.name)
            self.emit(Failed(None, "The model could not be loaded; the log has the trace. Check MODEL_ID, then ask again."))

    def _generate(self, run_id: str, request: Request) -> None:
        if self.lane is None:
            raise InferenceError(self.hello.reason or "This lane can't run here.")
        if not self.lane.loaded:
            try:
                self.lane.prepare(self.emit)
            except InferenceError as error:
                self.emit(Failed(None, str(error), isinstance(error, Refused)))
                return
            self.lane.encode(request)
            self._load()
            if not self.lane.loaded:
                return
        for event in self.lane.generate(run_id, request, lambda: run_id in self.stopped):
            self.emit(event)

    def _score(self, run_id: str, fields: dict[str, Any]) -> None:
        if self.lane is None:
            raise InferenceError(self.hello.reason or "This lane can't run here.")
        from inference.lane.scoring import score

        self._load()
        if self.lane.loaded:
            request = ScoreRequest(**{**fields, "ids": tuple(fields["ids"])})
            self.emit(score(self.lane, run_id, request, lambda: run_id in self.stopped))


def _request(fields: dict[str, Any]) -> Request:
    return Request(**{**fields, "forced_ids": tuple(fields.get("forced_ids", ()))})


def start_lane(name: str, settings: Settings) -> tuple[Any, Hello]:
    """Set the threads, import the heavy libraries, find the device; (None, hello) where the lane can't run."""
    began = time.perf_counter()
    os.environ["OMP_NUM_THREADS"] = str(machine.cpu_threads(settings.threads))
    import torch

    from inference.lane.lane import Lane
    from inference.lane.probe import cuda_reason, hello_of

    torch.set_num_threads(machine.cpu_threads(settings.threads, beside_gpu=cuda_reason() is None))
    hello = hello_of(name)
    return (Lane(hello.lane, settings, time.perf_counter() - began) if hello.available else None), hello


def serve(lane: str, start: Starter = start_lane) -> None:
    """Run a lane until the input closes."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    Worker(lane, from_env(), start).run()


if __name__ == "__main__":
    serve(sys.argv[1])
