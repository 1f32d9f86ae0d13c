"""A lane's process in the bench that answers another way than ours: the same prompt, files and stamps, a `Way` in the place of our paths.

In: requests. Out: the events of `lane/lane.py`, each answer in one piece. Knows not how the way works.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from inference.decode.decoder import ShouldStop
from inference.events import Done, LaneFacts, Loaded, LoadFigures, Prefill, Ram, Report, Request, Text
from inference.host.machine import RamWatch
from inference.lane import vram
from inference.lane.source import Source
from inference.settings import Settings
from inference.timing import Stopwatch


@dataclass(frozen=True)
class Answer:
    """A whole answer, why it ended (stop or length), and its ids."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str


class Way(Protocol):
    """Another way of answering; `path` is what it is called."""

    path: str
    model: Any  # the transformers model, None where there is none to score with

    def load(self, source: Source, report: Report) -> tuple[LaneFacts, float]:
        """Load the source's checkpoint: what it is then, and the seconds that reading it took; raises InferenceError."""
        ...

    def answer(self, source: Source, request: Request, prompt_ids: list[int], watch: Stopwatch) -> Answer:
        """The greedy answer; `watch.token()` is called as each id reaches the host. The watch is started already."""
        ...


class BaselineLane:
    """One lane, answered by a way."""

    def __init__(self, name: str, settings: Settings, way: Way, import_s: float) -> None:
        self.name, self.way = name, way
        self.device = name.split(":")[0]
        self.source = Source(name, settings)
        self.ram = RamWatch()
        self._import_s, self._runs = import_s, 0
        self._loaded: Loaded | None = None

    @property
    def model(self) -> Any:
        """The model behind the way, None where there is none."""
        return self.way.model

    @property
    def loaded(self) -> bool:
        """Whether the model is there."""
        return self._loaded is not None

    def load(self, report: Report) -> Loaded:
        """Load as the way does; total only, with its warm-up run left to the caller."""
        self.source.read(report)
        facts, read_s = self.way.load(self.source, report)
        spans = {"import": self._import_s, "read": read_s}
        figures = LoadFigures(sum(spans.values()), spans, peak_ram_bytes=self.ram.peak(), peak_vram=vram.held(self.device))
        self._loaded = Loaded(self.source.complete(facts, self.model), figures)
        return self._loaded

    def now(self) -> Loaded:
        """The loaded lane as it is."""
        assert self._loaded is not None
        return self._loaded

    def hold(self, devices: Collection[str]) -> None:
        """Nothing of ours goes on beside a baseline."""

    def between_runs(self) -> float | None:
        """Nothing is done while nothing is asked."""
        return None

    def generate(self, run_id: str, request: Request, should_stop: ShouldStop) -> Iterator[Prefill | Text | Done]:
        """The whole answer at once, with the stamps that the way took."""
        prompt_ids, used, ordinary = self.source.encode(request)
        yield Prefill(run_id, tuple(prompt_ids), used, time.perf_counter(), self.way.path, ordinary)
        watch = Stopwatch()
        vram.synchronize(self.device)
        t_start = watch.start()
        found = self.way.answer(self.source, request, prompt_ids, watch)
        self._runs += 1
        yield Text(run_id, found.text, len(found.token_ids), watch.stamps[-1] - t_start)
        yield Done(
            run_id, found.finish_reason, found.text, found.token_ids, len(prompt_ids), watch.timings(len(prompt_ids)), t_start=t_start,
            vram=vram.held(self.device), ram=Ram(self.ram.peak(), self.ram.uss()), path=self.way.path, warm=self._runs > 1,
        )  # fmt: skip
