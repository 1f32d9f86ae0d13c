"""What some number of clients saw of one lane: each question's end, and the figures of those that were answered.

In: the ends of runs. Out: percentiles, answers a minute, where a limit breaks; all as they stand in the JSON. Asks nobody, draws nothing.
Seconds from a question's acceptance by the engine: waiting is in them. The seconds in which a lane loaded are in none of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from inference.events import Done
from inference.record.model import over

LEAST_FOR_P95 = 20
ANSWERED, LEFT, FAILED = "answered", "left", "failed"


@dataclass(frozen=True)
class Seen:
    """One question of a client: how it ended (answered, left by the client, failed for the reason in `error`); `done` is the lane's own account."""

    client: int
    t_accept: float
    how: str
    done: Done | None = None
    error: str = ""

    @property
    def waited_s(self) -> float:
        """The wait before the lane began, behind the other clients."""
        return ((self.done.queue_s or 0.0) + (self.done.turn_wait_s or 0.0)) if self.done else 0.0

    @property
    def first_token_s(self) -> float | None:
        """From acceptance to the first token."""
        own = self.done.timings.ttft_s if self.done else None
        return None if own is None else self.waited_s + own

    @property
    def total_s(self) -> float | None:
        """From acceptance to the last token."""
        own = self.done.timings.total_s if self.done else None
        return None if own is None else self.waited_s + own

    @property
    def load_s(self) -> float:
        """The part of its wait in which the lane loaded, after a death."""
        return (self.done.load_wait_s or 0.0) if self.done else 0.0

    @property
    def t_end(self) -> float:
        """When its last token came, on the engine's clock."""
        return self.t_accept + self.load_s + (self.total_s or 0.0)


@dataclass(frozen=True)
class Spread:
    """Seconds as the clients saw them; `p95` only from 20 answers on."""

    p50: float | None
    p95: float | None
    max: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of these values; nothing is known of none."""
        p95 = statistics.quantiles(values, n=20, method="inclusive")[-1] if len(values) >= LEAST_FOR_P95 else None
        return cls(over(values), p95, max(values, default=None))

    @property
    def held(self) -> float | None:
        """What a limit is held against: the p95, the largest of fewer answers."""
        return self.max if self.p95 is None else self.p95


@dataclass(frozen=True)
class Level:
    """So many clients at once, and every question of theirs."""

    clients: int
    seen: tuple[Seen, ...]

    def of(self, how: str) -> list[Seen]:
        """The questions that ended so."""
        return [each for each in self.seen if each.how == how]

    @property
    def first_token(self) -> Spread:
        """Of the questions that were answered."""
        return Spread.of([each.first_token_s for each in self.of(ANSWERED) if each.first_token_s is not None])

    @property
    def total(self) -> Spread:
        """Of the questions that were answered."""
        return Spread.of([each.total_s for each in self.of(ANSWERED) if each.total_s is not None])

    @property
    def load_s(self) -> float:
        """How long the lane loaded meanwhile: as long as the client that waited longest for it, since each asks again at once."""
        waited = dict.fromkeys((each.client for each in self.seen), 0.0)
        for each in self.seen:
            waited[each.client] += each.load_s
        return max(waited.values(), default=0.0)

    @property
    def answers_per_min(self) -> float | None:
        """Answers in a minute from the first question to the last token, loading left out."""
        answered = self.of(ANSWERED)
        if not answered:
            return None
        span_s = max(each.t_end for each in answered) - min(each.t_accept for each in self.seen) - self.load_s
        return 60 * len(answered) / span_s if span_s > 0 else None

    @property
    def tpot_s(self) -> float | None:
        """The lane's own seconds a token after the first, the median: nothing that clients wait for is in it."""
        return over(each.done.timings.tpot_s for each in self.of(ANSWERED) if each.done)

    @property
    def errors(self) -> list[str]:
        """Why questions failed, each reason once, the most frequent first."""
        reasons = [each.error for each in self.of(FAILED)]
        return sorted(dict.fromkeys(reasons), key=reasons.count, reverse=True)

    def as_json(self) -> dict[str, Any]:
        """The level as it stands in the JSON."""
        answered = self.of(ANSWERED)
        tokens = [len(each.done.token_ids) or each.done.new_tokens for each in answered if each.done]
        return {
            "clients": self.clients, "first_token_s": asdict(self.first_token), "total_s": asdict(self.total), "answers_per_min": self.answers_per_min,
            "n": len(answered), "failed": len(self.of(FAILED)), "left": len(self.of(LEFT)), "errors": self.errors, "load_s": self.load_s,
            "new_tokens": over(tokens), "tpot_s": self.tpot_s,
        }  # fmt: skip


@dataclass(frozen=True)
class Limit:
    """A longest wait that is acceptable, and where it breaks: at `breaks` clients, the fewest measured at which it does, `keeps` being the most below.

    `by` is what was held against it there (p95 or max), `found_s` how long that was; where questions failed there `by` is failed, and they kept no limit.
    None where it does not break.
    """

    limit_s: float
    keeps: int | None
    breaks: int | None
    by: str | None = None
    found_s: float | None = None


def limit_of(levels: Sequence[Level], figure: str, limit_s: float) -> Limit | None:
    """Where the limit on `figure` (first_token or total) breaks among levels in ascending order; None where nothing was answered."""
    keeps = None
    for level in levels:
        spread: Spread = getattr(level, figure)
        if level.of(FAILED) and (spread.held is None or spread.held <= limit_s):
            return Limit(limit_s, keeps, level.clients, FAILED)
        if spread.held is None:
            continue
        if spread.held > limit_s:
            return Limit(limit_s, keeps, level.clients, "max" if spread.p95 is None else "p95", spread.held)
        keeps = level.clients
    return None if keeps is None else Limit(limit_s, keeps, None)
