"""The limits, held against one lane: kept, broken, or not to be told from what was measured, with the margin.

In: a lane serving what is asked. Out: a `Rule` for each limit there is. A limit inside the measured spread, or within two standard errors, decides
nothing, and neither do fewer than three runs or 200 positions. Knows no cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from inference.decide.model import Rule
from inference.decide.serving import ENOUGH_FOR_P95, ERRORS, Serving, at_most, spread
from inference.lanes import LaneName
from inference.record.scores import ENOUGH_POSITIONS
from inference.units import count, digits, exact_seconds, many, percent, seconds, seconds_to, share

ENOUGH_RUNS = 3  # fewer have no spread worth the name
FIRST, TOTAL, WAIT, AGREEMENT, LOST = "First token", "Whole answer", "With the wait", "Same first choice", "Answers lost"
# how what is missing is measured by a command; the page says how it is there
ASK_AGAIN = f"measure it {ENOUGH_RUNS} times or more (--repeats 5)"
SCORE = "python -m inference quality measures it on a text, or on your prompts; give its --json FILE too"
EXPECT = "compare --prompts, or quality, measures it on a file with `expected` beside `prompt`; give its --json FILE too"
SAMPLES = {1: "one run is one sample", 2: "two runs are too few to say how far apart they lie"}


def rules(serving: Serving) -> tuple[Rule, ...]:
    """Every limit that is asked, against this lane."""
    asked, line = serving.asked, serving.line
    both = ((FIRST, asked.max_first_token_s, line.first_s), (TOTAL, asked.max_total_s, line.total_s))
    times = [_time(title, limit, values) for title, limit, values in both if limit]
    found = [*times, *_wait(serving, times)]
    if asked.min_agreement is not None and not serving.lane.noise:
        found.append(_agreement(serving, asked.min_agreement))
    if asked.max_lost is not None and not serving.lane.noise:
        found.append(_lost(serving, asked.max_lost))
    return tuple(found)


def _time(title: str, limit: float, values: Sequence[float]) -> Rule:
    """A limit on time against the runs, nobody waiting."""
    (low, high), n = spread(values), len(values)
    if n < ENOUGH_RUNS:
        return Rule(title, None, f"{seconds(low)} against a limit of {exact_seconds(limit)}: {SAMPLES[n]}", ASK_AGAIN)
    what = f"the p95 of {n} runs is" if n >= ENOUGH_FOR_P95 else f"{n} runs took"
    if high <= limit:
        return Rule(
            title,
            True,
            f"{what} {seconds(high)} at most, the limit is {exact_seconds(limit)}",
            f"{seconds(limit - high)} to spare{_share(limit - high, limit)}",
        )
    if low > limit:
        return Rule(
            title, False, f"{what} {seconds(low)} at least, the limit is {exact_seconds(limit)}", f"{seconds(low - limit)} too long{_share(low - limit, limit)}"
        )
    words = f"{what} {seconds(low)} to {seconds(high)}, and the limit of {exact_seconds(limit)} lies between"
    return Rule(title, None, words, f"a limit of {seconds_to(high, math.ceil)} is kept, one under {seconds_to(low, math.floor)} is not")


def _share(difference: float, limit: float) -> str:
    part = difference / limit
    if 0 < part < 0.005:
        return ", less than 1 % of the limit"
    return f", {share(part) if part <= 1 else f'{100 * part:,.0f} %'} of the limit"


def _wait(serving: Serving, times: Sequence[Rule]) -> list[Rule]:
    """The limits with visitors before one, or with a machine to be woken; nothing where the answer alone breaks them, or may."""
    if not times or any(rule.keeps is False for rule in times):
        return []
    if serving.capacity_per_day is None:
        if not serving.batches:
            return []
        return [Rule(WAIT, False, "no measured number of clients at once kept the limits", "a load of fewer clients was not measured")]
    waits, limits = serving.waits, serving.limits
    both = (("first token", waits.first_s, limits.first_s), ("answer", waits.total_s, limits.total_s))
    each = [(what, got, limit) for what, got, limit in both if limit]
    told = " and ".join(f"{what} after {seconds(got)} (limit {exact_seconds(limit)})" for what, got, limit in each)
    how = f"measured with {serving.most_clients.clients} clients at once" if serving.batches and serving.most_clients else "estimated"
    words = f"95 of 100 visitors get the {told}, {how} for {many(serving.asked.answers_per_day, 'answer')} a day on {count(serving.machines, 'machine')}"
    if not waits.keeps(limits):
        return [Rule(WAIT, False, words, f"{share(waits.woke)} of the visitors wake it and wait {seconds(serving.lane.load_s)} for its load")]
    least = min(limit - got for _, got, limit in each)
    return [Rule(WAIT, True, words, f"{seconds(least)} to spare; one machine keeps it up to {at_most(serving.capacity_per_day)} a day")]


def _agreement(serving: Serving, limit: float) -> Rule:
    lane = serving.lane
    if lane.is_reference:
        return Rule(AGREEMENT, True, "it is the reference itself", "nothing to lose")
    if lane.agreement is None:
        return _unmeasured(AGREEMENT, serving)
    error = lane.agreement_se or 0.0
    words = f"{percent(lane.agreement)} ± {percent(error)} over {many(lane.positions, 'position')}, at least {percent_asked(limit)} is asked"
    if lane.positions < ENOUGH_POSITIONS:
        return Rule(AGREEMENT, None, words, f"{ENOUGH_POSITIONS} positions are the fewest for a verdict")
    off = lane.agreement - limit
    if abs(off) <= ERRORS * error:
        return Rule(AGREEMENT, None, words, f"the limit lies within {ERRORS} standard errors: score more text")
    return Rule(AGREEMENT, off > 0, words, f"{100 * abs(off):.2f} points {'to spare' if off > 0 else 'too few'}")


def _lost(serving: Serving, limit: float) -> Rule:
    lane = serving.lane
    if lane.is_reference:
        return Rule(LOST, True, "it is the reference itself", "nothing to lose")
    if lane.lost is None or not lane.expected:
        return _unmeasured(LOST, serving)
    low, high = likely(lane.lost, lane.expected)
    words = f"{lane.lost} of {lane.expected} expected answers went from right to wrong ({percent(lane.lost / lane.expected)}), at most {percent_asked(limit)} is asked"
    between = f"between {percent(low)} and {percent(high)}"
    if limit == 0:  # just these answers are meant: of all others nobody can know
        return Rule(LOST, lane.lost == 0, words, "of these answers" if lane.lost == 0 else f"{count(lane.lost, 'answer')} too many")
    if low <= limit < high:
        return Rule(LOST, None, words, f"the share may lie {between}: more expected answers would tell")
    return Rule(LOST, lane.lost / lane.expected <= limit, words, f"the share lies {between}")


def likely(hits: int, n: int) -> tuple[float, float]:
    """Where a share lies, two standard errors either way (Wilson's interval, which has a width where there are no hits, too)."""
    z2, part = ERRORS**2, hits / n
    middle, half = part + z2 / (2 * n), ERRORS * math.sqrt(part * (1 - part) / n + z2 / (4 * n * n))
    return max(0.0, (middle - half) / (1 + z2 / n)), min(1.0, (middle + half) / (1 + z2 / n))


def _unmeasured(title: str, serving: Serving) -> Rule:
    """What nobody has measured, and how to."""
    if title == LOST:
        return Rule(title, None, "not measured", EXPECT)
    if LaneName.parse(serving.lane.lane).elsewhere:
        return Rule(title, None, "not measured: a server gives no log-probabilities to score by", "only its answers can be held against others")
    return Rule(title, None, "not measured", SCORE)


def percent_asked(part: float) -> str:
    """The same of what was asked, never rounded to another: "98.20 %", "98.765 %"."""
    return percent(part) if math.isclose(100 * part, round(100 * part, 2), abs_tol=1e-9) else f"{digits(100 * part)} %"
