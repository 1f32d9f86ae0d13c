"""A comparison from beginning to end: submit, read every lane's events at once, return the record.

What the page does in two branches, done in one call for the command line and the endpoint.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from dataclasses import replace

from inference.engine.engine import Engine
from inference.engine.runs import Comparison, Run
from inference.errors import InferenceError
from inference.events import Done, Loading, Request
from inference.progress import Progress
from inference.record.build import build_record
from inference.record.model import Record
from inference.record.scores import NoQuality, Quality
from inference.status import LaneStatus

LOOK_S = 0.05
MOST_SETTLE_S = 300.0
OnProgress = Callable[[str, Progress], None]
Runs = dict[str, Progress]  # finished runs by configured lane name
Score = Callable[[Engine, Runs, bool], Quality | NoQuality | None]


def compare(
    engine: Engine, request: Request, lanes: tuple[str, ...] = (), mode: str = "auto", repeats: int = 1,
    on_progress: OnProgress | None = None, quality: Score | None = None, stop: threading.Event | None = None,
    keep: Callable[[Record], None] = lambda _: None,
) -> Record:  # fmt: skip
    """The record of `request` on `lanes` (all of the engine's where none is named).

    With more than one repeat warm-up comparisons go before and are not counted. Raises InferenceError for a bad
    request; a lane that fails is told in its own part of the record. `quality` sees the last runs and
    gives the record's part of that name (`quality.answers.scored_or_why_not`). `stop`, once set, ends the runs at their
    next token; the record then holds what there is. `keep` is given what there is by now, after each repeat.
    The model stays the same from the first warm-up to the last score.
    """
    outcomes: dict[str, list[Progress]] = {}
    known: dict[str, LaneStatus] = {}
    used = mode
    with engine.hold_model():
        if repeats > 1:
            warm_up(engine, request, lanes, mode, on_progress, stop)
        for _ in range(repeats):
            if stop and stop.is_set():
                break
            comparison = engine.submit(request, lanes, mode)
            results = read_all(engine, comparison, on_progress, stop)
            used = comparison.mode
            for key, progress in results.items():
                outcomes.setdefault(key, []).append(progress)
            keep(build_record(_status(engine, known), request, used, outcomes))
        record = build_record(_status(engine, known), request, used, outcomes)
        if quality and all(outcomes.values()):
            last = {key: runs[-1] for key, runs in outcomes.items()}
            return replace(record, quality=quality(engine, last, not request.temperature))
        return record


def _status(engine: Engine, known: dict[str, LaneStatus]) -> list[LaneStatus]:
    """All lanes as they are now; what a lane was whose process has died since stands in `known`, for the runs that it answered."""
    found = [
        replace(lane, facts=known[lane.key].facts, load=known[lane.key].load) if lane.facts is None and lane.key in known else lane for lane in engine.status()
    ]
    known.update({lane.key: lane for lane in found if lane.facts})
    return found


def warm_up(
    engine: Engine, request: Request, lanes: tuple[str, ...] = (), mode: str = "auto",
    on_progress: OnProgress | None = None, stop: threading.Event | None = None,
) -> None:  # fmt: skip
    """Comparisons that are not counted, until each lane answers by its fastest path; raises InferenceError.

    A lane whose run failed is warmed up no further: the run that counts tells why, and one that dies in each would never be done.
    """
    failed: set[str] = set()
    settle(engine, (), on_progress, stop)
    while not (stop and stop.is_set()):
        results = read_all(engine, engine.submit(request, lanes, mode), on_progress, stop)
        failed |= {key for key, progress in results.items() if progress.error}
        rest = [lane for lane in engine.status() if lane.key not in failed]
        if all(lane.settled for lane in rest) or not settle(engine, tuple(lane.key for lane in rest), on_progress, stop):
            return


def settle(engine: Engine, lanes: tuple[str, ...] = (), on_progress: OnProgress | None = None, stop: threading.Event | None = None) -> bool:
    """Wait while one of `lanes` (any where none is named) loads.

    False where that took longer than `MOST_SETTLE_S`, or `stop` was set.
    """
    began = time.perf_counter()
    while not (stop and stop.is_set()) and time.perf_counter() - began < MOST_SETTLE_S:
        waiting = [lane for lane in engine.status() if not lane.settled and (lane.key in lanes or not lanes)]
        if not waiting:
            return True
        for lane in waiting:
            if on_progress:
                on_progress(lane.key, Progress(began, "loading", loading=lane.progress or Loading("starting")))
        time.sleep(LOOK_S)
    return False


def names(engine: Engine) -> dict[str, str]:
    """Each lane's configured name, and the one its process gives: never auto:nf4 once that is up."""
    return {status.key: status.name for status in engine.status()}


def answer(engine: Engine, lane: str, request: Request) -> Done:
    """One lane's answer to `request`; raises InferenceError with its sentence when it fails."""
    comparison = engine.submit(request, (lane,))
    progress = read_all(engine, comparison)[lane]
    if progress.done is None:
        raise InferenceError(f"{names(engine)[lane]}: {progress.error}")
    return progress.done


def read_all(engine: Engine, comparison: Comparison, on_progress: OnProgress | None = None, stop: threading.Event | None = None) -> Runs:
    """Each lane's progress at its end, by configured lane name; all lanes are read at once, `stop` ends their runs."""
    results: Runs = {}

    def read(key: str, run: Run) -> None:
        for progress in follow(engine, run):
            results[key] = progress
            if on_progress:
                on_progress(key, progress)

    threads = [threading.Thread(target=read, args=item, daemon=True) for item in comparison.runs.items()]
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if stop and stop.is_set():
                _stop_all(engine, comparison)
            for thread in threads:
                thread.join(LOOK_S)
    except BaseException:
        _stop_all(engine, comparison)
        raise
    return results


def _stop_all(engine: Engine, comparison: Comparison) -> None:
    for run in comparison.runs.values():
        engine.stop(run.id)


def follow(engine: Engine, run: Run) -> Generator[Progress, None, None]:
    """The run's progress after each event and at each tick; closing the iterator stops the run."""
    progress = Progress(since=time.perf_counter())
    events = engine.events(run)
    try:
        for event in events:
            progress = progress.apply(event, time.perf_counter())
            yield progress
    finally:
        events.close()
