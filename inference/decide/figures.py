"""A lane's numbers for people, each with where it is from: measured, given by the person, or estimated from both.

In: a lane serving what is asked. Out: a `Traced` for each number that is known. Judges nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from inference.decide import costs
from inference.decide.model import DAYS_A_MONTH, HOURS_A_MONTH, Traced
from inference.decide.serving import MANY_RUNS, Serving, at_most
from inference.units import count, digits, joules, many, percent, seconds

RUNS = "median (quickest - slowest)"


def figures(serving: Serving, month: tuple[float, float, float]) -> tuple[Traced, ...]:
    """All of a lane's numbers; `month` is what it costs, and that from the quickest and the slowest answer, in dollars."""
    return (*_measured(serving), *_served(serving), *_dollars(serving, month), *_quality(serving))


def _measured(serving: Serving) -> list[Traced]:
    lane, asked = serving.lane, serving.asked
    whole = f"measured: {RUNS}"
    if serving.scaled:
        whole = f"estimated for {count(asked.tokens or 0)}: measured first token and time a token; {RUNS}"
    found = [Traced("First token", spread(serving.line.first_s), f"measured: {RUNS}"), Traced("Whole answer", spread(serving.line.total_s), whole)]
    if lane.new_tokens and not serving.scaled:
        low, high = min(lane.new_tokens), max(lane.new_tokens)
        found.append(Traced("Tokens an answer", f"{low}" if low == high else f"{low} to {high}", "measured"))
    if asked.sleep_after_min is not None:
        found.append(Traced("Load", seconds(lane.load_s), "measured: what waking it takes, of the model alone"))
    if lane.energy_j is not None and not serving.scaled:
        found.append(Traced("Energy an answer", joules(lane.energy_j), "measured: its counter, idle power included"))
    return found


def _served(serving: Serving) -> list[Traced]:
    asked, waits = serving.asked, serving.waits
    hours = serving.curve.hours(asked.answers_per_day)
    found = [
        Traced("One machine can give", *_capacity(serving)),
        Traced("Machines", f"{serving.machines}", _why_machines(serving)),
    ]
    if serving.lane.clients:
        rates = ", ".join(f"{digits(each.answers_per_min, 3)} with {count(each.clients, 'client')}" for each in serving.lane.clients)
        length = next((each.new_tokens for each in serving.lane.clients if each.new_tokens), None)
        of = "" if length is None else f" with answers of {many(length, 'token')}"
        found.append(Traced("Answers a minute", rates, f"measured{of}; one after the other it would be {digits(60 / serving.line.mean_s, 3)}, estimated"))
    if not serving.batches:
        source = f"estimated: a line simulated with Poisson arrivals over {many(asked.open_hours, 'hour')}, answers drawn from those measured"
        found.append(Traced("First token with the wait, p95", seconds(waits.first_s), source))
        found.append(Traced("Whole answer with the wait, p95", seconds(waits.total_s), "estimated: the same"))
    found.append(Traced("Hours of hardware a day", some_hours(hours), _hours(serving)))
    return found


def _why_machines(serving: Serving) -> str:
    """What so many machines are for."""
    a_day = f"your {many(serving.asked.answers_per_day, 'answer')} a day"
    kept = serving.capacity_per_day or serving.at_best_per_day
    return f"for {a_day}" if kept else f"the fewest that have time for {a_day}; they don't keep your limits"


def _hours(serving: Serving) -> str:
    """What the hours are made of."""
    asked, day = serving.asked, serving.curve.awake(serving.asked.answers_per_day)
    if serving.batches and asked.sleep_after_min is None:
        return "24 x machines, always on"
    if serving.batches:
        return f"estimated: awake until {many(asked.sleep_after_min or 0.0, 'minute')} after a visitor"
    if asked.sleep_after_min is None:
        return f"24 x machines, always on; {some_hours(serving.machines * day.answering)} of them at work, estimated"
    each = "" if serving.machines == 1 else " on each machine"
    parts = f"{some_hours(day.answering)} answering, {some_hours(day.idle)} idle until asleep after {many(asked.sleep_after_min, 'minute')}"
    return f"estimated: {parts}, {some_hours(day.loading)} in {some_hours(day.loads)} loads{each}"


def _capacity(serving: Serving) -> tuple[str, str]:
    """What one machine can answer a day, in words, and why just that."""
    capacity, limits = serving.capacity_per_day, serving.limits
    if capacity is None and (most := serving.at_best_per_day):
        return f"{_a_day(most)} at most", "estimated: under limits that its runs surely keep, the wait included; under yours it may be none"
    if capacity is None:
        return "none that keeps the limits", "measured answers alone break them" if not serving.batches else "measured with each number of clients"
    told = _a_day(capacity)
    if serving.batches and (best := serving.most_clients):
        return told, f"measured: {digits(best.answers_per_min, 3)} a minute with {count(best.clients, 'client')} at once, the most that keeps the limits"
    if limits.first_s is None and limits.total_s is None:
        return told, "estimated: no limit on time is asked, so as many as keep it just not always busy; waits have no end then"
    return told, "estimated: as many as keep your limits at p95, the wait included"


def _a_day(most: float) -> str:
    """ "41,000 answers a day"."""
    told = at_most(most)
    return f"{told} answer{'s' * (told != '1')} a day"


def _dollars(serving: Serving, month: tuple[float, float, float]) -> list[Traced]:
    asked, given = serving.asked, serving.asked.prices.get(serving.lane.lane)
    if given is None:
        return []
    middle, low, high = month
    between = "" if dollars(low) == dollars(high) else f" ({dollars(low)} to {dollars(high)})"
    way = (
        f"price x {HOURS_A_MONTH:.0f} hours a month x machines"
        if asked.sleep_after_min is None
        else f"estimated: price x hours a day x {DAYS_A_MONTH:.2f} days"
    )
    how = "the quickest and from the slowest answer" if len(serving.line.total_s) < MANY_RUNS else "a mean two standard errors less, and more"
    ends = f"; from {how}" if between else ""
    floor = costs.floor_of_1000(given.dollars_per_hour, serving.seconds_at_full_use)
    return [
        Traced("Price", f"{price_given(given.dollars_per_hour)} an hour", given.source),
        Traced("Cost a month", f"{dollars(middle)}{between}", f"{way}{ends}"),
        Traced("Cost of 1,000 answers", dollars(costs.of_1000(middle, asked.answers_per_day)), f"cost a month / (your answers a day x {DAYS_A_MONTH:.2f}) x 1,000"),
        Traced("The same, never idle", dollars(floor), f"price x {seconds(serving.seconds_at_full_use)} an answer / 3.6, the least that it can be"),
    ]  # fmt: skip


def _quality(serving: Serving) -> list[Traced]:
    lane = serving.lane
    if lane.is_reference:
        return [Traced("Same first choice", "the reference", "what the others are held against")]
    found = []
    if lane.agreement is not None:
        told = f"{percent(lane.agreement)} ± {percent(lane.agreement_se or 0.0)}"
        found.append(Traced("Same first choice", told, f"measured over {count(lane.positions, 'position')}"))
    if lane.lost is not None:
        found.append(Traced("Answers lost", f"{lane.lost} of {lane.expected}", "measured: expected answers that the reference holds, and this lane does not"))
    return found


def spread(values: Sequence[float]) -> str:
    """ "0.42 s (0.40 s - 0.46 s, n 5)"."""
    middle = seconds(statistics.median(values))
    return f"{middle} ({seconds(min(values))} - {seconds(max(values))}, n {len(values)})" if len(values) > 1 else f"{middle} (n 1)"


def some_hours(value: float) -> str:
    """ "24.00", and to two figures what is less than a tenth: "0.0042"."""
    return f"{value:.2f}" if value >= 0.0995 or value == 0 else digits(value, 2)


def dollars(value: float) -> str:
    """ "$1,234.56", and to three figures what is less than ten cents: "$0.0123"."""
    return f"${value:,.2f}" if value >= 0.0995 or value == 0 else f"${value:#.3g}" if value >= 1e-4 else f"${digits(value, 3)}"


def price(dollars_per_hour: float, most: int = 4) -> str:
    """A price an hour to four digits: "$0.2769", "$3.60"."""
    whole, _, cents = digits(dollars_per_hour, most).partition(".")
    return f"${whole}.{cents:0<2}" if cents else f"${whole}"


def price_given(dollars_per_hour: float) -> str:
    """A price as it was given, never rounded to another: "$0.1254"."""
    return price(dollars_per_hour, most=10)


def number(value: float) -> str:
    """Answers a day: whole, but few of them to three figures."""
    return digits(value if value == int(value) else round(value)) if value >= 100 else digits(value, 3)
