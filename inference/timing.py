"""Stamps in, figures out: when each token id reached the host, and what follows from that.

All times are seconds on one monotonic clock (`time.perf_counter`, which the processes of one machine share).
The definitions are those of docs/figures.md. Knows no text, no device, no page.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

Clock = Callable[[], float]
WARM_UP_TOKENS = 4  # of an answer that isn't counted, before one that is


@dataclass(frozen=True)
class Timings:
    """The spans of one run; every field is None where it was not measured."""

    ttft_s: float | None = None
    prefill_tps: float | None = None
    tpot_s: float | None = None
    decode_tps: float | None = None
    total_s: float | None = None
    token_times_s: tuple[float, ...] = ()


@dataclass
class Stopwatch:
    """Collects the stamps of one run: `start()` once, `token()` for each generated id, then `timings()`."""

    clock: Clock = time.perf_counter
    t_start: float | None = None
    stamps: list[float] = field(default_factory=list)

    def start(self) -> float:
        """Stamp the moment the lane begins the run; returns it."""
        self.t_start = self.clock()
        return self.t_start

    def token(self) -> float:
        """Stamp one generated id; returns seconds since the start."""
        if self.t_start is None:
            raise RuntimeError("a token came before start()")
        self.stamps.append(self.clock())
        return self.stamps[-1] - self.t_start

    def timings(self, prompt_tokens: int) -> Timings:
        """Figures of the run so far; `prompt_tokens` is P, the number of ids in the prompt."""
        if self.t_start is None or not self.stamps:
            return Timings()
        times = tuple(stamp - self.t_start for stamp in self.stamps)
        return replace(timings_of(prompt_tokens, len(times), times[0], times[-1]), token_times_s=times)


def timings_of(prompt_tokens: int, n: int, ttft_s: float, total_s: float) -> Timings:
    """The figures of a run whose first and `n`-th token came so many seconds after its start; the stamps between are left out."""
    tpot_s = (total_s - ttft_s) / (n - 1) if n > 1 else None
    return Timings(
        ttft_s=ttft_s,
        prefill_tps=prompt_tokens / ttft_s if prompt_tokens and ttft_s > 0 else None,
        tpot_s=tpot_s,
        decode_tps=1 / tpot_s if tpot_s else None,
        total_s=total_s,
    )


def overlap_s(span: tuple[float, float], others: list[tuple[float, float]]) -> float:
    """Seconds of `span` covered by the union of `others`."""
    covered, reached = 0.0, span[0]
    for low, high in sorted(others):
        low, high = max(low, reached), min(high, span[1])
        if high > low:
            covered += high - low
            reached = high
    return covered
