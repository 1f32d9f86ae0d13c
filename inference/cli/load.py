"""`python -m inference bench --clients N,N,...`: many clients at once, and what each sees.

Tables go to stdout, one JSON object on the last line; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from pathlib import Path

from inference import terminal
from inference.cli import output
from inference.cli.exits import FAILED
from inference.cli.progress import Line
from inference.errors import WrongArguments
from inference.events import Request
from inference.load.clients import LaneLoad, under_load
from inference.load.plan import Plan, usual_prompts
from inference.load.words import all_answered, as_json, load_table
from inference.series.prompts import read_prompts
from inference.settings import Settings

MOST_PROMPTS = 10_000  # of our own, then they come again
NOT_HERE = ("prompt", "prompt_tokens", "lengths", "ours_only", "repeats", "positions", "peer", "quote")  # of the bench's other ways


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Measure and print; returns 0, or 1 where a question failed or the JSON could not be written. Raises InferenceError."""
    for name in NOT_HERE:
        if getattr(options, name) not in (None, "", 0, False, []):
            raise WrongArguments(f"--clients asks prompts of its own, or those of --prompts, so it takes no --{name.replace('_', '-')}. Leave one of them out.")
    output.check_file(options.json)
    plan = _plan(options)
    plan.check()
    lanes = list[LaneLoad]()

    def measured() -> str:
        return json.dumps(as_json(plan, lanes, settings.model_id))

    with output.never_lost(lambda: measured() if lanes else ""):
        with closing(Line()) as line:
            for each in under_load(settings, plan, line.say):
                lanes.append(each)
                if len(lanes) < len(settings.lanes):  # a measurement that is cut off loses none of this
                    line.say(load_table(plan, lanes, terminal.width(sys.stderr)))
        written = output.give_json(options.json, load_table(plan, lanes, terminal.width()), measured())
    return 0 if written and all_answered(lanes) else FAILED


def _plan(options: argparse.Namespace) -> Plan:
    try:
        clients = tuple(int(part) for part in options.clients.split(","))
    except ValueError:
        clients = ()
    prompts = usual_prompts(min(MOST_PROMPTS, max(1, sum(clients) * options.rounds)))
    if options.prompts:
        rows, left_out = read_prompts(Path(options.prompts))
        for words in left_out.words():
            terminal.tell(words)
        prompts = tuple(dict.fromkeys(row.text for row in rows))
    request = Request(prompts[0], max_new_tokens=options.max_new_tokens)
    return Plan(clients, options.rounds, prompts, request, options.max_first_token, options.max_total, options.leave_every)
