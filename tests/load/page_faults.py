"""The page killed, and ended by Ctrl+C, while a real lane is in each phase: `python tests/load/page_faults.py [PHASE ...]` (`make faults`), minutes.

Each: how the page ended and what it said last, how long until no process of it was left, how long a page that was then started over the same
cache took to its first answer; FAILED where a process, a trace or a temporary folder stayed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.client import HTTPException
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.load.faults import LANES, PHASES  # noqa: E402
from tests.support.tiny import make_checkpoint  # noqa: E402
from tests.support.until import until  # noqa: E402

PROGRAM = """
import sys
from pathlib import Path
import app
from tests.load.faults import starter
sys.exit(app.main([], starter(sys.argv[1] + " loop", Path(sys.argv[2]))))
"""
WAYS = {"killed": signal.SIGKILL, "Ctrl+C": signal.SIGINT}
ASKED_FOR = {"prefill": "compare", "decode": "compare", "score": "quality"}  # what brings a lane there; it comes to the others by itself
MOST_S = 200.0


class Page:
    """One page over real lanes, the first of which stands in `phase`, unless one before it has; its processes are known by `mark`."""

    def __init__(self, phase: str, mark: Path, model: str, cache: Path) -> None:
        self.began, self.mark = time.monotonic(), mark
        settings = {"MODEL_ID": model, "LANES": ",".join(LANES), "CACHE_DIR": str(cache), "LANE_PATIENCE": "600"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, phase, str(mark)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **settings, "FAULT_FILE": str(mark), "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url = f"{self.process.stdout.readline().split()[1]}gradio_api/call/"

    def ask(self, what: str) -> str:
        """Begin a call; where its answer is to be heard."""
        body = json.dumps({"data": ["hello"]}).encode()
        request = urllib.request.Request(self.url + what, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=MOST_S) as answer:
            return f"{self.url}{what}/{json.load(answer)['event_id']}"

    def answered(self, what: str = "compare") -> bool:
        """Whether a call is answered, or its page ends before."""
        with contextlib.suppress(OSError, HTTPException), urllib.request.urlopen(self.ask(what), timeout=MOST_S) as events:
            return b"event: complete" in events.read()
        return False

    def ended_by(self, number: int) -> tuple[int, list[str], float]:
        """Its exit code, the lines of its log and the seconds until no process of it was left."""
        began = time.monotonic()
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=30)
        until(lambda: not left(self.mark), 30, "no process left")
        return self.process.returncode, said.splitlines(), time.monotonic() - began

    def close(self) -> None:
        """Leave no page behind, however that went."""
        self.process.kill()
        self.process.wait()


def left(mark: Path) -> list[psutil.Process]:
    """The processes that a page with this mark has left."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("FAULT_FILE") == str(mark) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def one(phase: str, way: str, model: str, cache: Path) -> str:
    """One end of a page; its line of the table. Raises AssertionError."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        mark = Path(folder) / "struck"
        with contextlib.closing(Page(phase, mark, model, cache)) as page:
            if phase in ASKED_FOR:  # and heard: a run that nobody listens to is ended
                threading.Thread(target=page.answered, args=(ASKED_FOR[phase],), daemon=True).start()
            until(mark.exists, MOST_S, f"a lane in its {phase}")
            code, said, gone_s = page.ended_by(WAYS[way])
            assert not any("Traceback" in line for line in said), said
            assert code == (-signal.SIGKILL if way == "killed" else 0), code
        with contextlib.closing(Page(phase, mark, model, cache)) as after:
            assert after.answered(), "no answer"
            again_s = time.monotonic() - after.began
            after.ended_by(signal.SIGINT)
        stays = [str(path) for path in cache.rglob(".new-*")]
        assert not stays, stays
        return f"| {phase} | page {way} | exit code {code} | no process left after {gone_s:.1f} s | {again_s:.1f} s |"


def main(wanted: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = str(make_checkpoint(Path(folder) / "tiny"))
        print("| phase | fault | it ended with | processes | a page started anew had answered after |\n|---|---|---|---|---|")
        for phase in wanted or PHASES:
            for way in WAYS:
                try:
                    print(one(phase, way, model, Path(folder) / "cache"), flush=True)
                except AssertionError as error:
                    print(f"| {phase} | page {way} | FAILED: {error} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
