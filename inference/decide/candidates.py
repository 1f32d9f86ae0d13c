"""A lane as a candidate: the limits held against it, its cost, and why it is out, if it is.

In: what is asked, a lane's evidence. Out: a `Candidate`, with the lane that serves beside it. Chooses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inference.decide import costs
from inference.decide.figures import figures
from inference.decide.model import Asked, Candidate, Evidence, Rule
from inference.decide.rules import ENOUGH_RUNS, SAMPLES, rules
from inference.decide.serving import Serving, serving

CENT = 0.005  # dollars a month: costs that differ by no more are equal
EQUAL = 0.01  # as a share: so are those of machines that sleep, which are estimated


@dataclass(frozen=True)
class Judged:
    """A candidate, its evidence, and the lane that serves; None where it can't."""

    candidate: Candidate
    lane: Evidence
    serving: Serving | None = None

    @property
    def name(self) -> str:
        """The lane as a sentence calls it: "4-bit NF4 on the GPU (cuda:nf4)"."""
        return f"{self.lane.title} ({self.lane.lane})" if self.lane.title != self.lane.lane else self.lane.lane

    @property
    def cost(self) -> tuple[float, float, float]:
        """Dollars a month: of the mean answer, of quicker and of slower ones; infinite where it is not known."""
        found = (self.candidate.cost_month, self.candidate.cost_month_low, self.candidate.cost_month_high)
        return tuple(float("inf") if dollars is None else dollars for dollars in found)  # type: ignore[return-value]

    @property
    def open_rules(self) -> list[Rule]:
        """The limits of which it can't be told whether they are kept."""
        return [rule for rule in self.candidate.rules if rule.keeps is None]

    @property
    def broken_rules(self) -> list[Rule]:
        """The limits that are not kept."""
        return [rule for rule in self.candidate.rules if rule.keeps is False]

    @property
    def can(self) -> bool:
        """Whether there is a number of visitors a day for which it keeps the limits on time, or may."""
        return self.serving is not None and bool(self.serving.capacity_per_day or self.serving.at_best_per_day)

    @property
    def only_unpriced(self) -> bool:
        """Whether it keeps all that is asked, and has no price."""
        return self.serving is not None and not self.broken_rules and self.candidate.cost_month is None

    @property
    def few_runs(self) -> str:
        """Why its cost is not known well enough, where it hangs on how long an answer takes and there are too few; else nothing."""
        n = len(self.lane.total_s)
        hangs = self.serving is not None and (self.serving.asked.sleep_after_min is not None or self.serving.machines > 1)
        return SAMPLES[n] if hangs and 0 < n < ENOUGH_RUNS else ""

    def costs_as(self, other: Judged) -> bool:
        """Whether both cost the same, whatever answers that is worked out from."""
        asleep = self.serving is not None and self.serving.asked.sleep_after_min is not None
        far = max(CENT, EQUAL * other.cost[0] if asleep else 0.0)
        return all(abs(mine - theirs) <= far for mine, theirs in zip(self.cost, other.cost, strict=True))

    def order(self) -> tuple[bool, float, float]:
        """What the first of several that cost the same is chosen by: answers changed least, then speed."""
        whole = self.serving.line.mean_s if self.serving else float("inf")
        return not self.lane.is_reference, -(self.lane.agreement or 0.0), whole


def ranked(judged: Sequence[Judged]) -> list[Judged]:
    """The cheapest first; of those that cost as much as it does the one that changes the answers least, then the faster."""
    by_cost = sorted(judged, key=lambda each: (each.cost[0], each.cost[2]))  # the slowest answer's, where the mean one's are equal
    equal = [each for each in by_cost if each.costs_as(by_cost[0])]
    return sorted(equal, key=Judged.order) + [each for each in by_cost if each not in equal]


def judge(asked: Asked, lane: Evidence) -> Judged:
    """A lane against all that is asked."""
    served = serving(lane, asked)
    if isinstance(served, str):
        return Judged(Candidate(lane.lane, lane.title, served, ()), lane)
    found = rules(served)
    broken = next((f"{rule.title}: {rule.words}; {rule.margin}." for rule in found if rule.keeps is False), None)
    price, energy_j = asked.prices.get(lane.lane), None if served.scaled else lane.energy_j  # as many joules as were measured, of that length
    if price is None:
        out = broken or f"no price is given for its hardware, so no cost: {lane.lane}=DOLLARS."
        known = figures(served, (0.0, 0.0, 0.0))
        return Judged(Candidate(lane.lane, lane.title, out, found, energy_j=energy_j, figures=known), lane, served)
    per_day = asked.answers_per_day
    middle = served.curve.month(per_day)
    low, high = (each.curve.month(per_day) for each in served.at_ends())
    low, high = min(low, middle, served.curve_at_best.month(per_day)), max(middle, high)
    candidate = Candidate(
        lane.lane, lane.title, broken, found, machines=served.machines, capacity_per_day=served.capacity_per_day,
        hours_per_day=served.curve.hours(per_day), cost_month=middle, cost_month_low=low, cost_month_high=high,
        cost_1000=costs.of_1000(middle, per_day), floor_1000=costs.floor_of_1000(price.dollars_per_hour, served.seconds_at_full_use),
        energy_j=energy_j, figures=figures(served, (middle, low, high)),
    )  # fmt: skip
    return Judged(candidate, lane, served)
