"""A run as far as it has come, folded from its events: what a page's column or a progress line shows.

Immutable; `apply` gives the next state. `now` and `t_start` are on the shared monotonic clock in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inference.ends import readable
from inference.events import Done, Failed, Loading, Prefill, Queued, RunEvent, Text
from inference.timing import Timings, timings_of
from inference.units import count

ENDED = ("done", "stopped", "failed")


@dataclass(frozen=True)
class Progress:
    """`phase` is waiting, queued, turn, loading, prefill, decode, done, stopped or failed; `since` is when it began."""

    since: float
    phase: str = "waiting"
    text: str = ""
    n: int = 0  # tokens; 0 with text where a server gave no counts
    position: int = 0
    loading: Loading | None = None
    prompt_ids: tuple[int, ...] = ()
    ordinary: bool = True  # whether the tokenizer's own call gives these ids
    format: str | None = None
    path: str | None = None  # what it decodes by, known from the prefill on
    t_start: float | None = None
    done: Done | None = None
    error: str | None = None
    t_first_s: float | None = None  # the first token's stamp, None where its event was not seen ...
    t_last_s: float | None = None  # ... and that of the last so far, by the lane's own clock

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.phase in ENDED

    @property
    def no_text(self) -> bool:
        """Whether the run ended normally and yet gave nothing to read: a fault of the lane, not an answer."""
        return self.phase == "done" and not readable(self.text)

    @property
    def fault(self) -> str | None:
        """Why there is no answer, for the person; None where there is one, or the run goes on or was stopped."""
        if self.no_text:
            gave = f"{count(self.n)}, none of which is readable text" if self.n else "no readable text"
            return f"No text produced. The model gave {gave}. This is a fault of the lane, not an answer."
        return self.error

    @property
    def timings(self) -> Timings:
        """The lane's own figures once the run has ended with any, else those of the tokens that came."""
        if self.done and self.done.timings.total_s is not None:
            return self.done.timings
        if self.t_first_s is None or self.t_last_s is None:
            return Timings(total_s=self.t_last_s)
        return timings_of(len(self.prompt_ids), self.n, self.t_first_s, self.t_last_s)

    def apply(self, event: RunEvent | None, now: float) -> Progress:
        """The state after `event`; a tick (None) changes nothing."""
        match event:
            case Queued():
                phase = {"turn": "turn", "load": "loading"}.get(event.waiting_for, "queued")
                return replace(self._enter(phase, now), position=event.position)
            case Loading():
                return replace(self._enter("loading", now), loading=event, position=0)
            case Prefill():
                began = replace(self._enter("prefill", now), prompt_ids=event.prompt_ids, ordinary=event.ordinary)
                return replace(began, format=event.format, path=event.path, t_start=event.t_start)
            case Text():
                first = event.t_s if event.n <= 1 and self.t_first_s is None and not self.text else self.t_first_s
                decoding = self._enter("decode", now)
                return replace(decoding, text=self.text + event.delta, n=event.n, t_first_s=first, t_last_s=event.t_s)
            case Done():
                phase = "stopped" if event.finish_reason == "stopped" else "done"
                return replace(self._enter(phase, now), text=event.text or self.text, n=len(event.token_ids) or event.new_tokens or self.n, done=event)
            case Failed():
                return replace(self._enter("failed", now), error=event.message)
        return self

    def _enter(self, phase: str, now: float) -> Progress:
        return self if phase == self.phase else replace(self, phase=phase, since=now)
