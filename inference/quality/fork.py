"""Where two greedy answers part: both lanes' likeliest tokens there, the margin, and how the answers go on.

In: the reference lane's answer as both lanes scored it, and the other lane's own answer. Out: a `Fork`, or None for equal
answers. Pure; knows no lane and no page.
"""

from __future__ import annotations

from collections.abc import Sequence

from inference.record.scores import Choice, Fork
from inference.record.verdict import first_difference
from inference.score_events import Scored

NEAR_TIE_NATS = 0.03


def margin(scored: Scored, position: int) -> float:
    """How much likelier the first choice is than the second at one position, in nats."""
    (_, first, _), (_, second, _) = scored.top(position)[:2]
    return first - second


def find_fork(reference: Scored, other: Scored, other_ids: Sequence[int], texts: tuple[str, str]) -> Fork | None:
    """The fork of the reference's answer (`reference.ids`, scored by both lanes) and the other lane's `other_ids`.

    `texts` are both answers as shown. A margin under 0.03 nat is a near tie: rounding alone may have turned the choice.
    """
    index = first_difference(reference.ids, other_ids)
    if index is None:
        return None
    inside = index < len(reference.ids)
    nats = margin(reference, index) if inside else None
    before = shared_text(reference, index, texts)
    return Fork(
        index=index, margin=nats, near_tie=None if nats is None else nats < NEAR_TIE_NATS,
        reference_id=reference.ids[index] if inside else None, other_id=other_ids[index] if index < len(other_ids) else None,
        top_reference=_choices(reference, index) if inside else (), top_other=_choices(other, index) if inside else (),
        before=before, reference=texts[0][len(before):], other=texts[1][len(before):],
    )  # fmt: skip


def shared_text(reference: Scored, index: int, texts: tuple[str, str]) -> str:
    """What both texts have in common, at most as much as the first `index` tokens wrote."""
    most = len("".join(reference.pieces[:index]))
    left, right = texts[0][:most], texts[1][:most]
    while left != right:
        left, right = left[:-1], right[:-1]
    return left


def _choices(scored: Scored, index: int) -> tuple[Choice, ...]:
    return tuple(Choice(token, text, logprob) for token, logprob, text in scored.top(index))
