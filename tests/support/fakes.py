"""Lane processes without a process: a test sees what the engine sends and says what the lane answers."""

from __future__ import annotations

from inference.engine.engine import Engine
from inference.events import Done, Event, Hello, Loaded, LoadFigures, Prefill, Request, Text
from inference.life_events import Alive
from inference.settings import Settings
from inference.timing import Timings
from tests.support.fake_lane import facts


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeProcess:
    """Stands in for LaneProcess; `sent` is what the engine wrote."""

    def __init__(self, lane: str, clock: FakeClock) -> None:
        self.lane, self.clock = lane.replace("auto", "cpu"), clock
        self.pid, self.sent, self.killed, self.closed = 0, [], False, False
        self.lives, self.steps, self.pings = True, None, 0  # `steps`: how far its work has come; None: further each time it is asked

    def watch(self, on_event, on_exit) -> None:
        self._on_event, self.exit = on_event, on_exit

    def send(self, **message) -> None:
        if message["do"] == "ping":
            self.pings += 1
            if self.lives:
                self.emit(Alive(self.pings if self.steps is None else self.steps))
            return
        self.sent.append(message)

    def kill(self) -> None:
        self.killed = True

    def close(self, timeout_s: float = 2.0) -> None:
        self.closed = True

    # what the lane says

    def emit(self, event: Event) -> None:
        self._on_event(event)

    def hello(self, available: bool = True, reason: str | None = None) -> None:
        self.emit(Hello(self.lane, self.lane.split(":")[0], {}, {}, reason, available))

    def loaded(self) -> None:
        self.emit(Loaded(facts(self.lane), LoadFigures(1.0)))

    def ready(self) -> None:
        self.hello()
        self.loaded()

    @property
    def asked(self) -> list[str]:
        """Run ids the engine asked this lane to answer."""
        return [message["run_id"] for message in self.sent if message["do"] == "generate"]

    def begin(self, prompt_ids=(1, 2, 3), path: str | None = None) -> str:
        run_id = self.asked[-1]
        self.emit(Prefill(run_id, tuple(prompt_ids), "chat", self.clock(), path))
        return run_id

    def finish(self, text: str = "hello", reason: str = "stop") -> None:
        run_id = self.asked[-1]
        self.emit(Text(run_id, text, 1, 0.1))
        self.emit(Done(run_id, reason, text, (5,), 3, Timings(0.1, 30.0, None, None, 0.1, (0.1,)), t_start=self.clock()))


class Stage:
    """An engine on fake processes and a fake clock; `lanes[key]` is the newest process of a lane, `started_with` its settings, `no_start` what starting one raises."""

    def __init__(self, settings: Settings | tuple[str, ...] = ("auto:nf4", "cpu:fp32")) -> None:
        self.clock, self.lanes, self.starts, self.no_start = FakeClock(), {}, [], None
        self.engine = Engine(settings if isinstance(settings, Settings) else Settings(lanes=settings), self._start, self.clock)
        self.engine.start()

    def _start(self, lane: str, settings: Settings) -> FakeProcess:
        if self.no_start:
            raise self.no_start
        self.starts.append(lane)
        self.started_with = settings
        self.lanes[lane] = FakeProcess(lane, self.clock)
        return self.lanes[lane]

    def ask(self, mode: str = "auto", **request):
        return self.engine.submit(Request(**{"prompt": "hi", **request}), mode=mode)

    def drain(self, run) -> list:
        """Everything in a run's inbox."""
        events = []
        while (event := run.inbox.get(0)) is not None:
            events.append(event)
        return events

    def state(self, key: str) -> str:
        return next(lane.state for lane in self.engine.status() if lane.key == key)


def runs(comparison):
    """A comparison's run on the 4-bit lane, then that on the FP32 lane."""
    return comparison.runs["auto:nf4"], comparison.runs["cpu:fp32"]


def last(stage: Stage, run):
    """The last event of a run that has ended."""
    return stage.drain(run)[-1]
