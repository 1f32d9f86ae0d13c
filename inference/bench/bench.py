"""Our lanes against plain `generate`: same weights, same prompts, greedy, two resident processes alternating A B A B.

In: settings and a plan. Out: per lane the medians of both ways, ours / plain, whether the tokens are those that they must be, and on the CPU how
near to what the machine can do. Loads are those of the two fresh processes.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

from inference import terminal
from inference.bench import limits
from inference.bench.forks import Judge
from inference.bench.lengths import by_length
from inference.bench.logits import logits
from inference.bench.side import Side, peer_side, resolved, start_plain_worker
from inference.bench.table import bench_table
from inference.engine.compare import warm_up
from inference.engine.engine import Engine
from inference.errors import InferenceError, WrongArguments
from inference.events import Request
from inference.record.figures import FIRST_TOKEN, LOAD, SPEED, TOTAL, WEIGHTS
from inference.record.figures import ratio as ratio_of
from inference.score_events import MOST_POSITIONS
from inference.settings import Settings

RATIOS = {figure.short: figure.key for figure in (SPEED, FIRST_TOKEN, TOTAL, LOAD, WEIGHTS)}
NO_PLAIN = "plain generate was left out"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What is to be measured: `rounds` answers of each way to each request, `peers` beside ours and plain.

    With `positions`, the log-probabilities of both ways on so many positions of a fixed text are held together as well. Without `plain` ours is
    held against nothing. `lengths`: the tokens of each request's prompt, where they were asked for.
    """

    requests: tuple[Request, ...]
    rounds: int = 5
    peers: tuple[str, ...] = ()
    positions: int = 0
    plain: bool = True
    lengths: tuple[int, ...] = ()

    def check(self) -> None:
        """Raise WrongArguments, before anything is loaded, for what no bench can be made with."""
        if any(request.temperature for request in self.requests):
            raise WrongArguments("The bench compares greedy answers. Leave the temperature at 0.")
        if self.rounds < 1:
            raise WrongArguments(f"--rounds must be 1 or more, not {self.rounds}.")
        if not 0 <= self.positions <= MOST_POSITIONS:
            raise WrongArguments(f"--positions must be from 0 to {MOST_POSITIONS}, not {self.positions}.")
        if self.positions and not self.plain:
            raise WrongArguments("--positions holds our lane against plain generate, which --ours-only leaves out. Leave one of them out.")


@dataclass(frozen=True)
class Measured:
    """The answers of each way to one request, by name (plain, ours, peers), and what the machine could do meanwhile."""

    request: Request
    sides: dict[str, Side]
    limits: list[limits.Limits]


def bench(settings: Settings, plan: Plan, say: Say, found: dict[str, Any] | None = None) -> dict[str, Any]:
    """The benchmark of each lane of the settings, one lane after the other; raises InferenceError, WrongArguments before anything is loaded.

    On the CPU the peers take part in each round; on a GPU, which may not hold them all, they come afterwards. What is measured is
    said, and put into `found` by its lane, before more is, so that a bench that is cut off loses none of it.
    """
    plan.check()
    lanes = [resolved(lane, settings) for lane in settings.lanes]
    _check_peers(lanes, plan.peers)
    found = {} if found is None else found
    for lane in lanes:
        if found:
            say(bench_table({"lanes": found}, terminal.width(sys.stderr)))
        alone = replace(settings, lanes=(lane,))
        beside, after = (plan.peers, ()) if lane.startswith("cpu") else ((), plan.peers)
        found[lane] = bench_lane(alone, replace(plan, peers=beside), say)
        for peer in after:
            say(bench_table({"lanes": found}, terminal.width(sys.stderr)))
            entries = found[lane].get("lengths", [found[lane]])
            asked = [(entry, request) for entry, request in zip(entries, plan.requests, strict=True) if "why_not" not in entry]
            figures = bench_peer(alone, peer, replace(plan, requests=tuple(request for _, request in asked)), say)
            for (entry, _), one in zip(asked, figures, strict=True):
                entry["peers"][peer] = one
    return {"lanes": found} | ({"by_length": by_length(found)} if len(plan.lengths) > 1 else {})


def _check_peers(lanes: Sequence[str], peers: Sequence[str]) -> None:
    """Raise WrongArguments, before anything is loaded, for a peer that can't stand beside one of the lanes."""
    for lane in lanes:
        if "bf16" in peers and not lane.startswith("cuda"):
            raise WrongArguments(f"The peer bf16 runs on a GPU, so it can't stand beside {lane}. Leave it out, or name --lanes cuda:nf4.")
        if "llama.cpp" in peers and not lane.startswith("cpu"):
            raise WrongArguments(f"The peer llama.cpp is measured on the CPU, so it can't stand beside {lane}. Leave it out, or name --lanes cpu:fp32,cpu:nf4.")


def bench_peer(settings: Settings, peer: str, plan: Plan, say: Say) -> list[dict[str, Any]]:
    """Another way on the same machine, after the lane's processes have ended: its figures for each request, in the same form."""
    side = peer_side(settings, peer)
    with side.engine:
        return [_alone(side, request, peer, plan.rounds, say) for request in plan.requests]


def _alone(side: Side, request: Request, peer: str, rounds: int, say: Say) -> dict[str, Any]:
    side = replace(side, runs=[])
    for number in range(2 + rounds):
        say(f"{side.lane}: {peer}, " + (f"warm-up {number + 1}" if number < 2 else f"round {number - 1} of {rounds}"))
        done = side.ask(request)
        if number >= 2:
            side.runs.append(done)
    return side.figures()


def bench_lane(settings: Settings, plan: Plan, say: Say) -> dict[str, Any]:
    """One lane: loads, warm-ups until our path has settled, then for each request `rounds` times plain, ours and each peer; the tokens at the end."""
    lane = settings.lanes[0]
    ours = Side(Engine(settings), lane, [])
    sides = {"plain": Side(Engine(settings, start_plain_worker), lane, [])} if plan.plain else {}
    sides |= {"ours": ours, **{peer: peer_side(settings, peer) for peer in plan.peers}}
    with ExitStack() as stack:
        for name, side in sides.items():
            stack.enter_context(side.engine)
            say(f"{lane}: loading {name}")
            side.ask(plan.requests[0])
        say(f"{lane}: warming up, until our fastest path is ready")
        warm_up(ours.engine, plan.requests[0])
        meter = limits.meter(ours.facts.threads or 1) if lane.startswith("cpu") else None
        measured = [_measured_or_why_not(sides, request, plan, meter, say) for request in plan.requests]
        apart = None
        if plan.positions:
            say(f"{lane}: the log-probabilities of {plan.positions} positions")
            apart = {"logits": _logits_or_why_not(sides["plain"], ours, plan.positions)}
        say(f"{lane}: looking at the tokens")
        judge = Judge(settings, sides["plain"], ours, stack) if plan.plain else None
        results = [_result(one, judge) if isinstance(one, Measured) else one for one in measured]
    return results[0] | (apart or {}) | ({"lengths": results} if len(results) > 1 else {})


def _logits_or_why_not(plain: Side, ours: Side, positions: int) -> dict[str, Any]:
    """The speeds stand whether or not this can be measured as well."""
    try:
        return logits(plain, ours, positions)
    except InferenceError as error:
        return {"why_not": str(error)}


def _measured_or_why_not(sides: dict[str, Side], request: Request, plan: Plan, meter: limits.Meter | None, say: Say) -> Measured | dict[str, Any]:
    """The rounds of one request; where there are more of them, one that can't be answered is told (`why_not`) and the others go on. Raises InferenceError."""
    try:
        return _measured(sides, request, plan, meter, say)
    except InferenceError as error:
        if request == plan.requests[0]:  # the shortest, which has loaded the lane
            raise
        for side in sides.values():
            side.ask(plan.requests[0])  # brings back a process that it ended
        return {"prompt_tokens": plan.lengths[plan.requests.index(request)], "why_not": str(error)}


def _measured(sides: dict[str, Side], request: Request, plan: Plan, meter: limits.Meter | None, say: Say) -> Measured:
    """The rounds of one request, the machine's limits measured before the first and after each."""
    sides = {name: replace(side, runs=[]) for name, side in sides.items()}
    if request != plan.requests[0]:  # which they have answered already
        for side in sides.values():
            side.ask(request)
    found = [meter.measure()] if meter else []
    for number in range(plan.rounds):
        prompt = f", prompt {plan.requests.index(request) + 1} of {len(plan.requests)}" if len(plan.requests) > 1 else ""
        say(f"{sides['ours'].lane}: round {number + 1} of {plan.rounds}{prompt}")
        for side in sides.values():
            side.runs.append(side.ask(request))
        if meter:
            found.append(meter.measure())
    return Measured(request, sides, found)


def _result(measured: Measured, judge: Judge | None) -> dict[str, Any]:
    ours = measured.sides["ours"]
    shown = measured.sides.get("plain", ours)
    figures = {name: side.figures() for name, side in measured.sides.items()}
    both: dict[str, Any] = {name: figures.pop(name) for name in ("plain", "ours") if name in figures}
    plain = both.get("plain")
    return {
        **both,
        "ratio": {short: ratio_of(both["ours"][key], plain[key]) for short, key in RATIOS.items()} if plain else {},
        **_tokens(measured, judge),
        "distinct_tokens": len(set(shown.runs[-1].token_ids)),
        "note": shown.facts.note,
        "peers": figures,
        **_shares(ours, both["ours"], measured.limits),
    }


def _tokens(measured: Measured, judge: Judge | None) -> dict[str, Any]:
    """Whether our answers are the right one, and where they are not, the fork as the judge finds it; None where there was no room to find out, or no judge."""
    ours = measured.sides["ours"].runs
    found: dict[str, Any] = {"tokens_equal": None, "tokens_against": None, "repeats_equal": len({run.token_ids for run in ours}) == 1, "fork": None}
    if judge is None:
        return found | {"tokens_why_not": NO_PLAIN}
    found["tokens_against"] = judge.against
    try:
        right = judge.right(measured.request, measured.sides["plain"].runs[-1].token_ids)
        fork = judge.fork(measured.request, right, ours[-1].token_ids)
    except InferenceError as error:
        return found | {"tokens_why_not": str(error)}
    return found | {"tokens_equal": fork is None and found["repeats_equal"], "fork": asdict(fork) if fork else None}


def _shares(side: Side, figures: dict[str, Any], found: list[limits.Limits]) -> dict[str, Any]:
    """The medians of what the machine could do, and what our lane made of it: of the reads while it writes, of the products until its first token."""
    if not found:
        return {}
    facts, bandwidth, peak = side.facts, *(statistics.median(getattr(one, name) for one in found) for name in ("read_bandwidth", "fma_peak"))
    read = facts.step_bytes and figures["decode_tps"] and facts.step_bytes * figures["decode_tps"]
    computed = facts.matrix_parameters and figures["ttft_s"] and 2 * facts.matrix_parameters * figures["prompt_tokens"] / figures["ttft_s"]
    return {"read_bandwidth": bandwidth, "bandwidth_share": ratio_of(read, bandwidth), "fma_peak": peak, "peak_share": ratio_of(computed, peak)}
