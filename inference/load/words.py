"""Lanes under load for people and for machines: a table a lane, where the limits break, what went wrong; the same as one JSON object.

In: a plan and what was measured by it. Out: text, at most so many columns wide; a dictionary for JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from inference import terminal
from inference.load.clients import LaneLoad
from inference.load.level import FAILED, LEAST_FOR_P95, LEFT, Level, Limit, limit_of
from inference.load.plan import Plan
from inference.record import grid
from inference.units import UNKNOWN, count, exact_seconds, seconds, seconds_to

HEAD = ("clients", "first\ntoken\np50", "\n\np95", "\n\nmax", "\ntotal\np50", "\n\np95", "\n\nmax", "answers\na\nminute", "\n\nn")
HANG = 2
MOST_APART = 1.25  # between two levels of a lane that answers one at a time
LIMITS = (("first_token", "max_first_token_s", "to the first token"), ("total", "max_total_s", "for the whole answer"))


def as_json(plan: Plan, lanes: Sequence[LaneLoad], model_id: str) -> dict[str, Any]:
    """`clients`: each lane's levels; `limits`: where each limit that was given breaks; `why_not` of lanes that answered nothing."""
    named = [each for each in lanes if each.model_id]
    loaded = [each.model_id for each in sorted(named, key=lambda each: each.elsewhere)]  # a server has a name of its own for its model
    return {
        "clients": {each.lane: [level.as_json() for level in each.levels] for each in lanes},
        "model": loaded[0] if loaded else model_id,
        "max_new_tokens": plan.request.max_new_tokens,
        "rounds": plan.rounds,
        "leave_every": plan.leave_every,
        "hardware": {each.lane: each.device_name for each in lanes},
        "limits": {each.lane: {f"{figure}_s": asdict(limit) for figure, _, limit in _limits(plan, each)} for each in lanes},
        "why_not": {each.lane: each.why_not for each in lanes if each.why_not},
    }


def all_answered(lanes: Sequence[LaneLoad]) -> bool:
    """Whether no lane was without an answer, and no question failed."""
    return not any(each.why_not or level.of(FAILED) for each in lanes for level in each.levels or (Level(0, ()),))


def load_table(plan: Plan, lanes: Sequence[LaneLoad], width: int = terminal.USUAL_WIDTH) -> str:
    """How it was measured; then of each lane how it answers, a row for each number of clients, and sentences."""
    asked = f"Each client has {count(plan.rounds, 'question')}, all come at once, and each asks again as soon as it is answered."
    p95 = f"The p95 stands from {LEAST_FOR_P95} answers on."
    most = f"At most {count(plan.request.max_new_tokens, 'new token')} an answer."
    alone = "The lanes are asked one after the other, each alone." if len(lanes) > 1 else ""
    head = f"{asked} {most} {alone} Times are from the question on, waiting included, loading left out. {p95}".replace("  ", " ")
    return "\n\n".join([terminal.wrapped(head, width), *(_lane(plan, each, width) for each in lanes)])


def _lane(plan: Plan, load: LaneLoad, width: int) -> str:
    if load.why_not:
        return terminal.wrapped(f"Not measured under load. {load.why_not}", width, HANG)
    told = terminal.wrapped(f"{load.lane}: {_how(load)}", width, HANG)
    rows = [HEAD, *(_row(level) for level in load.levels)]
    sentences = [words for level in load.levels for words in _went_wrong(level)]
    sentences += [*_ended_early(plan, load), *(_limit_words(words, limit) for _, words, limit in _limits(plan, load))]
    sentences += _not_alone(load)
    if load.elsewhere and plan.repeats_prompts:
        sentences.append("There are fewer prompts than questions, so prompts came again: a server that keeps what it has read answers them sooner.")
    below = [terminal.wrapped("\n".join(sentences), width, HANG)] if sentences else []
    return "\n\n".join([told, grid.fitted(rows, width), *below])


def _how(load: LaneLoad) -> str:
    if load.elsewhere:
        return (
            "a server, which may answer many at once. Each client is a process of its own here, asking the same server; times are taken here, "
            "so the network is in them, and who else asks it is not known."
        )
    on = f" ({load.device_name})" if load.device_name else ""
    return f"a lane that answers one at a time, first come first{on}. All clients wait in one line."


def _row(level: Level) -> tuple[str, ...]:
    times = [seconds(value) for spread in (level.first_token, level.total) for value in (spread.p50, spread.p95, spread.max)]
    found = level.as_json()
    rate = level.answers_per_min
    return (str(level.clients), *times, UNKNOWN if rate is None else f"{rate:.0f}" if rate >= 99.5 else f"{rate:.1f}", str(found["n"]))


def _went_wrong(level: Level) -> Iterator[str]:
    """What of a level is no answer, in sentences."""
    whom, of = f"With {count(level.clients, 'client')}", f"of {count(len(level.seen), 'question')}"
    if failed := len(level.of(FAILED)):
        others = "; the others went on" if failed < len(level.seen) else ""
        more = f" (For others there were {count(len(level.errors) - 1, 'other reason')}.)" if len(level.errors) > 1 else ""
        yield f"{whom} {failed} {of} failed{others}: {level.errors[0]}{more}"
    if left := len(level.of(LEFT)):
        yield f"{whom} {left} {of} {'was' if left == 1 else 'were'} left in the middle of the answer, in no figure; the others went on."
    if level.load_s:
        yield f"{whom} the lane loaded for {seconds(level.load_s)} in between, which is in no figure."


def _not_alone(load: LaneLoad) -> list[str]:
    """A lane that answers one at a time writes as fast for eight clients as for one: where it did not, others had a part of the machine."""
    known = sorted((level.tpot_s, level.clients) for level in load.levels if level.tpot_s)
    if load.elsewhere or not known or known[-1][0] < MOST_APART * known[0][0]:
        return []
    (fast, few), (slow, many) = known[0], known[-1]
    return [
        f"A token took {seconds(fast)} with {count(few, 'client')} and {seconds(slow)} with {many}, though one answer is written at a time: "
        "other programs were at work. Measure again when they are not."
    ]


def _ended_early(plan: Plan, load: LaneLoad) -> list[str]:
    rest = sorted(plan.clients)[len(load.levels) :]
    return [f"With {load.levels[-1].clients} nothing was answered, so {', '.join(map(str, rest))} were not tried."] if rest else []


def _limits(plan: Plan, load: LaneLoad) -> Iterator[tuple[str, str, Limit]]:
    """Of each limit that was given: its figure, what it is for in words, where it breaks."""
    for figure, name, words in LIMITS:
        limit_s = getattr(plan, name)
        if limit_s is not None and (found := limit_of(load.levels, figure, limit_s)):
            yield figure, words, found


def _limit_words(words: str, limit: Limit) -> str:
    allowed = f"{exact_seconds(limit.limit_s)} {words}"
    if limit.breaks is None:
        return f"{allowed}: kept up to {count(limit.keeps or 0, 'client')}, the most that were measured."
    found = "questions failed" if limit.found_s is None else f"{limit.by} {_over(limit.found_s, limit.limit_s)}"
    if limit.keeps is None:
        return f"{allowed}: not kept, with {count(limit.breaks, 'client')} already ({found})."
    between = "; what lies between was not measured" if limit.breaks - limit.keeps > 1 else ""
    return f"{allowed}: kept with {count(limit.keeps, 'client')}, breaks with {limit.breaks} ({found}){between}."


def _over(found_s: float, limit_s: float) -> str:
    """How long it was, as the table has it; rounded up where that would read as the limit."""
    return seconds_to(found_s, math.ceil) if seconds(found_s) == seconds(limit_s) else seconds(found_s)
