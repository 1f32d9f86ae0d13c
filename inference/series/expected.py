"""Answers held against what was expected: right or not for each lane, the flips between lanes, and how likely chance is.

Pure functions over strings. Both ways of being right ignore case and runs of white space, nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from inference.record.scores import Flips

WAYS = ("exact", "contains")


def plain_words(text: str) -> str:
    """Lower case, single spaces, none at the ends."""
    return " ".join(text.casefold().split())


def is_right(answer: str, expected: str, way: str) -> bool:
    """Whether the answer is what was expected (`exact`), or holds it somewhere (`contains`)."""
    given, wanted = plain_words(answer), plain_words(expected)
    return given == wanted if way == "exact" else wanted in given


def mcnemar_exact(lost: int, won: int) -> float:
    """Two-sided exact p of McNemar's test: how often chance alone would split `lost + won` flips so unevenly (1 without flips)."""
    flips = lost + won
    tail = sum(math.comb(flips, k) for k in range(min(lost, won) + 1))
    return min(1.0, 2 * tail / 2**flips)


def flips(reference: Sequence[str], other: Sequence[str], expected: Sequence[str], way: str) -> Flips:
    """Right answers of both lanes, the indices that went right to wrong and wrong to right, and McNemar's exact p."""
    before = [is_right(answer, wanted, way) for answer, wanted in zip(reference, expected, strict=True)]
    after = [is_right(answer, wanted, way) for answer, wanted in zip(other, expected, strict=True)]
    lost = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a and not b]
    won = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if b and not a]
    return Flips(
        answers=len(expected), right_reference=sum(before), right_other=sum(after),
        right_to_wrong=tuple(lost), wrong_to_right=tuple(won), mcnemar_p=mcnemar_exact(len(lost), len(won)),
    )  # fmt: skip
