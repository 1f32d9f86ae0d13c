"""Are the tokens the same? Each prompt's answer of our lane held against the right one, every fork judged, and repeats that must be bit-equal.

In: settings, requests. Out: per lane how many answers are equal, every fork (`forks.py`), and the prompts that were not answered the same again,
by one visitor and by two at once. Measures no speed. Knows no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

from inference.bench.bench import Say
from inference.bench.forks import Judge
from inference.bench.side import Side, resolved, start_plain_worker
from inference.bench.table import fork_words
from inference.engine.compare import warm_up
from inference.engine.engine import Engine
from inference.errors import WrongArguments
from inference.events import Request
from inference.settings import Settings

VISITORS = 2
Ids = tuple[int, ...]


def equal(settings: Settings, requests: Sequence[Request], repeats: int, say: Say, found: dict[str, Any] | None = None) -> dict[str, Any]:
    """Of each lane: `prompts`, how many of them are `equal`, every one of the `forks`, and which prompts' `repeats_differ` and `visitors_differ`.

    Prompts are counted from 1. `repeats`: answers of our lane to each prompt, by one visitor and by each of two at once. A lane is put into `found`
    once it is done. Raises InferenceError.
    """
    if repeats < 1:
        raise WrongArguments(f"--repeats must be 1 or more, not {repeats}.")
    lanes = [resolved(lane, settings) for lane in settings.lanes]
    found = {} if found is None else found
    for lane in lanes:
        found[lane] = _lane(replace(settings, lanes=(lane,)), requests, repeats, say)
    return {"lanes": found}


def all_right(result: dict[str, Any]) -> bool:
    """Whether every lane's answers are equal, or part by rounding alone, and are the same again."""
    lanes = result["lanes"].values()
    return all(lane["wrong"] == 0 and not lane["repeats_differ"] and not lane["visitors_differ"] for lane in lanes)


def _lane(settings: Settings, requests: Sequence[Request], repeats: int, say: Say) -> dict[str, Any]:
    lane = settings.lanes[0]
    plain, ours = (Side(engine, lane, []) for engine in (Engine(settings, start_plain_worker), Engine(settings)))
    with ExitStack() as stack:
        for name, side in (("plain", plain), ("ours", ours)):
            stack.enter_context(side.engine)
            say(f"{lane}: loading {name}")
            side.ask(requests[0])
        say(f"{lane}: warming up, until our fastest path is ready")
        warm_up(ours.engine, requests[0])
        judge = Judge(settings, plain, ours, stack)
        answers = list[Ids]()
        repeats_differ, forks = list[int](), list[dict[str, Any]]()
        for number, request in enumerate(requests, 1):
            say(f"{lane}: prompt {number} of {len(requests)}, {len(forks)} forks")
            again = [ours.ask(request).token_ids for _ in range(repeats)]
            answers.append(again[0])
            if any(ids != again[0] for ids in again):
                repeats_differ.append(number)
            if fork := judge.fork(request, judge.right(request), again[0]):
                forks.append({"prompt": number, **asdict(fork)})
                say(f"{lane}: {_fork_words(forks[-1])}")
        say(f"{lane}: the same prompts by {VISITORS} visitors at once")
        return {
            "prompts": len(requests), "against": judge.against, "path": ours.ask(requests[0]).path, "equal": len(requests) - len(forks),
            "rounding": sum(fork["rounding"] is True for fork in forks), "wrong": sum(fork["rounding"] is not True for fork in forks), "forks": forks,
            "repeats": repeats, "repeats_differ": repeats_differ, "visitors_differ": _visited(ours, requests, answers, repeats),
        }  # fmt: skip


def _visited(side: Side, requests: Sequence[Request], answers: Sequence[Ids], repeats: int) -> list[int]:
    """The prompts, from 1, that two visitors who ask all of them at once, one from the end, were answered otherwise."""
    order = list(range(len(requests)))

    def visit(numbers: list[int]) -> set[int]:
        return {number + 1 for _ in range(repeats) for number in numbers if side.ask(requests[number]).token_ids != answers[number]}

    with ThreadPoolExecutor(VISITORS) as pool:
        return sorted(set().union(*pool.map(visit, (order, order[::-1]))))


def equal_words(result: dict[str, Any]) -> str:
    """The result for people: a sentence a lane, a line a fork."""
    return "\n".join(line for lane, found in result["lanes"].items() for line in _words(lane, found))


def _words(lane: str, found: dict[str, Any]) -> list[str]:
    told = [
        f"{lane} ({found['path']}): {found['equal']} of {found['prompts']} answers are those of {found['against']}, token by token; "
        f"{found['rounding']} part by rounding, {found['wrong']} otherwise."
    ]
    told += [f"  {_fork_words(fork)}" for fork in found["forks"]]
    for visitors, times, differ in (
        ("one visitor", found["repeats"], found["repeats_differ"]),
        ("two visitors at once", 2 * found["repeats"], found["visitors_differ"]),
    ):
        if times > 1:
            same = "the same tokens every time" if not differ else f"OTHER TOKENS at another time for prompts {', '.join(map(str, differ))}"
            told.append(f"  each prompt asked {times} times by {visitors}: {same}.")
    return told


def _fork_words(fork: dict[str, Any]) -> str:
    return f"prompt {fork['prompt']} parts at {fork_words(fork)}"
