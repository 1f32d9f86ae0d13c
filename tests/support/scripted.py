"""A lane process that plays scripted delays on a fake clock, so that every figure is known and no test sleeps.

Load 3 s; another visitor's run of 5 s in front (the queue); first token 2 s after the start, 30 tokens evenly to 4.9 s,
handed over in 3 chunks. Each event is taken by the engine before the clock moves on.
"""

from __future__ import annotations

import queue
import threading

from inference.engine.engine import Engine
from inference.events import Done, Hello, Loaded, LoadFigures, Prefill, Ram, Request, Text
from inference.settings import Settings
from inference.timing import Stopwatch
from tests.support.fake_lane import facts
from tests.support.fakes import FakeClock, FakeProcess

LANE = "cpu:fp32"
PROMPT_IDS = tuple(range(40))
SPANS = {"import": 1.0, "read": 1.5, "warm-up": 0.5}
EXPECTED = {
    "load_wait_s": 3.0, "queue_s": 5.0, "turn_wait_s": 0.0, "ttft_s": 2.0, "total_s": 4.9, "tpot_s": 0.1, "decode_tps": 10.0, "prefill_tps": 20.0,
}  # fmt: skip
RAM = Ram(50 * 2**20, 60 * 2**20)


class ScriptedProcess(FakeProcess):
    """Answers by itself in a thread of its own; waits with its first load until somebody waits behind the first run."""

    def __init__(self, lane: str, clock: FakeClock, ready: threading.Event) -> None:
        super().__init__(lane, clock)
        self._ready, self._messages, self._loaded = ready, queue.Queue(), False

    def watch(self, on_event, on_exit) -> None:
        super().watch(on_event, on_exit)
        threading.Thread(target=self._serve, daemon=True).start()

    def send(self, **message) -> None:
        super().send(**message)
        if message["do"] == "generate":
            self._messages.put(message)

    def _serve(self) -> None:
        self.hello_with_hardware()
        while True:
            message = self._messages.get()
            assert self._ready.wait(10), "nobody came to wait"
            if not self._loaded:
                self._pass(3.0)
                self.emit(Loaded(facts(self.lane), LoadFigures(sum(SPANS.values()), dict(SPANS), peak_ram_bytes=RAM.rss_peak)))
                self._loaded = True
            self._answer(message["run_id"], visitor=message["request"]["prompt"] == "other visitor")

    def hello_with_hardware(self) -> None:
        self.emit(Hello(self.lane, "cpu", {"python": "3.11.7", "torch": "2.13.0"}, {"cpu": "Fake processor", "ram_limit_bytes": 2**34}))

    def _pass(self, seconds: float) -> None:
        self.clock.now += seconds

    def _answer(self, run_id: str, visitor: bool) -> None:
        watch = Stopwatch(self.clock)
        self.emit(Prefill(run_id, PROMPT_IDS, "chat", watch.start()))
        self._pass(5.0 if visitor else 2.0)
        watch.token()
        for n in range(2, 31) if not visitor else ():
            self._pass(0.1)
            watch.token()
            if n % 10 == 0:
                self.emit(Text(run_id, "word " * 10, n, watch.stamps[-1] - watch.t_start))
        n = len(watch.stamps)
        done = Done(run_id, "length", "word " * n, tuple(range(100, 100 + n)), len(PROMPT_IDS), watch.timings(len(PROMPT_IDS)), t_start=watch.t_start, ram=RAM)
        self.emit(Done(**{**done.__dict__, "path": "eager", "warm": not visitor}))


class ScriptedEngine(Engine):
    """An engine on one scripted lane, with another visitor's run accepted first, at the same moment."""

    def __init__(self, settings: Settings | None = None) -> None:
        clock, self.somebody_waits = FakeClock(), threading.Event()
        super().__init__(Settings(lanes=(LANE,)), lambda lane, _: ScriptedProcess(lane, clock, self.somebody_waits), clock)

    def start(self) -> None:
        super().start()
        self.submit(Request("other visitor"))

    def submit(self, request: Request, *arguments, **more):
        comparison = super().submit(request, *arguments, **more)
        if request.prompt != "other visitor":
            self.somebody_waits.set()
        return comparison
