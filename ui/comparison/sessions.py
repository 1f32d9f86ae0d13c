"""What each visitor's tab is doing: its comparison, who streams it, and how its runs ended.

Keyed by Gradio's session hash; holds no component and draws nothing. A session has at most one comparison under way:
this, not a disabled button, is what makes a double submit harmless.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from inference.engine.runs import Comparison, Run
from inference.errors import InferenceError
from inference.progress import Progress
from ui.tabs import MOST_BYTES, Tabs, bytes_of

STILL_RUNNING = "Not sent: a comparison was still running. Send it again once that is over, or stop it first."


@dataclass(eq=False)
class Session:
    """One tab's latest comparison; `claimed` holds the lanes whose run is streamed, `outcomes` those that ended, `tried_again` those
    put right since, whose state is shown again; `began` is when it was accepted and `stopped` when its Stop was pressed, on the page's clock
    in seconds.

    `size`: the bytes of what was asked and of what was answered.
    """

    comparison: Comparison
    began: float = 0.0
    stopped: float = -math.inf
    tried_again: set[str] = field(default_factory=set)
    claimed: set[str] = field(default_factory=set)
    outcomes: dict[str, Progress] = field(default_factory=dict)
    size: int = field(default=0, init=False)
    _drawn: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def running(self) -> bool:
        """Whether a run is still under way; one that nobody came to read and the engine ended is over."""
        return any(key not in self.outcomes and not (run.ended and key not in self.claimed) for key, run in self.comparison.runs.items())

    @property
    def complete(self) -> bool:
        """Whether every run has been shown to its end."""
        return len(self.outcomes) == len(self.comparison.runs)

    @property
    def cut(self) -> bool:
        """Whether an answer ended at the token limit."""
        return any(progress.done is not None and progress.done.finish_reason == "length" for progress in list(self.outcomes.values()))

    def __post_init__(self) -> None:
        self.size = bytes_of(self.comparison.asked)

    def claim(self, lane: str) -> Run | None:
        """The run that a stream of `lane` is to show, once; None when it is taken or there is none."""
        with self._lock:
            run = self.comparison.runs.get(lane)
            if run is None or lane in self.claimed:
                return None
            self.claimed.add(lane)
            return run

    def ended(self, lane: str, progress: Progress) -> None:
        """Keep how a lane's run ended; the lanes' streams come here side by side, so nothing here goes through `outcomes`."""
        size = bytes_of(progress)
        with self._lock:
            self.outcomes[lane] = progress
            self.size += size

    def to_draw(self) -> bool:
        """Whether its results are to be drawn: once, when all of them are there."""
        with self._lock:
            draw = self.complete and not self._drawn
            self._drawn = self._drawn or draw
            return draw


class Sessions:
    """All tabs of this page."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._tabs: Tabs[Session] = Tabs(most_bytes=most_bytes)

    def begin(self, tab: str, submit: Callable[[], Comparison], now: float = 0.0) -> Session:
        """Start a comparison by `submit` at `now` unless one is running here; raises InferenceError."""

        def begin(before: Session | None) -> tuple[Session, int]:
            if before and before.running:
                raise InferenceError(STILL_RUNNING)
            session = Session(submit(), now)
            return session, session.size

        return self._tabs.change(tab, begin)

    def get(self, tab: str) -> Session | None:
        """The tab's latest comparison, if it has begun one."""
        return self._tabs.get(tab)

    def ended(self, tab: str, session: Session, lane: str, progress: Progress) -> None:
        """A stream has shown its run to its end."""
        session.ended(lane, progress)
        self._tabs.resize(tab, session, session.size)

    def forget(self, tab: str) -> None:
        """Drop a tab that was closed."""
        self._tabs.drop(tab)
