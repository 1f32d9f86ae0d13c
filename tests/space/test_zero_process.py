"""The ZeroGPU lane where its decorator is a no-op, and what becomes of each way in which the platform can fail a run."""

import threading
from contextvars import ContextVar
from dataclasses import replace

import pytest

from inference.engine.compare import answer, compare
from inference.engine.engine import Engine
from inference.engine.process import start_worker
from inference.errors import InferenceError
from inference.events import Done, Failed, Hello, Loaded, LoadFigures, Loading, Prefill, Request, Text, encode
from inference.fast import ENDED
from inference.host.child import environment
from inference.settings import Settings
from inference.space import zero
from inference.space.forked import ForkedLane
from inference.space.job import Job, duration_s
from inference.space.zero import ZeroProcess, ZeroStarter
from inference.timing import Timings
from tests.support.fake_lane import facts
from tests.support.real import answer as ordinary
from tests.support.real import loaded_lane
from tests.support.tiny import make_checkpoint
from tests.support.until import until

HELLO = Hello("cuda:nf4", "cuda", {}, {})
DONE = Done("", "length", "ab", (1, 2), 3, Timings())


class Placed:
    """A lane that was put on the card; what a worker would say is the test's."""

    def __init__(self):
        self.number, self.stops = 0, []

    def now(self):
        return Loaded(facts("cuda:nf4"), LoadFigures(1.0))

    def next_number(self):
        self.number += 1
        return self.number

    def stop(self, number):
        self.stops.append(number)


class PlatformError(Exception):
    """As `spaces` raises them: gr.Error with a title and a message."""

    def __init__(self, title, message):
        super().__init__(message)
        self.title, self.message = title, message


@pytest.fixture
def run(monkeypatch):
    """Answers a prompt on a lane whose calls give `events` and then raise `error`: all that the engine was told."""

    def run(events, error=None, times=1, seconds=30, jobs=None):
        def lent(job):
            (jobs if jobs is not None else []).append(job)
            yield from (encode(event) for event in events)
            if error:
                raise error

        monkeypatch.setattr(zero, "lent", lent)
        monkeypatch.setattr(zero, "duration_s", lambda job: seconds)
        told, process = [], ZeroProcess("cuda:nf4", Placed(), HELLO, None)
        process.watch(told.append, lambda code: None)
        for number in range(times):
            process.send(do="generate", run_id=f"r{number}", request={"prompt": "hi"})
            until(lambda number=number: sum(isinstance(event, Done | Failed) for event in told) > number)
        process.close()
        return told

    return run


ABORTED = PlatformError("ZeroGPU worker error", "GPU task aborted")
BEGUN = [Prefill("r0", (1, 2), "chat", 0.0, "eager"), Text("r0", "a", 1, 0.1)]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ABORTED, "ZeroGPU ended this run's worker before the answer was complete"),
        (PlatformError("ZeroGPU worker error", "RuntimeError"), "The ZeroGPU worker failed (RuntimeError)"),
        (PlatformError("ZeroGPU quota exceeded", "You have exceeded your quota. Try again in 1:00:00"), "ZeroGPU quota exceeded: You have exceeded your quota. Try again in 1:00:00."),
        (PlatformError("ZeroGPU illegal duration", "The requested GPU duration (266s) is larger than the maximum allowed"), "maximum allowed. The time follows from the prompt and the token limit: ask for fewer"),
        (PlatformError("ZeroGPU queue timeout", 'No GPU was available after 60s. <a href="x">Create a free account</a> now.'), "after 60s. Create a free account now."),
        (RuntimeError("ZeroGPU API /schedule error: 500"), "could not be asked for a card (RuntimeError: ZeroGPU API /schedule error: 500)"),
    ],
)  # fmt: skip
def test_what_the_platform_raises_is_a_sentence_of_the_run(run, error, words):
    failed = run(BEGUN, error)[-1]
    assert isinstance(failed, Failed) and failed.run_id == "r0" and words in failed.message and "<" not in failed.message


def test_a_worker_that_is_gone_after_its_time_is_told_as_that(run):
    assert "longer than the 0 s" in run(BEGUN, ABORTED, seconds=0)[-1].message


def test_an_error_after_the_end_of_a_run_is_not_its_own(run):
    assert isinstance(run([*BEGUN, DONE], ABORTED)[-1], Done)


def test_a_run_waits_for_a_card_as_for_a_load(run):
    assert run([*BEGUN, DONE])[:3] == [HELLO, Placed().now(), zero.ASKING]


def test_our_own_kernels_are_left_out_once_two_workers_in_a_row_ended_in_them(run):
    trying = [Loading("making ready", trying="cuda-graph")]
    for events, allowed in ((trying, [True, True, False]), ([Loading("warming up")], [True] * 3)):
        jobs = []
        run(events, ABORTED, times=3, jobs=jobs)
        assert [job.fast for job in jobs] == allowed


def test_a_worker_that_was_ended_for_its_time_says_nothing_of_our_kernels(run):
    jobs = []
    run([Loading("making ready", trying="cuda-graph")], ABORTED, times=3, seconds=0, jobs=jobs)
    assert all(job.fast for job in jobs)


def test_a_job_is_done_in_the_context_of_who_asked(monkeypatch):
    visitor, seen, both = ContextVar("visitor"), [], threading.Event()

    def lent(job):
        seen.append(visitor.get(None))
        assert both.wait(10)
        yield encode(replace(DONE, run_id=job.run_id))

    monkeypatch.setattr(zero, "lent", lent)
    with Engine(Settings(lanes=("cuda:nf4",)), lambda key, settings: ZeroProcess(key, Placed(), HELLO, None)) as engine:
        for name in ("first", "second"):
            visitor.set(name)
            engine.submit(Request("hi"))
        both.set()
        until(lambda: len(seen) == 2)
    assert seen == ["first", "second"], "the second begins in the thread that ends the first"


def test_a_stop_before_the_answer_begins_closes_the_iterator(monkeypatch):
    closed, told = threading.Event(), []

    def lent(job):
        try:
            while True:
                yield encode(Loading("warming up"))
        finally:
            closed.set()

    monkeypatch.setattr(zero, "lent", lent)
    lane = Placed()
    process = ZeroProcess("cuda:nf4", lane, HELLO, None)
    process.watch(told.append, lambda code: None)
    process.send(do="generate", run_id="r0", request={"prompt": "hi"})
    until(lambda: len(told) > 5)
    process.send(do="stop", run_id="r0")
    assert closed.wait(10) and lane.stops == [1]
    until(lambda: isinstance(told[-1], Done))
    assert told[-1].finish_reason == "stopped"


def test_one_that_is_given_up_says_so_at_once_and_closes_its_iterator_when_it_can(monkeypatch):
    go, closed, codes = threading.Event(), threading.Event(), []

    def lent(job):
        try:
            assert go.wait(10)  # a long prompt
            yield encode(BEGUN[0])
            yield encode(BEGUN[1])
        finally:
            closed.set()

    monkeypatch.setattr(zero, "lent", lent)
    process = ZeroProcess("cuda:nf4", Placed(), HELLO, None)
    process.watch(lambda event: None, codes.append)
    process.send(do="generate", run_id="r0", request={"prompt": "hi"})
    process.kill()
    until(lambda: codes == [-9])
    assert not closed.is_set()
    go.set()
    assert closed.wait(10)


def test_a_lane_that_could_not_be_placed_tells_everybody_who_waits(monkeypatch):
    failed = Failed(None, "There is no such model. Check MODEL_ID.")
    with Engine(Settings(lanes=("cuda:nf4",)), lambda key, settings: ZeroProcess(key, None, HELLO, failed)) as engine:
        for _ in range(2):
            with pytest.raises(InferenceError, match="no such model"):
                answer(engine, "cuda:nf4", Request("hi"))


# ---- the lane itself, in this process


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(make_checkpoint(tmp_path_factory.mktemp("tiny") / "gemma"))


@pytest.fixture
def placed(folder, monkeypatch):
    """A lane as on ZeroGPU, on the CPU: placed, and answering where it was placed."""
    lane = ForkedLane("cpu:nf4", Settings(model_id=folder, fast=()))
    lane.place(lambda _: None)
    monkeypatch.setitem(zero._lanes, "cpu:nf4", lane)
    return lane


def test_its_record_is_that_of_any_lane_and_its_answer_the_ordinary_lane_s(placed, folder):
    settings = Settings(model_id=folder, lanes=("cpu:nf4", "cpu:fp32"), fast=())

    def starter(key, settings):
        return ZeroProcess(key, placed, Hello(key, "cpu", {}, {}), None) if key == "cpu:nf4" else start_worker(key, settings)

    with Engine(settings, starter) as engine:
        record = compare(engine, Request("hello good morning", max_new_tokens=12))
    lane, run = record.lanes["cpu:nf4"], record.lanes["cpu:nf4"].runs[0]
    assert run.error is None and run.path == "eager" and lane.median.decode_tps and "warm-up" in lane.load.spans
    assert list(run.token_ids) == list(ordinary(loaded_lane("cpu:nf4", folder), Request("hello good morning", max_new_tokens=12)).token_ids)
    assert record.lanes["cpu:fp32"].runs[0].error is None


def test_a_stop_mark_ends_its_job_and_those_before_but_none_after(placed):
    jobs = [Job("cpu:nf4", f"r{n}", placed.next_number(), "generate", {"prompt": "hello", "max_new_tokens": 5}) for n in range(3)]
    placed.stop(jobs[1].number)
    reasons = ['"finish_reason": "stopped"' in list(placed.serve(job))[-1] for job in jobs]
    assert reasons == [True, True, False]


def test_without_our_kernels_the_record_says_why(folder):
    lane = ForkedLane("cpu:nf4", Settings(model_id=folder))
    lane.place(lambda _: None)
    list(lane.serve(Job("cpu:nf4", "r", lane.next_number(), "generate", {"prompt": "hello", "max_new_tokens": 2}, fast=False)))
    assert lane.now().facts.fast_why_not["cuda-graph"] == ENDED


def test_a_bad_job_is_the_run_s_fault_and_the_next_is_answered(placed):
    bad = list(placed.serve(Job("cpu:nf4", "r", placed.next_number(), "generate", {"prompt": "hello " * 2000, "max_new_tokens": 5})))[-1]
    good = list(placed.serve(Job("cpu:nf4", "r", placed.next_number(), "generate", {"prompt": "hello", "max_new_tokens": 2})))[-1]
    assert '"event": "failed"' in bad and '"event": "done"' in good


def test_another_model_is_refused_by_the_gpu_lane_alone(monkeypatch):
    starter = ZeroStarter(Settings(model_id="first", lanes=("auto:nf4", "cpu:fp32")))
    starter._placed["auto:nf4"] = (Placed(), HELLO, None)
    told = []
    process = starter("auto:nf4", Settings(model_id="second"))
    process.watch(told.append, lambda code: None)
    process.send(do="load")
    until(lambda: len(told) == 2)
    assert told[1].refused and "Set MODEL_ID to second and restart the Space" in told[1].message


def test_longer_answers_and_prompts_ask_for_more_time():
    def asked(**request):
        return duration_s(Job("cuda:nf4", "r", 1, "generate", {"prompt": "hi", "max_new_tokens": 50} | request))

    assert 20 < asked() < 30 and asked(max_new_tokens=500) > asked() + 20 and asked(prompt="x" * 20_000) > asked() + 5


def test_no_child_has_the_card_or_knows_of_the_platform(monkeypatch):
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    found = environment()
    assert found["CUDA_VISIBLE_DEVICES"] == "" and "SPACES_ZERO_GPU" not in found
    monkeypatch.setenv("SPACES_ZERO_GPU", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "CUDA_VISIBLE_DEVICES" not in environment()


@pytest.mark.parametrize(("lane", "takes"), [("auto:nf4", True), ("cuda:bf16", True), ("cpu:fp32", False), ("cpu:nf4", False), ("endpoint:vllm", False)])
def test_a_lane_on_the_cpu_and_a_server_elsewhere_take_no_card(lane, takes):
    assert zero.takes_card(lane) == takes
