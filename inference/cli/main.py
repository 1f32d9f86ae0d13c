"""`python -m inference compare | bench | quality | doctor`: the page's comparison on the command line, our lanes
against plain `generate`, what 4 bits changed in the answers, and what can run here.

Results go to stdout (with `--json -` nothing but the record), progress and faults to stderr.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from typing import Any

from inference import child, machine
from inference.cli import output
from inference.cli import prompts as prompts_command
from inference.cli import quality as quality_command
from inference.cli.exits import FAILED, STOPPED, WRONG
from inference.cli.progress import StatusLine
from inference.engine.compare import compare, names, settle
from inference.engine.engine import Engine
from inference.errors import InferenceError, WrongArguments
from inference.events import FORMATS, MODES, Request
from inference.lanes import LaneName
from inference.quality.answers import scored_or_why_not
from inference.record.export import to_json
from inference.record.quality import quality_table
from inference.record.scores import NoQuality
from inference.record.table import text_table
from inference.record.verdict import verdict_text
from inference.settings import DEFAULT_MODEL, SMALL_MODEL, Settings, from_env, parse_lanes

DEFAULT_PROMPT = "hello good morning may i see the menu"


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = _parser().parse_args(arguments)
    try:
        machine.check_platform()
        settings = _settings(options)
        return int(options.command(options, settings))
    except InferenceError as error:
        print(error, file=sys.stderr)
        return WRONG if isinstance(error, WrongArguments) else FAILED
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return STOPPED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m inference", description="Compare a 4-bit lane with a full-precision lane.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("compare", help="one prompt, answered by each lane")
    one.set_defaults(command=_compare)
    asked = one.add_mutually_exclusive_group(required=True)
    asked.add_argument("--prompt")
    asked.add_argument("--prompts", metavar="FILE", help="txt (a prompt a line), csv or jsonl with `prompt` and optional `expected`; Ctrl+C keeps what is done")
    one.add_argument("--system", default="")
    one.add_argument("--format", choices=FORMATS, default="chat", help="chat template, or the prompt as it is")
    one.add_argument("--max-new-tokens", type=int, default=50)
    one.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--mode", choices=MODES, default="auto", help="auto: in turn where two lanes share a device")
    one.add_argument("--repeats", type=int, default=1, help="with more than 1, after a warm-up that is not counted")
    one.add_argument("--quality", action="store_true", help="score the full-precision answer with every lane")
    one.add_argument("--json", metavar="FILE", help="write the record there; - for stdout, and then nothing else")
    one.add_argument("--csv", metavar="FILE", help="write a row a run there")
    one.add_argument("--markdown", metavar="FILE", help="write the table there, ready for a model card")
    ours = _bench_parser(commands)
    quality = quality_command.add_parser(commands)
    check = commands.add_parser("doctor", help="devices, versions, limits, which models fit, and what the cache holds")
    check.set_defaults(command=_doctor)
    check.add_argument("named", nargs="?", metavar="MODEL", help="judge this model alone, before anything of it is downloaded")
    check.add_argument("--empty-cache", action="store_true", help="remove what our cache holds and no lane uses, instead of the report")
    for command in (one, ours, quality, check):
        command.add_argument("--model", help="Hub id, folder or shape:NAME (MODEL_ID)")
        command.add_argument("--lanes", help="such as cuda:nf4,cpu:fp32 (LANES)")
    return parser


def _bench_parser(commands: Any) -> argparse.ArgumentParser:
    ours: argparse.ArgumentParser = commands.add_parser("bench", help="each lane against plain generate, A B A B")
    ours.set_defaults(command=_bench)
    ours.add_argument("--prompt", default=DEFAULT_PROMPT)
    ours.add_argument("--prompt-tokens", type=int, default=0, help="a raw prompt of just so many tokens instead")
    ours.add_argument("--max-new-tokens", type=int, default=50)
    ours.add_argument("--rounds", type=int, default=5)
    ours.add_argument("--positions", type=int, default=0, help="also hold the log-probabilities of so many positions of a fixed text together")
    ours.add_argument("--shape", help="random weights of that size (a name under examples/shapes)")
    ours.add_argument("--peer", action="append", default=[], choices=("bf16", "static-compile", "llama.cpp"), help="another way beside it, may be given again")
    ours.add_argument("--quote", action="append", default=[], metavar="NAME=TPS,TTFT,TOTAL", help="a row of figures measured elsewhere, marked as quoted")
    return ours


def _settings(options: argparse.Namespace) -> Settings:
    settings = from_env()
    if options.model:
        settings = replace(settings, model_id=options.model)
    if options.lanes:
        settings = replace(settings, lanes=parse_lanes(options.lanes))
    return settings


def _compare(options: argparse.Namespace, settings: Settings) -> int:
    if options.repeats < 1:
        raise WrongArguments(f"--repeats must be 1 or more, not {options.repeats}.")
    if options.prompts and options.quality:
        raise WrongArguments("--quality scores one answer. For a file of prompts use: python -m inference quality --prompts FILE.")
    if options.prompts:
        return prompts_command.run(options, settings)
    request = Request(options.prompt, options.system, options.format, options.max_new_tokens, options.temperature, options.seed)
    request.check()
    output.check_targets(options)
    with Engine(settings) as engine, closing(StatusLine(lambda: names(engine))) as status:
        if kept := tuple(lane for lane in settings.lanes if LaneName.parse(lane).four_bit):
            settle(engine, kept, status.show)
        record = compare(
            engine, request, mode=options.mode, repeats=options.repeats, on_progress=status.show, quality=scored_or_why_not if options.quality else None
        )
    tables = [text_table(record), verdict_text(record).replace("**", ""), *([quality_table(record.quality)] if record.quality else [])]
    written = output.give(options, [record], to_json([record]), "\n\n".join(tables))
    return 0 if written and all(lane.n for lane in record.lanes.values()) and not isinstance(record.quality, NoQuality) else FAILED


def _bench(options: argparse.Namespace, settings: Settings) -> int:
    from inference.bench.bench import bench, check_arguments
    from inference.bench.prompt import prompt_of
    from inference.bench.table import bench_table, quoted

    if options.shape:
        settings = replace(settings, model_id=f"shape:{options.shape}")
    elif not options.model and settings.model_id == DEFAULT_MODEL:  # speed is that of its base, which the peer llama.cpp has too
        settings = replace(settings, model_id=SMALL_MODEL)
    request = Request(options.prompt, max_new_tokens=options.max_new_tokens)
    request.check()
    check_arguments(options.rounds, options.positions, options.prompt_tokens)
    quotes = dict(quoted(words) for words in options.quote)
    if options.prompt_tokens:
        request = replace(request, prompt=prompt_of(options.prompt_tokens, settings), format="raw")
    result = bench(settings, request, options.rounds, lambda words: print(words, file=sys.stderr, flush=True), options.peer, options.positions)
    for found in result["lanes"].values():
        found["peers"] |= quotes
    print(bench_table(result) + "\n\n" + json.dumps(result))
    return 0


def _doctor(options: argparse.Namespace, settings: Settings) -> int:
    settings.cache_path()  # none that can be written is told before anything starts
    sys.stdout.flush()
    if options.named:
        settings = replace(settings, model_id=options.named, cpu_model_id="")
    what = ["--empty-cache"] if options.empty_cache else ["--model"] if options.named else []
    command = [sys.executable, "-m", "inference.doctor.report", *what]
    return subprocess.run(command, env=child.environment(**settings.to_env())).returncode


if __name__ == "__main__":
    sys.exit(main())
