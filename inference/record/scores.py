"""The record's `quality` as frozen dataclasses: how far a lane moved from the reference, where the answers part, and the flips.

Divergences in nats, log-probabilities natural, an unknown error None. Measured in `quality/`; here is only what it found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ENOUGH_POSITIONS = 200


@dataclass(frozen=True)
class Figures:
    """The figures of one lane against the reference; divergences in nats, an unknown error None.

    The errors take positions for independent, which neighbours in a text are not: the true ones are larger.
    """

    positions: int
    kld_mean: float
    kld_se: float | None
    kld_median: float
    kld_p99: float
    kld_max: float
    top1_agreement: float
    top1_se: float
    ppl_reference: float
    ppl_other: float
    ppl_ratio: float
    ppl_ratio_se: float | None

    @property
    def enough(self) -> bool:
        """Whether there are positions enough to say anything about the lane, and not only about this text."""
        return self.positions >= ENOUGH_POSITIONS


@dataclass(frozen=True)
class Choice:
    """A token that a lane may take: its id, its text, and its log-probability in nats."""

    id: int
    text: str
    logprob: float


@dataclass(frozen=True)
class Fork:
    """The first differing token of two answers. `margin` is how much likelier the reference's first choice is, in nats.

    `before` is the text that both share; `reference` and `other` are how each goes on. Past the end of the reference's
    answer there are no choices and no margin.
    """

    index: int
    margin: float | None
    near_tie: bool | None
    reference_id: int | None
    other_id: int | None
    top_reference: tuple[Choice, ...]
    top_other: tuple[Choice, ...]
    before: str
    reference: str
    other: str


@dataclass(frozen=True)
class PromptFork:
    """Where the two answers to one prompt of a file part; `prompt` is its index in the file's rows."""

    prompt: int
    first_divergence: int | None
    margin: float | None
    near_tie: bool | None


@dataclass(frozen=True)
class Unanswered:
    """A prompt of a file that a lane could not answer, so that no figure rests on it; `prompt` is its index, `line` its line."""

    prompt: int
    line: int
    lane: str
    error: str

    def words(self) -> str:
        """What to tell of it."""
        return f"Line {self.line} is in no figure: {self.lane}: {self.error}"


@dataclass(frozen=True)
class Answers:
    """The answers of a prompts file: how many pairs there are, how many are equal, and which part at a near tie."""

    n: int
    identical: int
    near_ties: int
    each: tuple[PromptFork, ...]


@dataclass(frozen=True)
class Recovery:
    """Right answers of the other lane for one right answer of the reference, and the 95 % interval."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Resolution:
    """Estimated: the smallest change in the share of right answers (0 to 1) that so many prompts could have shown (None: none), and
    how many would show one of 1, 2 and 5 points; two-sided at 5 %, with a power of 80 %.
    """

    detectable: float | None
    needed_1_point: int
    needed_2_points: int
    needed_5_points: int


@dataclass(frozen=True)
class Flips:
    """Right answers of both lanes, the indices of those that went right to wrong and wrong to right, and McNemar's exact p.

    `recovery` is None where the reference has none right.
    """

    answers: int
    right_reference: int
    right_other: int
    right_to_wrong: tuple[int, ...]
    wrong_to_right: tuple[int, ...]
    mcnemar_p: float
    recovery: Recovery | None = None
    resolution: Resolution | None = None


@dataclass(frozen=True)
class Survival:
    """`ratio` is kld(fine-tune, 4-bit) / kld(fine-tune, `base`), both in nats over the same positions: near 1, 4 bits moved it as far as tuning did."""

    base: str
    ratio: float
    ratio_se: float | None
    base_kld_mean: float
    base_kld_se: float | None


@dataclass(frozen=True)
class NoSurvival:
    """Why there is no survival though a base is known, in a sentence."""

    base: str
    error: str


@dataclass(frozen=True)
class Quality:
    """The figures of `other` (the first 4-bit lane, else the first) against `reference`, and under `lanes` of each.

    `source` is text, answer or prompts; `first_divergence` is of one answer, `answers`, `expected` (by way of being right)
    and `unanswered` of a prompts file, `scoring_s` of a text. `survival` is of `other`, where the model's base is known.
    """

    figures: Figures
    reference: str
    other: str
    source: str
    rows: int
    vocabulary: int
    lanes: Mapping[str, Figures]
    first_divergence: Fork | None = None
    answers: Answers | None = None
    expected: Mapping[str, Flips] | None = None
    unanswered: tuple[Unanswered, ...] = ()
    scoring_s: float | None = None
    survival: Survival | NoSurvival | None = None


@dataclass(frozen=True)
class NoQuality:
    """Why there are no figures, in a sentence."""

    error: str
