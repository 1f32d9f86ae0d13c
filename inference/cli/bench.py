"""`python -m inference bench`: each lane against plain generate, in speed, or with a file of prompts in its tokens; or under load.

Tables go to stdout, one JSON object on the last line; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from inference import terminal
from inference.bench.bench import Plan, bench
from inference.bench.equal import all_right, equal, equal_words
from inference.bench.lengths import all_measured
from inference.bench.prompt import prompts_of
from inference.bench.table import bench_table, quoted
from inference.cli import load, output
from inference.cli.exits import FAILED
from inference.cli.parser import DEFAULT_PROMPT
from inference.cli.progress import Line
from inference.errors import WrongArguments
from inference.events import Request
from inference.series.prompts import read_prompts
from inference.settings import DEFAULT_MODEL, SMALL_MODEL, Settings


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Measure and print; returns 0, or 1 where tokens of a file of prompts are not right, or something could not be measured. Raises InferenceError."""
    output.check_file(options.json)
    if options.shape:
        settings = replace(settings, model_id=f"shape:{options.shape}")
        settings.check_shapes()
    if options.clients is not None:
        return load.run(options, settings)
    _check(options, settings)
    if not options.model and settings.model_id == DEFAULT_MODEL:  # speed is that of its base, which the peer llama.cpp has too
        settings = replace(settings, model_id=SMALL_MODEL)
    request = Request(options.prompt or DEFAULT_PROMPT, max_new_tokens=options.max_new_tokens)
    request.check()
    if options.prompts:
        return _tokens(options, settings, request)
    return _speed(options, settings, request)


def _check(options: argparse.Namespace, settings: Settings) -> None:
    """Raise WrongArguments for what goes with --clients alone."""
    if settings.servers:
        raise WrongArguments(
            f"{', '.join(settings.servers)}: a server can't be held against plain generate, since its ids and weights are not here. "
            "Name lanes that run here, or ask it by many clients at once (--clients)."
        )
    for name in ("max_first_token", "max_total", "leave_every"):
        if getattr(options, name):
            raise WrongArguments(f"--{name.replace('_', '-')} goes with --clients, which asks by many at once. Add that, or leave it out.")


def _speed(options: argparse.Namespace, settings: Settings, request: Request) -> int:
    if options.repeats is not None:
        raise WrongArguments("--repeats goes with --prompts. How often each way answers here is --rounds.")
    lengths = _lengths(options)
    quotes = dict(quoted(words) for words in options.quote)
    plan = Plan((request,), options.rounds, tuple(options.peer), options.positions, not options.ours_only)
    plan.check()
    if lengths:
        plan = replace(plan, requests=tuple(replace(request, prompt=text, format="raw") for text in prompts_of(lengths, settings)))
    lanes: dict[str, Any] = {}
    with output.never_lost(lambda: _of_lanes(lanes)), closing(Line()) as line:
        result = bench(settings, replace(plan, lengths=tuple(lengths)), line.say, lanes)
        for found in lanes.values():
            found["peers"] |= quotes
    given = _given(options, result, lambda: bench_table(result, terminal.width()))
    return 0 if given and all_measured(result) else FAILED


def _of_lanes(lanes: dict[str, Any]) -> str:
    """The lanes that were measured by now as JSON, empty for none."""
    return json.dumps({"lanes": lanes}) if lanes else ""


def _given(options: argparse.Namespace, result: dict[str, Any], table: Callable[[], str]) -> bool:
    """Give a result as its table and as one line of JSON; False where that can't be, which stderr tells."""
    line = json.dumps(result)
    with output.never_lost(lambda: line):
        return output.give_json(options.json, table(), line)


def _lengths(options: argparse.Namespace) -> list[int]:
    """The lengths of raw prompts that were asked for, the shortest first (a peak of RAM never falls again), none where --prompt is; raises WrongArguments."""
    if options.prompt_tokens < 0:
        raise WrongArguments(f"--prompt-tokens must be 1 or more (0 takes --prompt), not {options.prompt_tokens}.")
    if options.lengths and options.prompt_tokens:
        raise WrongArguments("--lengths and --prompt-tokens both say how long the prompt is. Give one.")
    try:
        lengths = [int(part) for part in options.lengths.split(",")] if options.lengths else []
    except ValueError:
        lengths = [0]
    if any(length < 1 for length in lengths) or len(set(lengths)) < len(lengths):
        raise WrongArguments(f"--lengths takes numbers of tokens, each once, such as 16,128,512, not {options.lengths!r}.")
    return sorted(lengths) or ([options.prompt_tokens] if options.prompt_tokens else [])


def _tokens(options: argparse.Namespace, settings: Settings, request: Request) -> int:
    for name in ("lengths", "prompt_tokens", "peer", "quote", "positions", "ours_only"):
        if getattr(options, name):
            raise WrongArguments(f"--prompts looks at tokens, not at speed, so it takes no --{name.replace('_', '-')}. Leave one of them out.")
    prompts, left_out = read_prompts(Path(options.prompts))
    for words in left_out.words():
        terminal.tell(words)
    requests, repeats = [replace(request, prompt=prompt.text) for prompt in prompts], 2 if options.repeats is None else options.repeats
    lanes: dict[str, Any] = {}
    with output.never_lost(lambda: _of_lanes(lanes)), closing(Line()) as line:
        result = equal(settings, requests, repeats, line.say, lanes)
    given = _given(options, result, lambda: terminal.wrapped(equal_words(result), terminal.width(), 4))
    return 0 if given and all_right(result) else FAILED
