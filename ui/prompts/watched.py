"""A series of prompts in a thread of its own, and how far it is in words: a bar, how long it will take, and what each lane does.

In: a series and what to ask. Out: HTML of its progress. A screen reader is told each tenth, not each prompt. Draws no answer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextvars import copy_context

from inference.engine.compare import names
from inference.engine.engine import Engine
from inference.errors import InferenceError
from inference.events import Request
from inference.lanes import LaneName, short_word
from inference.progress import Progress
from inference.series import table
from inference.series.series import Series
from inference.units import count, seconds, size
from ui.badge import escape
from ui.comparison.columns import FAULT
from ui.tabs import bytes_of

log = logging.getLogger(__name__)
LOOK_S = 0.5
MOST_BYTES = 32 * 2**20  # of one tab's prompts and answers
FULL = f"A tab keeps {size(MOST_BYTES)} of them: download these, then run the rest of the file."
DOES = {
    "waiting": "waiting", "queued": "waiting behind others", "turn": "waiting for its turn", "loading": "loading", "prefill": "reading the prompt",
    "decode": "writing", "done": "done", "stopped": "stopped", "failed": "failed",
}  # fmt: skip


def alert(sentence: str) -> str:
    """Why nothing runs, in the place of the progress."""
    return f'<p role="alert" class="sentence">{escape(sentence)}</p>'


def said(words: str) -> str:
    """A sentence in the place of the progress, which a screen reader reads."""
    return f'<p role="status" class="sentence">{escape(words)}</p>'


def left(span_s: float) -> str:
    """About how long something takes: "5 s", "40 s", "3 min", "1 h 20 min"."""
    if span_s < 57.5:
        return f"{max(5, 5 * round(span_s / 5))} s"
    minutes = round(span_s / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def short_names(engine: Engine) -> dict[str, str]:
    """Each lane in a word: "4-bit"; by its full name where two are of one precision."""
    words = {key: LaneName.parse(key).server or short_word(LaneName.parse(key).precision) for key in engine.settings.lanes}
    return {key: word if list(words.values()).count(word) == 1 else names(engine)[key] for key, word in words.items()}


class Watched:
    """A series that goes on, and its progress."""

    def __init__(self, engine: Engine, series: Series, request: Request, mode: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._series, self._clock = engine, series, clock
        self._error, self._full = "", ""
        self.size = bytes_of(series.prompts)  # bytes, each record counted once
        self._names = short_names(engine)
        self._does: dict[str, str] = {}
        self._began = self._first_at = self._last_at = clock()
        # in the context of who asked: on ZeroGPU a run counts on that visitor's quota
        self._thread = threading.Thread(target=copy_context().run, args=(self._run, request, mode), name="series", daemon=True)
        self._thread.start()

    def _run(self, request: Request, mode: str) -> None:
        try:
            for record in self._series.run(self._engine, request, mode, on_progress=self._note):
                self._last_at = self._clock()
                if len(self._series.records) == 1:
                    self._first_at = self._last_at
                self.size += bytes_of(record)
                if self.size > MOST_BYTES:
                    self._full = FULL
                    self._series.stop.set()
        except InferenceError as error:
            self._error = str(error)
        except Exception:
            log.exception("a series failed")
            self._error = FAULT

    def _note(self, lane: str, progress: Progress) -> None:
        self._does[lane] = DOES.get(progress.phase, progress.phase)

    @property
    def alive(self) -> bool:
        """Whether it goes on, a stop not yet heard included."""
        return self._thread.is_alive()

    def running(self) -> bool:
        """Whether it goes on; waits a moment to find out."""
        self._thread.join(LOOK_S)
        return self.alive

    def left_s(self) -> float | None:
        """About how many seconds it still takes, by the pace from the first prompt's end on; None before the second."""
        done = len(self._series.records)
        if done < 2 or self._series.stop.is_set():
            return None
        pace = (self._last_at - self._first_at) / (done - 1)
        return max(0.0, pace * (len(self._series.prompts) - done) - (self._clock() - self._last_at))

    def line(self) -> str:
        """The bar and its words."""
        if self._error:
            return alert(self._error)
        total, done = len(self._series.prompts), self._series.done
        told, words, detail = self._going(done, total) if self.alive else self._over()
        return (
            f'<progress max="{total}" value="{done}" aria-label="Prompts done"></progress>'
            f'<div class="told"><span role="status" class="unseen">{escape(told)}</span>'
            f'<span aria-hidden="true">{escape(words)}</span><span class="does" aria-hidden="true">{escape(detail)}</span></div>'
        )

    def _going(self, done: int, total: int) -> tuple[str, str, str]:
        tenth = -(-(done * 10 // total) * total // 10)  # the fewest prompts that are so many tenths of all
        told = f"{max(tenth, min(done, 1))} of {count(total, 'prompt')} done" if done else "Warming up"
        rest = self.left_s()
        words = (
            f"{done} of {count(total, 'prompt')} done" + (f", about {left(rest)} left" if rest is not None else "")
            if done
            else f"Warming up for {count(total, 'prompt')}"
        )
        lanes = " · ".join(f"{name}: {self._does[lane]}" for lane, name in self._names.items() if lane in self._does)
        return told, f"Stopping. {words}" if self._series.stop.is_set() else words, lanes

    def _over(self) -> tuple[str, str, str]:
        words = f"{table.how_far(self._series)} {self._full}".strip()
        return words, words, f"took {seconds(self._clock() - self._began)}"
