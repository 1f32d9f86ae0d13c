"""`python -m inference compare | bench | quality | decide | doctor | deploy`: the page's comparison on the command line, our lanes
against plain `generate`, what 4 bits changed in the answers, what can run here, and the page as a Space.

Results go to stdout (with `--json -` nothing but the record), progress and faults to stderr.
"""

from __future__ import annotations

import argparse
import logging
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

from inference import log, terminal
from inference.cli import output, parser, report
from inference.cli import prompts as prompts_command
from inference.cli import quality as quality_command
from inference.cli.exits import FAILED, STOPPED, WRONG
from inference.cli.progress import StatusLine
from inference.engine.compare import compare, names, settle
from inference.engine.engine import Engine
from inference.errors import InferenceError, WrongArguments
from inference.events import Request
from inference.host import child, machine, stopping, temporary
from inference.lanes import LaneName
from inference.quality.answers import scored_or_why_not
from inference.record.export import to_json
from inference.record.model import Record
from inference.record.scores import NoQuality
from inference.settings import Settings, from_env, parse_lanes

NEED_CACHE = ("compare", "bench", "quality")
MORE = "More: --full prints every figure; --json, --csv, --markdown or --report FILE keeps them."


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    terminal.prepare()
    stopping.raised()
    for number in (signal.SIGTERM, *stopping.hang_up()):
        signal.signal(number, signal.default_int_handler)
    return terminal.delivering(lambda: _run(arguments), FAILED)


def _run(arguments: list[str] | None) -> int:
    try:
        options = parser.parse(arguments)
        logging.basicConfig(level=logging.INFO if options.verbose else logging.ERROR, stream=log.of_stderr(), format="%(levelname)s %(name)s: %(message)s")
        machine.check_platform()
        return COMMANDS[options.command](options, _settings(options))
    except InferenceError as error:
        terminal.tell(error)
        return WRONG if isinstance(error, WrongArguments) else FAILED
    except SystemExit as ended:  # --help
        return int(ended.code or 0)
    except KeyboardInterrupt:
        terminal.say("\nStopped.", sys.stderr)
        return STOPPED


def _settings(options: argparse.Namespace) -> Settings:
    settings = replace(from_env(), quiet=not options.verbose)
    if options.model:
        settings = replace(settings, model_id=options.model)
    if options.lanes is not None:
        settings = replace(settings, lanes=parse_lanes(options.lanes))
    settings.check_shapes()
    machine.check_threads(settings)
    if options.command in NEED_CACHE and len(settings.servers) < len(settings.lanes):
        settings.cache_path()  # none that can be written is told before anything starts: every lane here would fail by it
    return settings


def _compare(options: argparse.Namespace, settings: Settings) -> int:
    asked = [words for words in (options.words, options.prompt, options.prompts) if words is not None]
    if len(asked) != 1:
        how = "No prompt is given" if not asked else "More than one prompt is given"
        raise WrongArguments(f'{how}. Give one: {parser.PROGRAM} compare "{parser.DEFAULT_PROMPT}", or --prompts FILE.')
    if options.repeats < 1:
        raise WrongArguments(f"--repeats must be 1 or more, not {options.repeats}.")
    if options.prompts and options.quality:
        raise WrongArguments("--quality scores one answer. For a file of prompts use: python -m inference quality --prompts FILE.")
    if options.prompts:
        return prompts_command.run(options, settings)
    request = Request(asked[0], options.system, options.format, options.max_new_tokens, options.temperature, options.seed)
    request.check()
    output.check_targets(options)
    measured = list[Record]()
    with Engine(settings) as engine:
        with output.never_lost(lambda: to_json(measured[-1:]) if measured else ""), closing(StatusLine(lambda: names(engine))) as status:
            if kept := tuple(lane for lane in settings.lanes if LaneName.parse(lane).four_bit):
                settle(engine, kept, status.show)
            scored = scored_or_why_not if options.quality else None
            record = compare(engine, request, (), options.mode, options.repeats, status.show, scored, keep=measured.append)
        written = _give(options, record)  # before the lanes are ended: nothing of that can take it away
    return 0 if written and all(lane.n for lane in record.lanes.values()) and not isinstance(record.quality, NoQuality) else FAILED


def _give(options: argparse.Namespace, record: Record) -> bool:
    json = to_json([record])
    with output.never_lost(lambda: json):
        shown = report.comparison(record, terminal.width(), options.full)
        if sys.stdout.isatty() and not options.full:
            shown += f"\n\n{terminal.wrapped(MORE, terminal.width())}"
        return output.give(options, [record], json, shown)


def _bench(options: argparse.Namespace, settings: Settings) -> int:
    from inference.cli import bench  # with what it measures by, which no other command needs

    return bench.run(options, settings)


def _deploy(options: argparse.Namespace, settings: Settings) -> int:
    from inference.cli import deploy  # with the Hub's library, which no other command needs here

    return deploy.run(options, settings)


def _decide(options: argparse.Namespace, settings: Settings) -> int:
    from inference.cli import decide  # with numpy, which only what works something out needs

    return decide.run(options, settings)


def _doctor(options: argparse.Namespace, settings: Settings) -> int:
    settings.cache_path()  # none that can be written is told before anything starts
    temporary.check()
    sys.stdout.flush()
    if options.named and options.empty_cache:
        raise WrongArguments("--empty-cache empties the whole cache, not what there is of one model. Leave one of the two out.")
    if options.named:
        settings = replace(settings, model_id=options.named, cpu_model_id="")
        settings.check_shapes()
    what = ["--empty-cache"] if options.empty_cache else ["--model"] if options.named else []
    command = [sys.executable, "-m", "inference.doctor", *what]
    # a session of its own: Ctrl+C is for this process, which ends that one
    code = subprocess.run(command, env=child.environment(**settings.to_env()), start_new_session=True).returncode
    return code if code in (0, FAILED, WRONG) else FAILED


COMMANDS = {"compare": _compare, "bench": _bench, "quality": quality_command.run, "doctor": _doctor, "deploy": _deploy, "decide": _decide}


if __name__ == "__main__":
    sys.exit(main())
