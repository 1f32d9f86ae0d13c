"""Why a decision is as it is, in sentences: which lane and by how much, each rule with its margin, what would turn it, what must be said beside it.

In: the judged lanes, the cheapest that keeps the limits first. Out: sentences. Decides nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from inference.decide.candidates import CENT, Judged
from inference.decide.evidence import Gathered
from inference.decide.figures import dollars, number, price, price_given
from inference.decide.model import DAYS_A_MONTH, Asked, Price, Turn
from inference.decide.queue import Limits
from inference.decide.rules import AGREEMENT, FIRST, LOST, TOTAL, WAIT, likely
from inference.decide.serving import ERRORS, Serving, at_most, spread
from inference.units import count, digits, many, percent, same_size, seconds_to

FAR = 2.0  # from so many times the longest measured answer on, an estimate for more tokens is called one
MOST_TURNS = 3  # that are told; all of them are in the JSON
KEPT = {True: "keeps the limit on", False: "breaks the limit on", None: "may keep or break the limit on"}
ON = {FIRST: "the first token", TOTAL: "the whole answer", WAIT: "time with the wait", AGREEMENT: "equal first choices", LOST: "answers lost"}


def sentence(kept: Sequence[Judged], chosen: Judged | None, doubts: Sequence[str], judged: Sequence[Judged]) -> str:
    """The decision itself."""
    priced = " with a price" if any(each.only_unpriced for each in judged) else ""
    if not kept:
        return f"No lane{priced} keeps what you ask: each one is out."
    if chosen is None:
        return f"Not decided. {'; '.join(doubts)[:1].upper()}{'; '.join(doubts)[1:]}."
    told = f"Serve {chosen.name}: {dollars(chosen.cost[0])} a month"
    if len(kept) == 1:
        return f"{told}, the only lane{priced} that keeps what you ask."
    second = kept[1]
    if second.costs_as(chosen):
        why = "it changes the answers least" if chosen.order()[:2] != second.order()[:2] else "it is the faster one"
        near = "to the cent" if abs(second.cost[0] - chosen.cost[0]) <= CENT else "within 1 %"
        within = "" if dollars(second.cost[0]) == dollars(chosen.cost[0]) else f" {near} ({dollars(second.cost[0])})"
        return f"{told}, as much as {second.name}{within}, and {why}."
    return f"{told}, and {second.name} {dollars(second.cost[0])}{_times(second.cost[0], chosen.cost[0])}."


def _times(more: float, less: float) -> str:
    return f", {more / less:.1f} times as much" if less and more / less >= 1.05 else ""


def because(kept: Sequence[Judged], chosen: Judged | None, judged: Sequence[Judged]) -> list[str]:
    """Each rule that decided: those of the lanes that may be served, and why each other one is out."""
    found = []
    for each in [chosen] if chosen else kept:
        found += [f"{each.lane.lane} {KEPT[rule.keeps]} {ON[rule.title]}: {rule.words}; {rule.margin}." for rule in each.candidate.rules]
    if chosen and len(kept) > 1:
        others = ", ".join(f"{each.lane.lane} {dollars(each.cost[0])}" for each in kept[1:])
        limits = "Of the lanes that keep the limits" if any(each.candidate.rules for each in kept) else "No limit is asked, and of the lanes"
        limits += ", or may keep them," if any(each.open_rules for each in kept) else ""
        by = " by more than 1 %" if any(each.cost[0] < chosen.cost[0] - CENT for each in kept[1:]) else ""
        found.append(f"{limits} none is cheaper{by}: {chosen.lane.lane} {dollars(chosen.cost[0])} a month, {others}.")
        found += [f"{each.lane.lane} {KEPT[None]} {ON[rule.title]}, which decides nothing: {rule.words}." for each in kept[1:] for rule in each.open_rules]
    return found + [f"{each.lane.lane} is out: {each.candidate.out}" for each in judged if each.candidate.out]


def turned_by(asked: Asked, kept: Sequence[Judged], chosen: Judged | None, judged: Sequence[Judged], turns: Sequence[Turn]) -> list[str]:
    """What would turn the decision: prices, limits, answers a day; where there is none, what would make one."""
    found = [*_woken(asked, judged), *_answers(turns, asked.answers_per_day)]
    if chosen is None:
        open_rules = [f"{rule.title} of {each.lane.lane}: {rule.margin}." for each in kept for rule in each.open_rules]
        return [*open_rules, *_apart(asked, kept), *_relaxed(judged, None), *found]
    return [*_prices(asked, chosen, kept), *_tightened(asked, chosen), *_relaxed(judged, chosen), *_one_more(asked, chosen), *found]


def _apart(asked: Asked, kept: Sequence[Judged]) -> list[str]:
    """The prices of the first lane at which its cost would no longer overlap another's."""
    found = []
    for other in kept[1:]:
        first = kept[0]
        _, low, high = first.cost
        _, other_low, other_high = other.cost
        if other_low >= high or not low or not other_low or other.costs_as(first):
            continue
        now = asked.prices[first.lane.lane].dollars_per_hour
        found.append(
            f"Price: {first.lane.lane} would surely be the cheaper one under {price(now * other_low / high)} an hour, {other.lane.lane} over "
            f"{price(now * other_high / low)} (now {price_given(now)}); more runs bring the two closer."
        )
    return found


def _prices(asked: Asked, chosen: Judged, kept: Sequence[Judged]) -> list[str]:
    """The price at which another lane that keeps the limits would be the cheaper one."""
    found = []
    for other in kept:
        hours = other.candidate.hours_per_day
        tied = other.costs_as(chosen) and abs(other.cost[0] - chosen.cost[0]) > CENT  # nearly equal: it may be the cheaper one already
        if other is chosen or not hours or tied:
            continue
        even = chosen.cost[0] / (hours * DAYS_A_MONTH)
        own = other.cost[0] / ((chosen.candidate.hours_per_day or 1.0) * DAYS_A_MONTH)
        now = [asked.prices[each.lane.lane].dollars_per_hour for each in (other, chosen)]
        under = f"{other.lane.lane} would be the cheaper one under {price(even)} an hour (now {price_given(now[0])})" if even else ""
        over = f"{'or ' if under else ''}{chosen.lane.lane}{'' if under else ' would be'} the dearer one over {price(own)}{'' if under else ' an hour'} (now {price_given(now[1])})"
        found.append(f"Price: {', '.join(filter(None, (under, over)))}.")
    return found


def _tightened(asked: Asked, chosen: Judged) -> list[str]:
    """The limits from which on the chosen lane would no longer be sure to keep them."""
    lane, keeps = chosen.lane, _surely_keeps(chosen.serving) if chosen.serving else Limits()
    both = ((FIRST, keeps.first_s), (TOTAL, keeps.total_s))
    found = [f"{title}: under a limit of {seconds_to(limit_s, math.ceil)} {lane.lane} is not sure to keep it." for title, limit_s in both if limit_s]
    if asked.min_agreement is not None and lane.agreement is not None and not lane.is_reference:
        least = math.ceil(1e4 * (lane.agreement - ERRORS * (lane.agreement_se or 0.0))) / 1e4
        found.append(f"{AGREEMENT}: from {percent(least)} asked on {lane.lane} is not sure to keep it.")
    return found


def _surely_keeps(serving: Serving) -> Limits:
    """The shortest limits on time that it surely keeps, of those that are asked; who wakes it counts where it sleeps between visits."""
    asked, line, waits = serving.asked, serving.line, serving.waits
    first_s, total_s = spread(line.first_s)[1], spread(line.total_s)[1]
    if asked.sleep_after_min is not None:
        first_s, total_s = max(first_s, waits.first_s), max(total_s, waits.total_s)
    return Limits(asked.max_first_token_s and first_s, asked.max_total_s and total_s)


def _relaxed(judged: Sequence[Judged], chosen: Judged | None) -> list[str]:
    """The limits that would let in a lane that is out; where one is chosen, only a lane that would be cheaper."""
    found = []
    for each in judged:
        lane, titles = each.lane, {rule.title for rule in each.broken_rules}
        if not each.serving or not titles or (each.serving.batches and WAIT in titles):
            continue
        serving, needs = _accepted(each.serving)
        if AGREEMENT in titles and lane.agreement:
            least = max(0.0, lane.agreement - ERRORS * (lane.agreement_se or 0.0))
            needs.append(f"{percent(math.floor(1e4 * least) / 1e4)} equal first choices")
        if LOST in titles and lane.lost is not None:
            needs.append(f"{percent(math.ceil(1e4 * likely(lane.lost, lane.expected)[1]) / 1e4)} of the expected answers lost")
        month = serving.curve.month(serving.asked.answers_per_day) if each.candidate.cost_month is not None else None
        if needs and not (chosen and (month is None or month > chosen.cost[0])):
            cost = "" if month is None else f", at {dollars(month)} a month"
            found.append(f"Limits: {lane.lane} would be in where you accept {' and '.join(needs)}{cost}.")
    return found


def _accepted(serving: Serving) -> tuple[Serving, list[str]]:
    """The lane under limits on time that it surely keeps, and those that are longer for it than what is asked."""
    asked = eased = serving.asked
    for _ in range(2):  # under other limits it takes other machines, and who wakes one waits otherwise
        keeps = _surely_keeps(serving)
        eased = replace(
            eased, max_first_token_s=keeps.first_s and max(keeps.first_s, eased.max_first_token_s or 0.0),
            max_total_s=keeps.total_s and max(keeps.total_s, eased.max_total_s or 0.0),
        )  # fmt: skip
        serving = replace(serving, asked=eased)
    both = (("a first token of", asked.max_first_token_s, eased.max_first_token_s), ("an answer of", asked.max_total_s, eased.max_total_s))
    return serving, [f"{what} {seconds_to(now, math.ceil)}" for what, before, now in both if before and now and now > before]


def _one_more(asked: Asked, chosen: Judged) -> list[str]:
    """The answers a day from which on it takes another machine."""
    serving = chosen.serving
    if serving is None or serving.capacity_per_day is None:
        return []
    most = serving.machines * serving.capacity_per_day
    return [
        f"Answers a day: over {at_most(most)} {chosen.lane.lane} takes {serving.machines + 1} machines, {dollars(serving.curve.month(most * 1.001))} a month."
    ]


def _woken(asked: Asked, judged: Sequence[Judged]) -> list[str]:
    """The fewest answers a day that a lane which sleeps between visits needs to keep the limits on time: with fewer, more of its visitors wake it."""
    found: dict[str, list[str]] = {}
    for each in judged:
        fewest = each.serving.fewest_per_day if each.serving and all(rule.title == WAIT for rule in each.broken_rules) else None
        if fewest is None or (each.broken_rules and fewest <= asked.answers_per_day):
            continue
        about = digits(float(f"{fewest:.1e}"))
        kept = f"from about {about} on fewer of the visitors wake the machine, and the limit on time is kept"
        breaks = f"under about {about} more of the visitors wake the machine, and the limit on time breaks"
        found.setdefault(kept if each.broken_rules else breaks, []).append(each.lane.lane)
    return [f"Answers a day: {words}, estimated: {', '.join(lanes)}." for words, lanes in found.items()]


def _answers(turns: Sequence[Turn], now: float) -> list[str]:
    """The turning points around the answers a day that are asked, the nearest first below, then above."""
    below, above = [turn for turn in turns if turn.answers_per_day <= now], [turn for turn in turns if turn.answers_per_day > now]
    found = [f"Answers a day: {_under(below)} {turn.before} is the cheaper one." for turn in below[-1:]]
    found += [f"Answers a day: from {number(turn.answers_per_day)} on {turn.then} is the cheaper one." for turn in above[:MOST_TURNS]]
    if len(above) > MOST_TURNS:
        last = above[-1]
        found.append(
            f"Machines come whole, so it turns {count(len(above) - MOST_TURNS, 'more time')}, the last time at {number(last.answers_per_day)}, to {last.then}."
        )
    return found


def _under(below: Sequence[Turn]) -> str:
    """Where the lane before the last of these turns is the cheaper one: machines come whole, so that further down another one may be."""
    last, before = below[-1].answers_per_day, below[-2].answers_per_day if len(below) > 1 else None
    if before is None:
        return f"under {number(last)}"
    return f"from {number(before)} to {number(last - 1)}" if last - 1 > before else f"at {number(before)}"


def remarks(asked: Asked, found: Gathered, judged: Sequence[Judged]) -> list[str]:
    """What must be said beside the decision; once, where it holds of several lanes."""
    told = list(found.remarks)
    if any(each.lane.noise for each in judged):
        told.append("The weights are random: speed and cost are decided on, the quality of the answers is not.")
    lanes: dict[str, list[str]] = {}
    for each in judged:
        for words in (*each.lane.notes, *_of_the_price(each, asked.prices.get(each.lane.lane)), *_of_the_length(each, asked)):
            lanes.setdefault(words, []).append(each.lane.lane)
    told += [f"{'All lanes' if len(of) == len(judged) > 1 else ', '.join(of)}: {words}" for words, of in lanes.items()]
    if asked.sleep_after_min is not None:
        told.append("Waking is the model's load alone, as measured: what a provider takes to start a machine, and to fetch the model, comes on top.")
    return told


def _of_the_length(each: Judged, asked: Asked) -> list[str]:
    """What sets the length of an answer that is decided on apart from the measured ones."""
    tokens, found = each.lane.new_tokens, []
    if each.serving and each.serving.scaled and tokens and asked.tokens and asked.tokens > FAR * max(tokens):
        found.append(f"{count(asked.tokens)} are far more than the {max(tokens)} measured, and a token takes longer the more stand before it.")
    wanted = asked.tokens or (statistics.median(tokens) if tokens else None)
    under_load = next((load.new_tokens for load in each.lane.clients if load.new_tokens), None)
    if each.serving and each.serving.batches and wanted and under_load and not same_size(under_load / wanted):
        found.append(f"its load was measured with answers of {many(under_load, 'token')}, not of {wanted:g}: what one machine can give is of those.")
    return found


def _of_the_price(each: Judged, price: Price | None) -> list[str]:
    """What sets the priced hardware apart from the measured one."""
    if price is None:
        return []
    hardware = each.lane.hardware
    if price.dollars_per_hour == 0:
        return ["the hardware costs nothing, so only a limit can decide against it."]
    if price.gpu and not _same_card(price.gpu, hardware):
        return [f"the price is of {price.gpu}, the times are of {hardware}: how long it takes on that card is not known here."]
    if price.hardware and not price.gpu:
        return [f"the price is of {price.hardware}, the times are of {hardware}: whether that is as fast is not known here."]
    return []


def _same_card(priced: str, measured: str) -> bool:
    """Whether all words of the priced card's name, but for its maker's, stand in the measured one's."""
    return set(priced.lower().split()) - {"nvidia"} <= set(measured.lower().replace("-", " ").split())
