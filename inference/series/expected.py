"""Answers held against what was expected: right or not for each lane, the flips between lanes, and how likely chance is.

Pure functions over strings. `exact` ignores case and runs of white space; `contains` goes by whole words and numbers (`words.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from inference.record.scores import Flips
from inference.series.paired import mcnemar_exact, recovery, resolution
from inference.series.words import holds

WAYS = ("exact", "contains")


def plain_words(text: str) -> str:
    """Lower case, single spaces, none at the ends."""
    return " ".join(text.casefold().split())


def is_right(answer: str, expected: str, way: str) -> bool:
    """Whether the answer is what was expected (`exact`), or holds it somewhere (`contains`)."""
    return plain_words(answer) == plain_words(expected) if way == "exact" else holds(answer, expected)


def flips(reference: Sequence[str], other: Sequence[str], expected: Sequence[str], way: str) -> Flips:
    """Right answers of both lanes, the indices that went right to wrong and wrong to right, and what so many can say of it; at least one prompt."""
    before = [is_right(answer, wanted, way) for answer, wanted in zip(reference, expected, strict=True)]
    after = [is_right(answer, wanted, way) for answer, wanted in zip(other, expected, strict=True)]
    lost = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a and not b]
    won = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if b and not a]
    return Flips(
        answers=len(expected), right_reference=sum(before), right_other=sum(after),
        right_to_wrong=tuple(lost), wrong_to_right=tuple(won), mcnemar_p=mcnemar_exact(len(lost), len(won)),
        recovery=recovery(sum(before) - len(lost), len(lost), len(won)), resolution=resolution(len(expected), len(lost), len(won)),
    )  # fmt: skip
