"""How far a 4-bit lane moved from the full-precision lane: figures from what both gave for the same token ids.

In: one number a position (natural logarithms). Out: `Figures`, sums in FP64, as docs/quality.md defines them.
numpy only: knows no model, no lane process and no page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from inference.errors import InferenceError
from inference.record.scores import Figures
from inference.score_events import MOST_POSITIONS, Scored

WINDOW = 512


@dataclass(frozen=True)
class Span:
    """Token ids, of which those from `first` on are scored."""

    ids: tuple[int, ...]
    first: int = 1

    def parts(self) -> list[tuple[int, int]]:
        """(first, past the last) of the pieces that are scored in one go."""
        return [(low, min(low + MOST_POSITIONS, len(self.ids))) for low in range(self.first, len(self.ids), MOST_POSITIONS)]


def windows(ids: Sequence[int], start_mark: int | None, length: int = WINDOW) -> list[Span]:
    """A long text in windows of `length` tokens, each begun with the start mark if there is one; its first token isn't scored.

    A rest of one token, which would leave nothing to score, is dropped. Raises InferenceError when nothing is left.
    """
    mark = () if start_mark is None else (start_mark,)
    text = tuple(ids[1:] if mark and tuple(ids[:1]) == mark else ids)
    step = length - len(mark)
    spans = [Span(mark + text[low : low + step]) for low in range(0, len(text), step)]
    spans = [span for span in spans if len(span.ids) > 1]
    if not spans:
        raise InferenceError("The text is too short to be scored. Give at least two tokens, better some thousands.")
    return spans


@dataclass(frozen=True)
class Positions:
    """What two lanes gave at each of n scored positions; arrays of shape (n,), nats."""

    kld: np.ndarray
    nll_reference: np.ndarray
    nll_other: np.ndarray
    same_best: np.ndarray

    @staticmethod
    def of(pairs: Iterable[tuple[Scored, Scored]]) -> Positions:
        """From the (reference, other) lanes' scores, piece after piece."""
        found = list(pairs)
        return Positions(
            np.array([x for _, other in found for x in other.kld], np.float64),
            np.array([x for reference, _ in found for x in reference.nll], np.float64),
            np.array([x for _, other in found for x in other.nll], np.float64),
            np.array([a == b for reference, other in found for a, b in zip(reference.best, other.best, strict=True)], bool),
        )


def figures(positions: Positions) -> Figures:
    """Mean, error and spread over the positions; raises InferenceError when there are none."""
    n = len(positions.kld)
    if not n:
        raise InferenceError("No position was scored, so there are no figures. Give a longer text.")
    moved = positions.nll_other - positions.nll_reference
    ratio = math.exp(float(moved.mean()))
    agreement = float(positions.same_best.mean())
    kld, moved_se = positions.kld, standard_error(moved)
    return Figures(
        positions=n, kld_mean=float(kld.mean()), kld_se=standard_error(kld), kld_median=float(np.median(kld)), kld_p99=float(np.percentile(kld, 99)),
        kld_max=float(kld.max()), top1_agreement=agreement, top1_se=math.sqrt(agreement * (1 - agreement) / n),
        ppl_reference=math.exp(float(positions.nll_reference.mean())), ppl_other=math.exp(float(positions.nll_other.mean())),
        ppl_ratio=ratio, ppl_ratio_se=None if moved_se is None else ratio * moved_se,
    )  # fmt: skip


def standard_error(values: np.ndarray) -> float | None:
    """Of the mean of (n,) values taken for independent; None where there is one."""
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None


def check_took_hold(positions: Positions, lane: str, four_bit: bool, reference_four_bit: bool) -> None:
    """Raise InferenceError where a 4-bit lane gives exactly what a full-precision one does; lanes of one precision may."""
    if four_bit != reference_four_bit and len(positions.kld) and not positions.kld.any():
        raise InferenceError(
            f"{lane} gives exactly the numbers of the full-precision lane at all {len(positions.kld)} positions, so 4-bit did not take hold: "
            "this is a fault, not a perfect score. See the lane's label and the log."
        )
