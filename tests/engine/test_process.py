"""A lane's process: requests that nobody reads, events that can't be taken, and the watch over it all."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading

import psutil
import pytest

from inference.engine import process as lane_process
from inference.engine.process import LaneProcess, why_it_died
from inference.engine.watch import Watch
from tests.support.fakes import Stage
from tests.support.until import until

LONG = "x" * 200_000  # what a prompt may have; a pipe takes 65,536 bytes
DEAF = "import time; time.sleep(60)"
ECHO = "import sys\nfor line in sys.stdin: print(len(line), file=open(sys.argv[1], 'a'), flush=True)"
SAYS_LOADING = 'print(\'{"event": "loading", "stage": "x"}\', flush=True); import time; time.sleep(60)'


@pytest.fixture
def start():
    started = []

    def start_one(code: str, *arguments: str, on_event=lambda event: None) -> tuple[LaneProcess, list[int]]:
        process, codes = LaneProcess([sys.executable, "-c", code, *arguments], dict(os.environ)), []
        process.watch(on_event, codes.append)
        started.append(process)
        return process, codes

    yield start_one
    for process in started:
        process.close(0)


def test_a_child_that_does_not_read_holds_nobody_up_and_can_be_ended(start):
    process, codes = start(DEAF)
    sender = threading.Thread(target=lambda: [process.send(do="generate", prompt=LONG) for _ in range(20)], daemon=True)
    sender.start()
    sender.join(10)
    assert not sender.is_alive()
    process.close(0.05)
    until(lambda: codes == [-signal.SIGKILL], what="the child's end")


def test_requests_arrive_whole_and_in_order_once_a_stopped_child_goes_on(start, tmp_path):
    process, codes = start(ECHO, str(tmp_path / "lengths"))
    os.kill(process.pid, signal.SIGSTOP)
    for n in range(5):
        process.send(prompt=LONG[: 100_000 + n])
    os.kill(process.pid, signal.SIGCONT)
    process.close(10)
    lengths = [int(line) for line in (tmp_path / "lengths").read_text().split()]
    assert [length - lengths[0] for length in lengths] == list(range(5)) and lengths[0] > 100_000
    until(lambda: codes == [0], what="an ordinary end")


def test_a_child_that_ends_by_itself_leaves_no_thread_and_no_open_pipe(start):
    start("pass")[0].close()
    threads, handles = set(threading.enumerate()), psutil.Process().num_fds()
    for _ in range(3):
        process, codes = start(DEAF)
        os.kill(process.pid, signal.SIGKILL)
        until(lambda codes=codes: codes == [-signal.SIGKILL], what="the child's end")
    until(lambda: set(threading.enumerate()) <= threads and psutil.Process().num_fds() <= handles, what="its threads and pipes gone")


def test_a_child_whose_event_cannot_be_taken_is_ended_and_its_end_is_told(start):
    def fail(event) -> None:
        raise KeyError("bug")

    _, codes = start(SAYS_LOADING, on_event=fail)
    until(lambda: codes == [-signal.SIGKILL], what="the child's end")


def test_a_child_that_closes_its_output_and_goes_on_is_ended(start, monkeypatch):
    monkeypatch.setattr("inference.engine.process.ENDING_S", 0.05)
    _, codes = start("import os, time; os.close(1); time.sleep(60)")
    until(lambda: codes == [-signal.SIGKILL], what="the child's end")


def test_a_look_that_fails_ends_neither_the_other_looks_nor_the_next():
    seen = []

    def fail() -> None:
        seen.append("failed")
        raise KeyError("bug")

    watch = Watch(fail, lambda: seen.append("looked"))
    watch.look(), watch.look()
    assert seen == ["failed", "looked"] * 2


def test_an_engine_that_closes_while_runs_are_read_and_stopped_ends_them_all():
    stage = Stage()
    runs = [run for _ in range(100) for run in stage.ask(mode="together").runs.values()]
    ends: list[object] = []
    readers = [threading.Thread(target=lambda run=run: ends.append(list(stage.engine.events(run))[-1]), daemon=True) for run in runs]
    for reader in readers:
        reader.start()
    for run in runs[:50]:
        stage.engine.stop(run.id)
    stage.engine.close()
    for reader in readers:
        reader.join(10)
    assert len(ends) == len(runs)


def test_a_limit_of_processor_time_is_told_beside_what_else_it_may_have_been(monkeypatch):
    """Where each process may have so many seconds (a login node, `ulimit -t`) the system kills it, and that was told as a want of memory alone."""
    monkeypatch.setattr(lane_process.resource, "getrlimit", lambda _: (600, 600))
    assert "as the system does when memory runs out or a process has had its 600 s of processor time (ulimit -t). " in why_it_died(-signal.SIGKILL)
    assert "used up the processor time that it may have (600 s, ulimit -t). The text so far is kept; raise that limit" in why_it_died(-signal.SIGXCPU)
    monkeypatch.setattr(lane_process.resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert "as the system does when memory runs out. " in why_it_died(-signal.SIGKILL)


def test_a_process_that_has_used_its_time_ends_so(start):
    _, codes = start("import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 10))\nwhile True: pass")
    until(lambda: codes == [-signal.SIGXCPU], 30, what="the child's end")
