"""A lane's process says that it lives, whatever it is at, and how far its work has come."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest

from inference.events import encode
from inference.host.child import ROOT, environment
from inference.life_events import Alive

PROGRAM = """
import time
from types import SimpleNamespace
from inference.lane import worker
from inference.events import Hello, Prefill

def generate(run_id, request, should_stop):
    yield Prefill(run_id, (1, 2), "chat", 0.0)
    while True:
        if WHERE == "layers":
            should_stop()
        time.sleep(0.001)

def start(name, settings):
    while WHERE == "import":
        pass
    return lane, Hello(name, "cpu", {}, {})

source = SimpleNamespace(read=lambda _: None, encode=lambda _: None)
lane = SimpleNamespace(
    name="cpu:fp32", source=source, model=None, loaded=True, generate=generate, hold=lambda _: None, between_runs=lambda: None
)
worker.serve("cpu:fp32", start)
"""


def steps_of(where: str, waits_for: str) -> list[int]:
    """What two pings of a worker give that is at work in `where`, the second some milliseconds after the first."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", f"WHERE = {where!r}\n{PROGRAM}"], cwd=ROOT, env=environment(), text=True, **pipes) as process:

        def ask(**message) -> None:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()

        def answer(kind: str) -> dict:
            event = next(event for line in process.stdout if (event := json.loads(line))["event"] in (kind, "failed"))
            assert event["event"] == kind, event
            return event

        ask(do="generate", run_id="r", request={"prompt": "hi"})
        answer(waits_for)
        steps = []
        for _ in range(2):
            threading.Event().wait(0.05)
            ask(do="ping")
            steps.append(answer("alive")["steps"])
        process.stdin.close()
        process.wait(10)
    return steps


def test_each_layer_of_a_prompt_is_a_step():
    first, second = steps_of("layers", "prefill")
    assert 0 < first < second


@pytest.mark.parametrize(("where", "waits_for"), [("a loop", "prefill"), ("import", "loading")])
def test_work_that_stands_gives_the_same_steps_again(where, waits_for):
    first, second = steps_of(where, waits_for)
    assert first == second


def test_the_answer_crosses_the_pipe():
    assert json.loads(encode(Alive(7))) == {"event": "alive", "steps": 7}
