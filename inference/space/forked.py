"""A lane whose weights are put on the card in one process and computed with in others, forked from it: ZeroGPU's way.

`place` is for the page's process, on its main thread and before the page opens; it computes nothing on the card. `serve` is for a forked worker,
which may have answered before or be new, and may be ended at any moment: what is made ready there is made once a worker. Jobs and events cross as
plain values. Knows no platform: where `serve` runs in the process that placed the weights, it works as well.
"""

from __future__ import annotations

import itertools
import logging
import mmap
import os
import time
from collections.abc import Iterator
from typing import NoReturn

import torch

from inference.cuda import prefetch
from inference.errors import DEVICE_LOST_CODE, UNEXPECTED, DeviceLost, InferenceError, Refused
from inference.events import Event, Failed, Loaded, LoadFigures, Loading, Report, ScoreRequest, encode, request_of
from inference.fast import ENDED, WAYS, first_line
from inference.host.machine import RamWatch
from inference.lane import vram
from inference.lane.lane import Lane, Spans
from inference.lane.paths import GRAPH, device_lost
from inference.lane.scoring import score
from inference.lanes import LaneName
from inference.models import loading
from inference.settings import Settings
from inference.space.job import Job

log = logging.getLogger(__name__)
NO_RAM = "on ZeroGPU this lane works in processes that share their memory with the page's"
NO_ENERGY = "on ZeroGPU the card is lent for a run, and its counter is not this page's alone"
LOST = "The GPU reported an error after which nothing in that worker could answer. The text so far is kept; a new worker answers the next prompt."
MARK_BYTES = 8


class ForkedLane(Lane):
    """One lane in the page's process and in its workers."""

    def __init__(self, name: str, settings: Settings) -> None:
        super().__init__(name, settings)
        self.ram = _NoRam()
        self._placed_in, self._ready_in = os.getpid(), 0
        self._numbers = itertools.count(1)
        self._stop_mark = mmap.mmap(-1, MARK_BYTES)  # shared with every worker, which is forked later

    def place(self, report: Report) -> Loaded:
        """Read the weights, quantize them on the CPU, put them on the device; raises InferenceError (Refused where they can't fit)."""
        spans: dict[str, float] = {}
        clock = Spans(spans, "cpu")
        self.source.read(report)
        spans |= self.source.spans
        clock.skip()
        report(Loading("reading weights"))
        self.model = self.source.load_sound(lambda found: loading.load(found, self.name, report, self.ways, on_host=True), report)
        clock.end("quantize" if LaneName.parse(self.name).four_bit else "read")
        self.model.to(self.device)  # by its name: ZeroGPU takes no index
        self.facts = self._described(self.model)
        self.facts.unmeasured.update(ram=NO_RAM, energy=NO_ENERGY)
        self._kernel = self.facts.kernel
        clock.end("values")
        if self.ways.may(GRAPH):
            report(Loading("compiling the kernels"))
            prefetch.ahead(self.source.config, torch.device(self.device), 4 if LaneName.parse(self.name).four_bit else 16)
            clock.end("compile")
        self._figures = LoadFigures(sum(spans.values()), spans)
        return self.now()

    # ---- a stop, which only shared memory takes into a worker that is at work

    def next_number(self) -> int:
        """The number of the next job: larger than those of all before."""
        return next(self._numbers)

    def stop(self, number: int) -> None:
        """End the job of that number, and those before it, at its next token."""
        self._stop_mark[:] = number.to_bytes(MARK_BYTES, "little")

    def _stopped(self, number: int) -> bool:
        return number <= int.from_bytes(self._stop_mark[:], "little")

    # ---- in a worker

    def serve(self, job: Job) -> Iterator[str]:
        """The events of a job, each a line of JSON, the last of them its end."""
        try:
            for event in self._events(job):
                yield encode(event)
        except DeviceLost:
            log.error("the CUDA context is lost", exc_info=True)
            yield encode(Failed(job.run_id, LOST))
            self._end_worker()
        except InferenceError as error:
            log.warning("%s", error, exc_info=error.__cause__ is not None)
            yield encode(Failed(job.run_id, str(error), isinstance(error, Refused)))
        except Exception as error:  # the other lane goes on, and this one's next run
            log.exception("lane %s failed", self.name)
            yield encode(Failed(job.run_id, UNEXPECTED.format(first_line(error))))
            if device_lost():
                self._end_worker()

    def _events(self, job: Job) -> Iterator[Event]:
        if self._ready_in != os.getpid():
            yield from self._make_ready_here(job)
        request = request_of(job.verb, job.request)
        if isinstance(request, ScoreRequest):
            yield score(self.model, self.source, self.name, job.run_id, request, lambda: self._stopped(job.number))
        else:
            yield from self.generate(job.run_id, request, lambda: self._stopped(job.number))

    def _make_ready_here(self, job: Job) -> Iterator[Loading | Loaded]:
        """Prove the model, warm it up, capture its graphs: nothing of these outlives a worker."""
        assert self.model is not None and self.facts is not None
        torch.set_num_threads(1)  # OpenMP's threads don't survive a fork, and the cores are the CPU lane's
        if not job.fast:
            self.ways.refuse(GRAPH, ENDED)
        yield Loading("warming up")
        spans = dict(self._figures.spans)
        clock = Spans(spans, self.device)
        vram.begin(self.device)
        self._try(self.model)
        self._warm_up(self.paths.take(self.model))
        clock.end("warm-up")
        if self.ways.may(GRAPH):
            yield Loading(f"making ready: {WAYS[GRAPH].words}", trying=GRAPH)
        self._make_fast(self.model, self.facts, lambda _: None)
        clock.end("fast path")
        self._figures = LoadFigures(sum(spans.values()), spans, peak_vram=vram.held(self.device, self.paths.positions))
        self._ready_in, self._last_run = os.getpid(), time.perf_counter()
        yield self.now()

    def _end_worker(self) -> NoReturn | None:
        """End this worker, whose CUDA context is past use, so that none is reused; the page's own process never."""
        if os.getpid() != self._placed_in:
            os._exit(DEVICE_LOST_CODE)
        return None


class _NoRam(RamWatch):
    """Of a process that shares its memory with the page's no figure would be the lane's."""

    def peak(self) -> None:
        """Not known."""
        return

    def uss(self) -> None:
        """Not known."""
        return
