"""Our lanes against plain `generate`: same weights, same prompt, greedy, two resident processes alternating A B A B.

In: settings and a prompt. Out: per lane the medians of both ways, ours / plain, whether the tokens are equal, and,
where they are not, whether the first fork is a near tie. Loads are those of the two fresh processes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from inference import terminal
from inference.bench.bandwidth import read_bandwidth
from inference.bench.logits import logits
from inference.bench.side import Side, forced, peer_side, resolved, start_plain_worker
from inference.bench.table import bench_table
from inference.engine.compare import warm_up
from inference.engine.engine import Engine
from inference.errors import WrongArguments
from inference.events import Request
from inference.record.figures import FIRST_TOKEN, LOAD, SPEED, TOTAL, WEIGHTS
from inference.record.figures import ratio as ratio_of
from inference.record.verdict import first_difference
from inference.score_events import MOST_POSITIONS
from inference.settings import Settings

RATIOS = {figure.short: figure.key for figure in (SPEED, FIRST_TOKEN, TOTAL, LOAD, WEIGHTS)}


def bench(settings: Settings, request: Request, rounds: int, say: Callable[[str], None], peers: Sequence[str] = (), positions: int = 0) -> dict[str, Any]:
    """The benchmark of each lane of the settings, one lane after the other, with `peers` beside; raises InferenceError, WrongArguments before anything is loaded.

    With `positions`, the log-probabilities of both ways on so many positions of a fixed text are held together as well.

    On the CPU the peers take part in each round; on a GPU, which may not hold them all, they come afterwards. What is measured is
    said before more is, so that a bench that is cut off loses none of it.
    """
    if request.temperature:
        raise WrongArguments("The bench compares greedy answers. Leave the temperature at 0.")
    check_arguments(rounds, positions)
    lanes = [resolved(lane, settings) for lane in settings.lanes]
    _check_peers(lanes, peers)
    found: dict[str, Any] = {}
    for lane in lanes:
        if found:
            say(bench_table({"lanes": found}, terminal.width(sys.stderr)))
        alone = replace(settings, lanes=(lane,))
        beside, after = (peers, ()) if lane.startswith("cpu") else ((), peers)
        found[lane] = bench_lane(alone, request, rounds, say, beside, positions)
        for peer in after:
            say(bench_table({"lanes": found}, terminal.width(sys.stderr)))
            found[lane]["peers"][peer] = bench_peer(alone, peer, request, rounds, say)
    return {"lanes": found}


def check_arguments(rounds: int, positions: int, prompt_tokens: int = 0) -> None:
    """Raise WrongArguments, before anything is loaded, for numbers that no bench can be made with."""
    if rounds < 1:
        raise WrongArguments(f"--rounds must be 1 or more, not {rounds}.")
    if not 0 <= positions <= MOST_POSITIONS:
        raise WrongArguments(f"--positions must be from 0 to {MOST_POSITIONS}, not {positions}.")
    if prompt_tokens < 0:
        raise WrongArguments(f"--prompt-tokens must be 1 or more (0 takes --prompt), not {prompt_tokens}.")


def _check_peers(lanes: Sequence[str], peers: Sequence[str]) -> None:
    """Raise WrongArguments, before anything is loaded, for a peer that can't stand beside one of the lanes."""
    for lane in lanes:
        if "bf16" in peers and not lane.startswith("cuda"):
            raise WrongArguments(f"The peer bf16 runs on a GPU, so it can't stand beside {lane}. Leave it out, or name --lanes cuda:nf4.")
        if "llama.cpp" in peers and lane != "cpu:fp32":
            raise WrongArguments(f"The peer llama.cpp is measured in FP32 on the CPU, so it can't stand beside {lane}. Leave it out, or name --lanes cpu:fp32.")


def bench_peer(settings: Settings, peer: str, request: Request, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Another way on the same machine, after the lane's processes have ended: its figures, in the same form."""
    side = peer_side(settings, peer)
    with side.engine:
        for number in range(2 + rounds):
            say(f"{side.lane}: {peer}, " + (f"warm-up {number + 1}" if number < 2 else f"round {number - 1} of {rounds}"))
            done = side.ask(request)
            if number >= 2:
                side.runs.append(done)
        return side.figures()


def bench_lane(settings: Settings, request: Request, rounds: int, say: Callable[[str], None], peers: Sequence[str] = (), positions: int = 0) -> dict[str, Any]:
    """One lane: loads, warm-ups until our path has settled, then `rounds` times plain, ours and each of `peers`."""
    lane = settings.lanes[0]
    plain, ours = (Side(engine, lane, []) for engine in (Engine(settings, start_plain_worker), Engine(settings)))
    others = {peer: peer_side(settings, peer) for peer in peers}
    sides = {"plain": plain, "ours": ours, **others}
    with ExitStack() as stack:
        for name, side in sides.items():
            stack.enter_context(side.engine)
            say(f"{lane}: loading {name}")
            side.ask(request)
        say(f"{lane}: warming up, until our fastest path is ready")
        warm_up(ours.engine, request)
        for number in range(rounds):
            say(f"{lane}: round {number + 1} of {rounds}")
            for side in sides.values():
                side.runs.append(side.ask(request))
        result = _result(plain, ours, request)
        if positions:
            say(f"{lane}: the log-probabilities of {positions} positions")
            result["logits"] = logits(plain, ours, positions)
        result["peers"] = {peer: side.figures() for peer, side in others.items()}
    return result | _bandwidth(result["ours"]) if lane.startswith("cpu") else result


def _bandwidth(ours: dict[str, Any]) -> dict[str, Any]:
    """The machine's read bandwidth, now that nothing runs, and the share of it that reading all weights once a token comes to.

    An embedding that is not the head too is counted, though only a row of it is read.
    """
    found = read_bandwidth(ours["threads"] or 1)
    rate = ours["decode_tps"]
    return {"read_bandwidth": found, "bandwidth_share": ours["weights_bytes"] * rate / found if rate else None}


def _result(plain: Side, ours: Side, request: Request) -> dict[str, Any]:
    left, right = plain.runs[-1], ours.runs[-1]
    figures = {"plain": plain.figures(), "ours": ours.figures()}
    ratio = {short: ratio_of(figures["ours"][key], figures["plain"][key]) for short, key in RATIOS.items()}
    equal = all(run.token_ids == left.token_ids for run in [*plain.runs, *ours.runs])
    return {
        **figures,
        "ratio": ratio,
        "tokens_equal": equal,
        "fork": None if left.token_ids == right.token_ids else fork(plain, ours, request, left.token_ids, right.token_ids),
        "distinct_tokens": len(set(left.token_ids)),
        "note": plain.facts.note,
        "peers": {},
    }


def fork(plain: Side, ours: Side, request: Request, left: tuple[int, ...], right: tuple[int, ...]) -> dict[str, Any]:
    """Where two answers part: plain's margin there, and how far the logits of the two ways are apart on plain's ids.

    A near tie is a margin smaller than that difference: either token was as good.
    """
    index = first_difference(left, right)
    assert index is not None
    with tempfile.TemporaryDirectory() as folder:
        a, b = (_logits(side, request, left, Path(folder) / f"{n}.npy") for n, side in enumerate((plain, ours)))
    best = np.sort(a[min(index, len(a) - 1)])[-2:]
    margin, difference = float(best[1] - best[0]), float(np.abs(a - b).max())
    return {"index": index, "margin": margin, "max_logit_diff": difference, "near_tie": margin < difference}


def _logits(side: Side, request: Request, ids: tuple[int, ...], file: Path) -> np.ndarray:
    """Logits step by step while the answer is forced to be `ids`, shape (len(ids), vocabulary)."""
    side.ask(forced(request, ids, file))
    return np.load(file)
