"""What a command says while it runs, on stderr: one line drawn in place on a terminal, a few lines on a pipe.

In: where lanes are. Out: words, never more of them than the terminal is wide; nothing of it goes to stdout. Whole sentences and
tables stay, all else is drawn over.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from inference import terminal
from inference.events import Loading
from inference.lanes import DEVICES, LaneName, short_word
from inference.progress import Progress
from inference.units import count, seconds, size

Names = Callable[[], Mapping[str, str]]  # configured lane names -> those that the lanes' processes give by now
CLEAR = "\r\033[K"
BAR = 24
REDRAW_S = 0.1
QUIET_S = 10.0  # on a pipe, until the same thing is said again with other numbers
PHASES = {
    "waiting": "waiting", "queued": "waiting in line", "turn": "waiting for its turn", "loading": "loading", "prefill": "reading the prompt",
    "decode": "writing", "done": "done", "stopped": "stopped", "failed": "failed",
}  # fmt: skip


def phase_words(progress: Progress) -> str:
    """What a lane is at: "reading weights, 3 of 5", "waiting for its turn", "writing, 12 tokens"."""
    if progress.phase == "loading" and progress.loading:
        return _loading_words(progress.loading)
    words = PHASES.get(progress.phase, progress.phase)
    return f"{words}, {count(progress.n)}" if progress.phase == "decode" and progress.n else words


def _loading_words(loading: Loading) -> str:
    if not loading.total:
        return loading.stage
    if loading.unit in ("B", "bytes"):
        return f"{loading.stage}, {size(loading.done)} of {size(loading.total)}"
    return f"{loading.stage}, {loading.done:g} of {loading.total:g}"


def lane_words(names: Mapping[str, str]) -> dict[str, str]:
    """Each lane in as few words as tell it from the others: "4-bit", "FP32"; with its device where two are of one precision."""
    lanes = {key: LaneName.parse(name) for key, name in names.items()}
    often = Counter(lane.precision for lane in lanes.values())
    return {
        key: lane.server or short_word(lane.precision) + (f" {DEVICES.get(lane.device, '')}" if often[lane.precision] > 1 else "")
        for key, lane in lanes.items()
    }


class Line:
    """The one line that is drawn again and again on a terminal (`live`)."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()
        self._lock = threading.Lock()  # each lane is told by its own thread
        self._over = False
        self._said: dict[str, float] = {}

    def put(self, words: str) -> None:
        """Draw `words` in its place, cut to the terminal; on a pipe, below what was said before."""
        shown = terminal.printable(words)
        self._write(f"{CLEAR}{terminal.cut(shown, terminal.width(sys.stderr) - 1)}" if self.live else f"{shown}\n")

    def say(self, words: str) -> None:
        """`put`, but a sentence or a table stays, and on a pipe the same words with other numbers wait for `QUIET_S`."""
        if words.endswith(".") or "\n" in words:
            self._write((CLEAR if self.live else "") + f"{terminal.printable(words)}\n")
            return
        kind, now = re.sub(r"\d+", "", words), time.monotonic()
        if self.live or now - self._said.get(kind, -QUIET_S) >= QUIET_S:
            self._said[kind] = now
            self.put(words)

    def close(self) -> None:
        """Leave an empty line behind and say no more: a lane that is ended then is no failure."""
        if self.live:
            self._write(CLEAR)
        self._over = True

    def _write(self, text: str) -> None:
        with self._lock:
            if self._over:
                return
            try:
                print(text, end="", file=sys.stderr, flush=True)
            except OSError:  # nobody reads it, or its disk is full; the result may still have a reader
                terminal.delivered()


class StatusLine(Line):
    """Where each lane is; on a pipe, a line whenever a lane enters a phase."""

    def __init__(self, names: Names) -> None:
        super().__init__()
        self._names = names
        self._lanes: dict[str, Progress] = {}
        self._drawn = 0.0

    def show(self, lane: str, progress: Progress) -> None:
        """Take over a lane's progress."""
        before = self._lanes.get(lane)
        self._lanes[lane] = progress
        entered = before is None or before.phase != progress.phase
        if not self.live and entered:
            self.put(f"{lane_words(self._names())[lane]}: {PHASES.get(progress.phase, progress.phase)}")
        elif self.live and (entered or time.monotonic() - self._drawn > REDRAW_S):
            self._drawn = time.monotonic()
            words = lane_words(self._names())
            self.put(" | ".join(f"{words[key]}: {phase_words(each)}" for key, each in list(self._lanes.items())))


class Bar(Line):
    """How far a series of `total` prompts has come; on a pipe, a line every ten prompts."""

    def __init__(self, total: int, names: Names) -> None:
        super().__init__()
        self._names = names
        self._total, self._done, self._lanes = total, 0, ""
        self._began, self._drawn = time.monotonic(), 0.0

    def lane(self, lane: str, progress: Progress) -> None:
        """What a lane does at the moment."""
        if not self.live and not self._lanes:
            self.put(f"Warming up for {count(self._total, 'prompt')}")
        self._lanes = f"  {lane_words(self._names())[lane]}: {phase_words(progress)}"
        if self.live and time.monotonic() - self._drawn > REDRAW_S:
            self._draw()

    def done(self, count: int) -> None:
        """`count` prompts are done."""
        self._done = count
        if self.live or count % 10 == 0 or count == self._total:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        full = BAR * self._done // self._total
        spent = self._drawn - self._began
        left = f", about {seconds(spent / self._done * (self._total - self._done))} left" if 0 < self._done < self._total else ""
        words = f"[{'#' * full}{'.' * (BAR - full)}] {self._done} of {count(self._total, 'prompt')}, {seconds(spent)}{left}"
        self.put(words + self._lanes if self.live else words)
