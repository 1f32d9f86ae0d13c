"""The quality of a lane's answers over all that was scored: the share of equal first choices, and the expected answers that it lost.

In: the `quality` of records. Out: the lane's evidence with it. Agreement is weighted by positions, with its binomial error; what is lost is
counted by the way "contains". Of random weights nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from inference.decide.model import Evidence
from inference.errors import WrongArguments
from inference.lanes import CUDA_BF16, REFERENCE
from inference.record.scores import Quality

WAY = "contains"


def reference_of(qualities: Sequence[Quality], lanes: Sequence[str]) -> str | None:
    """The lane that all quality was measured against, else the one that would be; raises WrongArguments where there are two."""
    found = sorted({quality.reference for quality in qualities})
    if len(found) > 1:
        raise WrongArguments(f"The quality was measured against {' and against '.join(found)}. Give the figures of one reference.")
    return next(iter(found), next((str(name) for name in (REFERENCE, CUDA_BF16) if str(name) in lanes), None))


def pooled(lane: Evidence, qualities: Sequence[Quality], reference: str | None) -> Evidence:
    """The evidence with the lane's quality over all of `qualities`; as it is where there is none of it."""
    lane = replace(lane, is_reference=lane.lane == reference)
    if lane.noise or lane.is_reference:
        return lane
    figures = [quality.lanes[lane.lane] for quality in qualities if lane.lane in quality.lanes]
    figures = [each for each in figures if each.positions and not math.isnan(each.top1_agreement)]
    if positions := sum(each.positions for each in figures):
        agreement = sum(each.positions * each.top1_agreement for each in figures) / positions
        error = math.sqrt(sum((each.positions * each.top1_se) ** 2 for each in figures)) / positions
        lane = replace(lane, agreement=agreement, agreement_se=error, positions=positions)
    flips = [quality.expected[WAY] for quality in qualities if quality.other == lane.lane and quality.expected and WAY in quality.expected]
    if expected := sum(each.answers for each in flips):
        lane = replace(lane, lost=sum(len(each.right_to_wrong) for each in flips), expected=expected)
    return lane
