"""Faults put into real lanes, phase by phase: `python tests/load/faults.py [PHASE-KIND ...]` (`make faults`), minutes, not in CI.

Each: what the card said, how long until the lane had answered the next prompt, whether the other lane answered meanwhile; FAILED where it
did not, or where a process stayed. The patience is set short (LANE_PATIENCE), so that what waits for it is seen in seconds. Without names
every kind is tried in each phase where it can be.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from inference.engine.compare import follow  # noqa: E402
from inference.engine.engine import Engine  # noqa: E402
from inference.engine.process import LaneProcess, start_worker  # noqa: E402
from inference.engine.runs import Run  # noqa: E402
from inference.events import Failed, Request  # noqa: E402
from inference.host import child  # noqa: E402
from inference.progress import Progress  # noqa: E402
from inference.score_events import ScoreRequest  # noqa: E402
from inference.settings import Settings  # noqa: E402
from tests.support.tiny import make_checkpoint  # noqa: E402
from ui.comparison import render  # noqa: E402

LANES = ("cpu:nf4", "cpu:fp32")
PATIENCE_S = 45  # longer than any step of a load takes here
MOST_S = 300.0
PHASES = ("import", "fetch", "read", "warm-up", "fast-path", "prefill", "decode", "score", "rest")
IN_ANY = ("freeze", "loop", "hold", "kill", "crash", "exit", "noise", "close", "memory")
ONLY_IN = {
    "card": ("read", "warm-up", "fast-path", "prefill", "decode", "score"),  # nothing is on a card before or after
    "nan": ("prefill", "decode"),  # in a load it is the checkpoint's fault and ends that
    "clock": ("import", "decode", "rest"),
    "disk": ("import",),  # the only time at which a lane on the CPU writes much: its C library is built
    "damage": ("rest",),  # once all is there
}
TRIED = [(phase, kind) for phase in PHASES for kind in (*IN_ANY, *ONLY_IN) if phase in ONLY_IN.get(kind, PHASES)]


@dataclass
class Seen:
    """What the cards said from the fault on, in order, each once."""

    words: list[str]
    struck: Path | None = None
    end: str = ""

    def look(self, line: render.Line) -> None:
        if not (self.struck and self.struck.exists()):
            return
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


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk of 4 MiB there, which takes a mount."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)], capture_output=True, text=True)
    assert not done.returncode, f"no disk can be mounted here ({done.stderr.strip()})"
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def one(phase: str, kind: str, model: str) -> str:
    """One fault; its line of the table. Raises AssertionError."""
    assert phase in ONLY_IN.get(kind, PHASES), "it can't happen there"
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        if kind not in ("disk", "damage"):
            return tried(phase, kind, model, Path(folder), "")
        cache = Path(folder) / "cache"
        cache.mkdir()
        with small_disk(cache) if kind == "disk" else contextlib.nullcontext():
            return tried(phase, kind, model, Path(folder), str(cache))


def tried(phase: str, kind: str, model: str, folder: Path, cache: str) -> str:
    """The same with a folder for what is noted, and a cache of its own where one is named."""
    file = folder / "struck"
    settings = Settings(model_id=model, lanes=LANES, lane_patience_s=PATIENCE_S, cache_dir=cache, quiet=True)
    with Engine(settings, starter(f"{phase} {kind}", file)) as engine:
        began, seen = time.perf_counter(), Seen([], file)
        other = [""]
        aside = threading.Thread(target=lambda: other.__setitem__(0, answered(engine, LANES[1])))
        aside.start()
        if phase in ("score", "rest"):
            answered(engine, LANES[0], seen)
        if phase == "score":
            score(engine, seen)
        answered(engine, LANES[0], seen) if phase not in ("score", "rest") else None
        assert file.exists(), "nothing went wrong"
        struck_s, ended_with = float(file.read_text()), seen.end
        tries = 0
        while (end := answered(engine, LANES[0])) != "done":
            tries += 1
            assert time.perf_counter() - began < MOST_S and tries < 6, end
        again_s = time.monotonic() - struck_s
        aside.join(MOST_S)
        assert other == ["done"], f"the other lane: {other}"
        pids = list(engine.pids().values())
    assert not any(psutil.pid_exists(pid) for pid in pids)
    return f"| {phase} | {kind} | {' / '.join(word for word in seen.words if 'life' in word or 'Nothing' in word)} | {ended_with} | {again_s:.1f} s | {tries} |"


def main(wanted: list[str]) -> None:
    chosen = [(phase, kind) for phase, _, kind in (word.rpartition(":") for word in wanted)] or TRIED
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
