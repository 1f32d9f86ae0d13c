"""What the clients of one lane see is what a queue of one server gives: to the microsecond on a fake clock, within 5 % on a real model."""

from __future__ import annotations

import threading
import zlib

import pytest

from inference.engine.engine import Engine
from inference.events import Done, Loaded, LoadFigures, Prefill, Request, Text
from inference.load import clients
from inference.load.level import ANSWERED, Level
from inference.load.plan import Plan, usual_prompts
from inference.settings import Settings
from inference.timing import Stopwatch
from tests.support.fake_lane import facts
from tests.support.fakes import FakeClock
from tests.support.queue_simulation import simulate
from tests.support.scripted import ScriptedProcess
from tests.support.tiny import make_checkpoint
from tests.support.until import until

LANE, CLIENTS, ROUNDS = "cpu:fp32", 8, 3


def services_of(level: Level) -> list[tuple[float, float]]:
    """The lane's own times of each answer, in the order in which it gave them."""
    runs = sorted((each.done for each in level.seen), key=lambda done: done.t_start)
    return [(done.timings.token_times_s[0], done.timings.token_times_s[-1]) for done in runs]


def flat(level: Level) -> dict[str, float]:
    found = level.as_json()
    spreads = {f"{name} {each}": found[name][each] for name in ("first_token_s", "total_s") for each in ("p50", "p95", "max")}
    return {name: value for name, value in spreads.items() if value is not None} | {"answers_per_min": found["answers_per_min"]}


class QueueProcess(ScriptedProcess):
    """Answers on a fake clock, each prompt with delays of its own; begins no answer before every client that can be there has come."""

    def __init__(self, lane, clock, submitted) -> None:
        super().__init__(lane, clock, threading.Event())
        self._submitted, self._answered = submitted, -1

    def _serve(self) -> None:
        self.hello()
        while True:
            message = self._messages.get()
            if self._answered < 0:
                self.clock.now += 30.0  # a load that no figure may have in it
                self.emit(Loaded(facts(self.lane), LoadFigures(30.0)))
            else:
                come = CLIENTS + min(self._answered, CLIENTS * (ROUNDS - 1))
                until(lambda come=come: self._submitted() >= 1 + come, 10, "clients")  # 1: the warm-up
            self._answer(message["run_id"], message["request"]["prompt"])
            self._answered += 1

    def _answer(self, run_id: str, prompt: str) -> None:
        watch = Stopwatch(self.clock)
        self.emit(Prefill(run_id, (1, 2), "chat", watch.start()))
        seed = zlib.crc32(prompt.encode())
        for delay in (0.5 + seed % 7 / 4, 0.1 + seed % 11 / 2, 0.2):
            self.clock.now += delay
            watch.token()
        self.emit(Text(run_id, "some words", 3, watch.stamps[-1] - watch.t_start))
        self.emit(Done(run_id, "stop", "some words", (5, 6, 7), 2, watch.timings(2), t_start=watch.t_start))


@pytest.fixture
def fake_clock(monkeypatch):
    """Every engine of the clients is on a fake clock, its lane a `QueueProcess`."""

    class CountingEngine(Engine):
        asked = 0

        def __init__(self, settings) -> None:
            clock = FakeClock()
            super().__init__(settings, lambda lane, _: QueueProcess(lane, clock, lambda: self.asked), clock)

        def submit(self, *arguments, **more):
            found = super().submit(*arguments, **more)
            self.asked += 1
            return found

    monkeypatch.setattr(clients, "Engine", CountingEngine)


def plan(*levels: int, rounds: int = ROUNDS, tokens: int = 40) -> Plan:
    return Plan(levels, rounds, usual_prompts(sum(levels) * rounds), Request("x", max_new_tokens=tokens))


def test_eight_clients_see_what_a_simulated_queue_gives_and_the_load_is_in_no_figure(fake_clock):
    (level,) = clients.lane_under_load(Settings(lanes=(LANE,)), plan(CLIENTS), lambda _: None).levels
    services = services_of(level)
    assert len(services) == CLIENTS * ROUNDS and len({total for _, total in services}) > 10, "delays that differ"
    assert flat(level) == pytest.approx(simulate(services, CLIENTS, ROUNDS), rel=1e-9)


def test_no_two_clients_are_ever_at_the_same_prompt_and_no_prompt_of_ours_comes_again():
    asks = plan(2, CLIENTS)
    questions = [asks.question(n, client, number).prompt for n in (2, CLIENTS) for number in range(ROUNDS) for client in range(n)]
    assert len(set(questions)) == len(questions) and not asks.repeats_prompts
    few = Plan((3,), 4, ("a", "b", "c", "d"), Request("x"))
    own = [{few.question(3, client, number).prompt for number in range(4)} for client in range(3)]
    assert few.repeats_prompts and not own[0] & own[1] and not own[0] & own[2] and not own[1] & own[2]


def test_eight_clients_of_a_real_model_see_what_a_simulated_queue_gives(tmp_path):
    folder = make_checkpoint(tmp_path / "tiny", "llama")
    asks = plan(CLIENTS, rounds=2, tokens=120)
    for _ in range(3):  # the gaps between two answers are the machine's, which may be busy with others
        found = clients.lane_under_load(Settings(str(folder), lanes=(LANE,), fast=(), cache_dir=str(tmp_path)), asks, lambda _: None)
        (level,) = found.levels
        assert len(level.of(ANSWERED)) == CLIENTS * 2 and found.model_id == str(folder)
        seen, expected = flat(level), simulate(services_of(level), CLIENTS, 2)
        expected = {name: expected[name] for name in seen}
        if seen == pytest.approx(expected, rel=0.05):
            return
    assert seen == pytest.approx(expected, rel=0.25), "however busy the machine is, no other line and no wait counted twice"
