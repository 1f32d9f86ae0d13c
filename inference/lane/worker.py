"""`python -m inference.lane.worker LANE`: one lane behind JSON lines, one object a line (`bench/worker.py`: another way of answering).

Reads `load`, `generate`, `score`, `stop`, `hold`, `ping` and `exit` from stdin and writes events to stdout. The first line takes both
descriptors for itself and points stdout at stderr, so that a library's print can't break a message; stderr is the
log. The process ends as soon as its input closes, whatever it is doing, and when its CUDA context is past use.
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
from collections.abc import Callable, Collection, Iterator  # noqa: E402
from typing import Any, NoReturn, Protocol  # noqa: E402

from inference import errors  # noqa: E402
from inference.cache import cache  # noqa: E402
from inference.cpu import build  # noqa: E402
from inference.errors import DEVICE_LOST_CODE, IN_A_RUN, UNEXPECTED, DeviceLost, InferenceError, Refused, memory_told, short_of_memory  # noqa: E402
from inference.events import (  # noqa: E402
    Done,
    Event,
    Failed,
    Hello,
    Loaded,
    Loading,
    Prefill,
    Request,
    Text,
    encode,
    request_of,
)  # fmt: skip
from inference.fast import first_line  # noqa: E402
from inference.host import child, machine  # noqa: E402
from inference.life_events import Alive  # noqa: E402
from inference.score_events import ScoreRequest  # noqa: E402
from inference.settings import Settings, from_env  # noqa: E402
from inference.sources import fetching, files  # noqa: E402

log = logging.getLogger(__name__)
Starter = Callable[[str, Settings], tuple[Any, Hello]]
PANIC = "PanicException"  # of a library in Rust (tokenizers): no Exception, though it ends nothing
_WRITING = threading.Lock()


def write(event: Event) -> None:
    """Write one event whole: the thread that hears a ping writes too."""
    line = encode(event) + "\n"
    try:
        with _WRITING:
            _OUT.write(line)
            _OUT.flush()
    except BrokenPipeError:  # whoever started this process is gone, of which its input tells a moment later
        os._exit(0)


class AnyLane(Protocol):
    """What a worker asks of its lane (`lane/lane.py`, `bench/baseline.py`)."""

    name: str
    source: Any

    @property
    def model(self) -> Any: ...
    @property
    def loaded(self) -> bool: ...
    def load(self, report: Callable[[Loading], None]) -> Loaded: ...
    def now(self) -> Loaded: ...
    def generate(self, run_id: str, request: Request, should_stop: Callable[[], bool]) -> Iterator[Loading | Prefill | Text | Done]: ...
    def hold(self, devices: Collection[str]) -> None: ...
    def between_runs(self) -> float | None: ...


class Worker:
    """The loop around a lane: requests in, events out, one at a time."""

    def __init__(self, lane: str, settings: Settings, start: Starter) -> None:
        self.settings = settings
        self.requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.stopped: set[str] = set()
        self.lane: AnyLane | None = None
        self.held: Collection[str] = ()
        self.steps = 0  # of the work: what was said of it, and each look for a Stop, which is one a layer in a long prompt
        threading.Thread(target=self._read, name="requests", daemon=True).start()
        self.emit(Loading("importing libraries"))
        try:
            self.lane, self.hello = start(lane, settings)
        except Exception as error:
            ours = isinstance(error, InferenceError)
            if short_of_memory(error) and not ours:  # another process may have more
                raise
            log.log(logging.WARNING if ours else logging.ERROR, "lane %s can't run: %s", lane, error, exc_info=True)
            self.hello = Hello(lane, lane.split(":")[0], {}, {}, str(error) if ours else errors.BROKEN.format(first_line(error)), available=False)

    def run(self) -> None:
        """Say hello, then serve until the input closes."""
        self.emit(self.hello)
        while True:
            message = self._next()
            run_id: str | None = message.get("run_id")
            try:
                self._serve(message["do"], run_id, message)
            except DeviceLost:
                self._end_lost()
            except InferenceError as error:
                log.warning("%s", error, exc_info=error.__cause__ is not None)
                self.emit(Failed(run_id, str(error), isinstance(error, Refused)))
            except BaseException as error:
                if not isinstance(error, Exception) and type(error).__name__ != PANIC:
                    raise
                log.exception("lane %s failed", self.lane.name if self.lane else "?")
                if self._device_lost():
                    self._end_lost()
                self.emit(Failed(run_id, UNEXPECTED.format(first_line(error))))
            finally:
                self.stopped.discard(run_id or "")

    def _serve(self, verb: str, run_id: str | None, message: dict[str, Any]) -> None:
        if verb == "load":
            self._load()
        elif run_id and self.lane is None:
            raise InferenceError(self.hello.reason or "This lane can't run here.")
        elif run_id:
            request = request_of(verb, message["request"])
            self._end_if_written_over()
            if isinstance(request, ScoreRequest):
                self._score(run_id, request)
            else:
                self._generate(run_id, request)

    def _next(self) -> dict[str, Any]:
        """The next request; while none comes, what is to be done between runs is done piece by piece."""
        while self.lane is not None and self.lane.loaded:
            wait_s = self._between_runs(self.lane)
            if wait_s is None:
                break
            with contextlib.suppress(queue.Empty):
                return self.requests.get(timeout=wait_s)
        return self.requests.get()

    def _between_runs(self, lane: AnyLane) -> float | None:
        try:
            return lane.between_runs()
        except DeviceLost:
            self._end_lost()
        except Exception:
            log.exception("what lane %s does between runs failed; it goes on without", lane.name)
            if self._device_lost():
                self._end_lost()
        return None

    def emit(self, event: Event) -> None:
        """Write one event of the work."""
        self.steps += 1
        write(event)

    def _should_stop(self, run_id: str) -> Callable[[], bool]:
        def should_stop() -> bool:
            self.steps += 1
            return run_id in self.stopped

        return should_stop

    def _read(self) -> None:
        """Take requests until the input closes; whatever ends this, the process ends: one that hears nothing would stay for ever."""
        try:
            for line in _IN:
                message = json.loads(line)
                if message["do"] == "exit":
                    break
                self._take(message)
        except Exception:
            log.exception("a request could not be read; this process ends")
        os._exit(0)

    def _take(self, message: dict[str, Any]) -> None:
        if message["do"] == "stop":
            self.stopped.add(message["run_id"])
        elif message["do"] == "ping":
            write(Alive(self.steps))
        elif message["do"] == "hold":
            self.held = message["devices"]
            if self.lane:
                self.lane.hold(self.held)
        else:
            self.requests.put(message)

    def _load(self) -> None:
        """Load the lane if it isn't loaded; a failure is told as the load's, and everybody who waits for it gets it."""
        lane = self.lane
        if lane is None or lane.loaded:
            return
        try:
            lane.load(self.emit)
            lane.hold(self.held)
            self.emit(lane.now())
        except DeviceLost:
            raise
        except InferenceError as error:
            log.warning("lane %s could not load: %s", lane.name, error, exc_info=error.__cause__ is not None)
            self.emit(Failed(None, str(error), isinstance(error, Refused)))
        except Exception as error:
            log.exception("lane %s could not load", lane.name)
            if self._device_lost():
                raise DeviceLost("The GPU stopped working in the load.") from error
            self.emit(Failed(None, f"The model could not be loaded ({first_line(error)}); the log has the trace. Check MODEL_ID, then ask again."))

    def _generate(self, run_id: str, request: Request) -> None:
        lane = self.lane
        assert lane is not None
        if not lane.loaded:
            try:
                lane.source.read(self.emit)
            except InferenceError as error:
                log.warning("lane %s could not read its checkpoint: %s", lane.name, error, exc_info=error.__cause__ is not None)
                self.emit(Failed(None, str(error), isinstance(error, Refused)))
                return
            lane.source.encode(request)  # a prompt that is too long is refused before the weights are read
            self._load()
            if not lane.loaded:
                return
        with memory_told(self.hello.device, *IN_A_RUN):
            for event in lane.generate(run_id, request, self._should_stop(run_id)):
                if isinstance(event, Done):
                    self._end_if_written_over()
                self.emit(event)

    def _score(self, run_id: str, request: ScoreRequest) -> None:
        from inference.lane.scoring import score

        self._load()
        if (lane := self.lane) is not None and lane.loaded:
            with memory_told(self.hello.device, "while scoring", "Score a shorter text; the lane is still usable."):
                scored = score(lane.model, lane.source, lane.name, run_id, request, self._should_stop(run_id))
            self._end_if_written_over()
            self.emit(scored)

    def _device_lost(self) -> bool:
        from inference.lane.paths import device_lost

        return device_lost()

    def _end_if_written_over(self) -> None:
        """End this process if the files that its weights lie in were: it would answer by a mixture, and a fresh one reads what is there."""
        origin = getattr(self.lane.model, "loaded_from", None) if self.lane else None
        if origin and (file := files.written_over(origin.mapped)):
            log.error("%s was written over while it was loaded; this process ends", file)
            os._exit(errors.WRITTEN_OVER_CODE)

    def _end_lost(self) -> NoReturn:
        """End this process: its CUDA context is past use, and the engine starts a fresh one."""
        log.error("the CUDA context is lost; this process ends", exc_info=True)
        os._exit(DEVICE_LOST_CODE)


def start_lane(name: str, settings: Settings) -> tuple[Any, Hello]:
    """Set the threads, import the heavy libraries, find the device; (None, hello) where the lane can't run."""
    fetch = fetching.begin(settings.model_for(name), settings)
    began = time.perf_counter()
    threads = machine.lane_threads(settings)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if name.startswith("cpu:"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # so that nothing in this process makes a context on the card
        if settings.fast:
            build.begin(settings.cache_path() / "kernels", settings.cpu_isa)
    import torch

    from inference.lane.lane import Lane
    from inference.lane.probe import hello_of

    torch.set_num_threads(threads)
    hello = hello_of(name)
    if not hello.available:
        fetch.cancel()
        return None, hello
    lane = Lane(hello.lane, settings, time.perf_counter() - began)
    lane.source.fetch = fetch
    return lane, hello


def serve(lane: str, start: Starter = start_lane) -> None:
    """Run a lane until the input closes."""
    child.be_killed_with_parent()
    settings = from_env()
    child.log_to_stderr(settings.quiet)
    cache.take_torch_files(settings)
    Worker(lane, settings, start).run()


if __name__ == "__main__":
    serve(sys.argv[1])
