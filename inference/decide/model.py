"""The decision as frozen dataclasses: what is asked, what was measured of each lane, what it comes to, and which to serve.

Dollars, seconds, shares from 0 to 1, joules; an unknown value None. Every number that is shown carries where it is from. Measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HOURS_A_MONTH = 730.0  # 365 days of 24 hours, by 12
DAYS_A_MONTH = HOURS_A_MONTH / 24


@dataclass(frozen=True)
class Price:
    """Dollars an hour of a lane's hardware, and where that is from: "typed", or "l4x1, prices read 2026-08".

    `gpu` is the priced card's name, `hardware` what is rented, `memory_bytes` what that has where the lane's weights are; empty and None where nothing is known.
    """

    dollars_per_hour: float
    source: str
    gpu: str = ""
    hardware: str = ""
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Asked:
    """What the person wants. A limit that is None is none; `tokens` None takes the answers' own lengths; `sleep_after_min` None is always on.

    `min_agreement`: least share of equal first choices; `max_lost`: largest share of the expected answers that may go from right to wrong.
    """

    answers_per_day: float
    prices: Mapping[str, Price]  # by lane
    tokens: int | None = None
    max_first_token_s: float | None = None
    max_total_s: float | None = None
    min_agreement: float | None = None
    max_lost: float | None = None
    open_hours: float = 24.0
    sleep_after_min: float | None = None


@dataclass(frozen=True)
class Clients:
    """What so many clients at once got of a lane, measured (`bench --clients`): seconds at p95 (the largest of fewer than 20), of `n` answers; `failed` got none."""

    clients: int
    first_token_p95_s: float
    total_p95_s: float
    answers_per_min: float
    n: int
    failed: int = 0
    new_tokens: float | None = None  # of an answer, the median


@dataclass(frozen=True)
class Evidence:
    """What the records hold of one lane: each counted run's times, and what is known beside them.

    `why_not` says why it can be no candidate (it failed, was not measured). `new_tokens` and `tpot_s` are of the runs that have them.
    `agreement` and `lost` are against the reference lane, over `positions` and `expected` answers; `hardware` is as the lane's process said.
    `noise`: the weights are random, so that nothing is said of its answers. `clients`: by number, where a load was measured. `prompts`: those of the runs.
    """

    lane: str
    title: str
    device: str | None
    hardware: str
    ttft_s: tuple[float, ...] = ()
    total_s: tuple[float, ...] = ()
    tpot_s: tuple[float, ...] = ()
    new_tokens: tuple[int, ...] = ()
    load_s: float | None = None
    memory_bytes: int | None = None  # at most, where its weights are
    energy_j: float | None = None  # of an answer, the median
    agreement: float | None = None
    agreement_se: float | None = None
    positions: int = 0
    lost: int | None = None
    expected: int = 0
    is_reference: bool = False
    noise: bool = False
    clients: tuple[Clients, ...] = ()
    prompts: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    why_not: str | None = None


@dataclass(frozen=True)
class Traced:
    """A number in words, and where it is from: what was measured, what the person said, and the word "estimated" where it is."""

    title: str
    words: str
    source: str


@dataclass(frozen=True)
class Rule:
    """A limit held against a lane: `keeps` is None where what was measured can't say; `margin` is how far off the limit is, in words."""

    title: str
    keeps: bool | None
    words: str
    margin: str


@dataclass(frozen=True)
class Candidate:
    """A lane, with its costs in dollars (None without a price), the answers a day that one machine can give, and how many machines it takes.

    `cost_month_low` and `cost_month_high` are the same from the quickest and the slowest measured answer; from 20 runs on, from their mean less and plus
    two standard errors. `figures` are all of it for people.
    """

    lane: str
    title: str
    out: str | None
    rules: tuple[Rule, ...]
    machines: int | None = None
    capacity_per_day: float | None = None
    hours_per_day: float | None = None
    cost_month: float | None = None
    cost_month_low: float | None = None
    cost_month_high: float | None = None
    cost_1000: float | None = None
    floor_1000: float | None = None
    energy_j: float | None = None
    figures: tuple[Traced, ...] = ()


@dataclass(frozen=True)
class Turn:
    """The answers a day from which on `then` is cheaper than `before`."""

    answers_per_day: float
    before: str
    then: str


@dataclass(frozen=True)
class Decision:
    """`chosen` is the lane to serve, None where it is not decided; `sentence` says which, or that it isn't, and why.

    `because`: each rule that decided it, with its margin; `turned_by`: what would turn it; `remarks`: what must be said beside it.
    """

    asked: Asked
    model: str
    candidates: tuple[Candidate, ...]
    turns: tuple[Turn, ...]
    chosen: str | None
    sentence: str
    because: tuple[str, ...]
    turned_by: tuple[str, ...]
    remarks: tuple[str, ...] = ()
