"""What a command says while it runs, on stderr: drawn in place on a terminal, a line now and then on a pipe.

In: where lanes are. Out: words; nothing of it goes to stdout.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

from inference.progress import Progress
from inference.units import seconds

Names = Callable[[], Mapping[str, str]]  # configured lane names -> those that the lanes' processes give by now
BAR = 24
REDRAW_S = 0.1


class Line:
    """The one line that is drawn again and again on a terminal (`live`)."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()

    def put(self, words: str) -> None:
        """Draw `words` in its place; on a pipe, below what was said before."""
        print(f"\r\033[K{words}" if self.live else words, end="" if self.live else "\n", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave an empty line behind."""
        if self.live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


class StatusLine(Line):
    """Where each lane is; on a pipe, a line whenever a phase changes."""

    def __init__(self, names: Names) -> None:
        super().__init__()
        self._names = names
        self._states: dict[str, str] = {}

    def show(self, lane: str, progress: Progress) -> None:
        """Take over a lane's progress."""
        words = progress.phase
        if self.live and progress.phase == "decode":
            words = f"decode {progress.n}"
        elif progress.loading and progress.phase == "loading":
            words = f"loading: {progress.loading.stage}"
        if self._states.get(lane) != words:
            self._states[lane] = words
            names = self._names()
            self.put(" | ".join(f"{names[key]} {state}" for key, state in list(self._states.items())))  # each lane is told by its own thread


class Bar(Line):
    """How far a series of `total` prompts has come; on a pipe, a line every ten prompts."""

    def __init__(self, total: int, names: Names) -> None:
        super().__init__()
        self._names = names
        self._total, self._done, self._lanes = total, 0, ""
        self._began, self._drawn = time.monotonic(), 0.0

    def lane(self, lane: str, progress: Progress) -> None:
        """What a lane does at the moment."""
        self._lanes = f"  {self._names()[lane]} {progress.phase}{f' {progress.n}' if progress.phase == 'decode' else ''}"
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
        left = f", about {seconds(spent / self._done * (self._total - self._done))} left" if self._done else ""
        words = f"[{'#' * full}{'.' * (BAR - full)}] {self._done} of {self._total} prompts, {seconds(spent)}{left}"
        self.put(words + self._lanes if self.live else words)
