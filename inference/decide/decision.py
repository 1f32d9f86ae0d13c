"""The decision: of the lanes that keep every limit the cheapest, and not decided where the measurement can't tell.

In: what is asked, and what was measured of each lane. Out: a `Decision`. At equal cost the lane wins that changes the answers least, then the faster.
"""

from __future__ import annotations

from collections.abc import Sequence

from inference.decide import asked as given
from inference.decide import reasons
from inference.decide.candidates import CENT, Judged, judge, ranked
from inference.decide.costs import Curve
from inference.decide.evidence import Gathered
from inference.decide.figures import dollars
from inference.decide.model import Asked, Decision, Turn
from inference.decide.turns import turns


def decide(asked: Asked, found: Gathered) -> Decision:
    """Which lane to serve; raises WrongArguments for what can't be meant."""
    return decide_with_curves(asked, found)[0]


def decide_with_curves(asked: Asked, found: Gathered) -> tuple[Decision, dict[str, Curve]]:
    """The same, with what each lane that has a price costs over answers a day, to draw."""
    given.check(asked, found.lanes)
    judged = [judge(asked, lane) for lane in found.lanes]
    kept = ranked([each for each in judged if each.candidate.out is None])
    doubts = _doubts(kept)
    chosen = kept[0] if kept and not doubts else None
    changes = _turns(kept)
    decision = Decision(
        asked=asked, model=found.model, candidates=tuple(each.candidate for each in judged), turns=changes, chosen=chosen.lane.lane if chosen else None,
        sentence=reasons.sentence(kept, chosen, doubts, judged), because=tuple(reasons.because(kept, chosen, judged)),
        turned_by=tuple(reasons.turned_by(asked, kept, chosen, judged, changes)), remarks=tuple(reasons.remarks(asked, found, judged)),
    )  # fmt: skip
    return decision, {each.lane.lane: each.serving.curve for each in judged if each.serving and each.candidate.cost_month is not None and each.can}


def _turns(kept: Sequence[Judged]) -> tuple[Turn, ...]:
    """Where the cheapest of these lanes changes, of those that can keep the limits; no turn where so few visitors come that one of the two breaks them by waking."""
    served = {each.lane.lane: each.serving for each in kept if each.serving and each.can}
    found = turns({lane: each.curve for lane, each in served.items()})
    return tuple(turn for turn in found if all(turn.answers_per_day >= (served[lane].fewest_per_day or 0.0) for lane in (turn.before, turn.then)))


def _doubts(kept: Sequence[Judged]) -> list[str]:
    """Why the first of the lanes that may be served can't be called the one, a clause each; nothing where it can."""
    if not kept:
        return []
    first, *others = kept
    found = [f"{rule.title} of {first.name}: {rule.words}" for rule in first.open_rules]
    if not others:
        return found
    _, low, high = first.cost
    for other in others:
        _, other_low, other_high = other.cost
        if other_low < high - CENT and not other.costs_as(first):  # where they only touch, the first is never the dearer one
            found.append(
                f"the costs overlap: {first.name} {dollars(low)} to {dollars(high)} a month, {other.name} {dollars(other_low)} to {dollars(other_high)}"
            )
    found += [f"the cost of {each.name} hangs on how long an answer takes, and {each.few_runs}" for each in kept[:2] if each.few_runs]
    return found
