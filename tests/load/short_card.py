"""A card that another program fills, phase by phase: `python tests/load/short_card.py [LANE:PHASE ...]`, by hand, where there is a card.

Each: how the run ended that met it, whether the CPU lane answered meanwhile, how long after the card was free again the next prompt was
answered, and whether its words are those from before; FAILED where one was not, or a process stayed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from inference.engine.compare import follow  # noqa: E402
from inference.engine.engine import Engine  # noqa: E402
from inference.events import Failed, Request  # noqa: E402
from inference.progress import Progress  # noqa: E402
from inference.score_events import ScoreRequest  # noqa: E402
from inference.settings import Settings  # noqa: E402

LANES, CPU = ("cuda:nf4", "cuda:bf16"), "cpu:fp32"
MODEL = "shape:qwen3-1.7b"
# in a load the card is filled as soon as the lane says that it does this; at "before" it is full before the lane begins
LOADING = ("before", "import", "weights", "warming")
PHASES = (*LOADING, "prefill", "decode", "score")
SHORT, LONG = Request("hello good morning may i see the menu", max_new_tokens=24), Request("ok i want two chicken biryani " * 300, max_new_tokens=24)
LEFT_BYTES = 32 * 2**20
MOST_S, TRIES = 120.0, 6


class Hog:
    """Another program that holds all of the card but so many bytes."""

    PROGRAM = """
import sys, torch
held = []
free = lambda: torch.cuda.mem_get_info()[0]
for line in sys.stdin:
    left, piece = int(line), 2**33
    while held and free() < left:
        held.pop()
    while piece >= 2**21:
        try:
            while free() - left > piece:
                held.append(torch.empty(piece, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            pass
        piece //= 2
    print(free(), flush=True)
"""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        )
        self.leave(2**50)

    def leave(self, left: int) -> int:
        """Hold all but `left` bytes; how many are free then."""
        self.process.stdin.write(f"{left}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def answered(engine: Engine, lane: str, request: Request = SHORT, look: Callable[[Progress], object] = lambda _: None) -> Progress:
    """One prompt on one lane, to its end; `look` sees it come."""
    progress = Progress(time.perf_counter())
    for progress in follow(engine, engine.submit(request, (lane,), "together").runs[lane]):
        look(progress)
    return progress


def scored(engine: Engine, lane: str) -> str:
    run = engine.submit(ScoreRequest(tuple(range(20, 520)), 1, 500), (lane,)).runs[lane]
    end = [event for event in engine.events(run) if event is not None][-1]
    return end.message if isinstance(end, Failed) else "done"


def meets(engine: Engine, lane: str, phase: str, hog: Hog) -> str:
    """How the run ended that met a full card in `phase`."""
    filled = threading.Event()

    def fill(now: bool) -> None:
        if now and not filled.is_set():
            filled.set()
            hog.leave(LEFT_BYTES)

    if phase in LOADING:
        fill(phase == "before")
        progress = answered(engine, lane, SHORT, lambda seen: fill(seen.loading is not None and phase in seen.loading.stage))
    elif phase == "score":
        fill(True)
        return scored(engine, lane)
    else:
        fill(phase == "prefill")
        progress = answered(engine, lane, LONG, lambda seen: fill(phase == "decode" and seen.n > 1))
    assert filled.is_set(), "it was never there"
    return progress.error or progress.phase


def one(lane: str, phase: str, hog: Hog) -> str:
    """One line of the table. Raises AssertionError."""
    hog.leave(2**50)
    with Engine(Settings(model_id=MODEL, lanes=(lane, CPU), quiet=True)) as engine:
        other = [Progress(0.0)]
        aside = threading.Thread(target=lambda: other.__setitem__(0, answered(engine, CPU)))
        aside.start()
        before = answered(engine, lane).text if phase not in LOADING else None
        ended_with = meets(engine, lane, phase, hog)
        aside.join(MOST_S)
        assert other[0].phase == "done", f"the other lane: {other[0]}"
        free, began, tries = hog.leave(2**50), time.perf_counter(), 0
        while (again := answered(engine, lane)).phase != "done":
            tries += 1
            assert time.perf_counter() - began < MOST_S and tries < TRIES, again.error
        again_s = time.perf_counter() - began
        assert before in (None, again.text), f"{before!r} became {again.text!r}"
        pids = list(engine.pids().values())
    assert not any(psutil.pid_exists(pid) for pid in pids)
    return f"| {lane} | {phase} | {ended_with} | {again_s:.1f} s | {tries} | {again.path} | {free / 2**30:.1f} GiB |"


def main(wanted: list[str]) -> None:
    chosen = [(lane, phase) for lane, _, phase in (word.rpartition(":") for word in wanted)] or [(lane, phase) for lane in LANES for phase in PHASES]
    hog = Hog()
    print("| lane | full in | the run ended with | next answer | prompts lost after it | its way | free then |\n|---|---|---|---|---|---|---|")
    try:
        for lane, phase in chosen:
            try:
                print(one(lane, phase, hog), flush=True)
            except AssertionError as error:
                print(f"| {lane} | {phase} | FAILED: {error} |", flush=True)
    finally:
        hog.end()


if __name__ == "__main__":
    main(sys.argv[1:])
