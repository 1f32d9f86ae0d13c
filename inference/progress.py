"""A run as far as it has come, folded from its events: what a page's column or a progress line shows.

Immutable; `apply` gives the next state. `now` and `t_start` are on the shared monotonic clock in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inference.events import Done, Failed, Loading, Prefill, Queued, RunEvent, Text

ENDED = ("done", "stopped", "failed")


@dataclass(frozen=True)
class Progress:
    """`phase` is waiting, queued, turn, loading, prefill, decode, done, stopped or failed; `since` is when it began."""

    since: float
    phase: str = "waiting"
    text: str = ""
    n: int = 0
    position: int = 0
    loading: Loading | None = None
    prompt_ids: tuple[int, ...] = ()
    format: str | None = None
    t_start: float | None = None
    done: Done | None = None
    error: str | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.phase in ENDED

    def apply(self, event: RunEvent | None, now: float) -> Progress:
        """The state after `event`; a tick (None) changes nothing."""
        match event:
            case Queued():
                phase = {"turn": "turn", "load": "loading"}.get(event.waiting_for, "queued")
                return replace(self._enter(phase, now), position=event.position)
            case Loading():
                return replace(self._enter("loading", now), loading=event)
            case Prefill():
                return replace(self._enter("prefill", now), prompt_ids=event.prompt_ids, format=event.format, t_start=event.t_start)
            case Text():
                return replace(self._enter("decode", now), text=self.text + event.delta, n=event.n)
            case Done():
                phase = "stopped" if event.finish_reason == "stopped" else "done"
                return replace(self._enter(phase, now), text=event.text, n=len(event.token_ids) or self.n, done=event)
            case Failed():
                return replace(self._enter("failed", now), error=event.message)
        return self

    def _enter(self, phase: str, now: float) -> Progress:
        return self if phase == self.phase else replace(self, phase=phase, since=now)
