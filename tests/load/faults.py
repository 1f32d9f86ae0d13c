"""Faults put into real lanes, phase by phase: `python tests/load/faults.py [PHASE-KIND ...]` (`make faults`), minutes, not in CI.

Each: what the card said, how long until the lane had answered the next prompt, whether the other lane answered meanwhile; an AssertionError where it
did not, or where a process stayed. The patience is set short (LANE_PATIENCE), so that what waits for it is seen in seconds.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from inference import child  # noqa: E402
from inference.engine.compare import follow  # noqa: E402
from inference.engine.engine import Engine  # noqa: E402
from inference.engine.process import LaneProcess, start_worker  # noqa: E402
from inference.engine.runs import Run  # noqa: E402
from inference.events import Failed, Request  # noqa: E402
from inference.progress import Progress  # noqa: E402
from inference.score_events import ScoreRequest  # noqa: E402
from inference.settings import Settings  # noqa: E402
from tests.support.tiny import make_checkpoint  # noqa: E402
from ui.comparison import render  # noqa: E402

LANES = ("cpu:nf4", "cpu:fp32")
PATIENCE_S = 45  # longer than any step of a load takes here
MOST_S = 300.0
PHASES = ("import", "fetch", "read", "warm-up", "fast-path", "prefill", "decode", "score", "rest")
KINDS = ("freeze", "loop", "hold", "kill", "crash", "exit", "noise", "close", "memory")


@dataclass
class Seen:
    """What the cards said while the fault lasted, in order, each once."""

    words: list[str]
    end: str = ""

    def look(self, line: render.Line) -> None:
        said = line.sentence.rstrip() or line.words
        if said.split(" for ")[0] not in [word.split(" for ")[0] for word in self.words]:
            self.words.append(said)


def starter(fault: str, file: Path):
    """The first lane's processes have the fault, once; the other's are whole."""

    def start(lane: str, settings: Settings) -> LaneProcess:
        if lane != LANES[0]:
            return start_worker(lane, settings)
        environment = child.environment(**settings.to_env(), FAULT=fault, FAULT_FILE=str(file), PYTHONUNBUFFERED="1")
        return LaneProcess([sys.executable, str(Path(__file__).with_name("faulty_worker.py")), lane], environment)

    return start


def follow_to_end(engine: Engine, run: Run, seen: Seen) -> None:
    progress = Progress(time.perf_counter())
    for progress in follow(engine, run):
        status = next(status for status in engine.status() if status.key == run.lane.key)
        seen.look(render.run_line(progress, status, time.perf_counter(), 50))
    seen.end = progress.error or progress.phase


def answered(engine: Engine, lane: str, seen: Seen | None = None) -> str:
    """How one prompt on one lane ended: "done", or why not."""
    seen = seen or Seen([])
    follow_to_end(engine, engine.submit(Request("hello", max_new_tokens=12), (lane,), "together").runs[lane], seen)
    return seen.end


def score(engine: Engine, seen: Seen) -> None:
    run = engine.submit(ScoreRequest(tuple(range(20, 40)), 1, 20), (LANES[0],)).runs[LANES[0]]
    end = [event for event in engine.events(run) if event is not None][-1]
    seen.end = end.message if isinstance(end, Failed) else "done"


def one(phase: str, kind: str, model: str) -> str:
    """One fault; its line of the table."""
    file = Path(tempfile.mkdtemp(prefix="faults-")) / "struck"
    settings = Settings(model_id=model, lanes=LANES, lane_patience_s=PATIENCE_S)
    with Engine(settings, starter(f"{phase} {kind}", file)) as engine:
        began, seen = time.perf_counter(), Seen([])
        other = [""]
        aside = threading.Thread(target=lambda: other.__setitem__(0, answered(engine, LANES[1])))
        aside.start()
        if phase in ("score", "rest"):
            answered(engine, LANES[0], seen)
        if phase == "score":
            score(engine, seen)
        answered(engine, LANES[0], seen) if phase not in ("score", "rest") else None
        struck_s, ended_with = file.stat().st_mtime if file.exists() else None, seen.end
        assert struck_s, f"{phase} {kind}: nothing went wrong"
        tries = 0
        while (end := answered(engine, LANES[0])) != "done":
            tries += 1
            assert time.perf_counter() - began < MOST_S and tries < 6, f"{phase} {kind}: {end}"
        again_s = time.time() - struck_s
        aside.join(MOST_S)
        assert other == ["done"], f"{phase} {kind}: the other lane: {other}"
        pids = list(engine.pids().values())
    assert not any(psutil.pid_exists(pid) for pid in pids)
    return f"| {phase} | {kind} | {' / '.join(word for word in seen.words if 'life' in word or 'Nothing' in word)} | {ended_with} | {again_s:.1f} s | {tries} |"


def main(wanted: list[str]) -> None:
    os.environ.setdefault("LANE_QUIET", "1")
    chosen = [tuple(word.rsplit(":", 1)) for word in wanted] or [(phase, kind) for phase in PHASES for kind in KINDS]
    with tempfile.TemporaryDirectory() as folder:
        model = str(make_checkpoint(Path(folder) / "tiny"))
        print("| phase | fault | the card said | the run ended with | next answer after | prompts lost after it |\n|---|---|---|---|---|---|")
        for phase, kind in chosen:
            try:
                print(one(phase, kind, model), flush=True)
            except AssertionError as error:
                print(f"| {phase} | {kind} | FAILED: {error} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
