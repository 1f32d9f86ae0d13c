"""`python -m inference compare --prompts FILE`: every prompt on every lane, a progress bar, Ctrl+C keeps what is done.

The bar and the lines left out go to stderr; tables, or with `--json -` the series, to stdout.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from inference import terminal
from inference.cli import output
from inference.cli.exits import FAILED, STOPPED
from inference.cli.progress import Bar
from inference.engine.compare import names
from inference.engine.engine import Engine
from inference.events import Request
from inference.host import stopping
from inference.record.export import dump
from inference.series import table
from inference.series.prompts import read_prompts
from inference.series.series import Series
from inference.settings import Settings


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Answer the file; returns 0, 1 where a prompt failed on a lane or a file could not be written, 130 where it was stopped. Raises InferenceError for a bad file."""
    prompts, skipped = read_prompts(Path(options.prompts))
    longest = max((prompt.text for prompt in prompts), key=len)
    request = Request(longest, options.system, options.format, options.max_new_tokens, options.temperature, options.seed)
    request.check()
    output.check_targets(options)
    series = Series(prompts, skipped)
    for line in series.skipped.words():
        terminal.tell(line)
    with Engine(settings) as engine, _interrupt_stops(series):
        try:
            with closing(Bar(len(prompts), lambda: names(engine))) as bar:
                for done, _ in enumerate(series.run(engine, request, options.mode, options.repeats, bar.lane), 1):
                    bar.done(done)
        finally:  # whatever ended it, and before the lanes are ended, which may take long
            written = not series.records or _give(options, series)
    if not written:
        return FAILED
    if series.done < len(prompts):
        return STOPPED
    return FAILED if any(not lane.n for record in series.records for lane in record.lanes.values()) else 0


def _give(options: argparse.Namespace, series: Series) -> bool:
    json = dump(series.as_json())
    with output.never_lost(lambda: json):
        return output.give(options, series.records, json, table.text(series, terminal.width()), table.markdown(series))


@contextmanager
def _interrupt_stops(series: Series) -> Iterator[None]:
    """The first Ctrl+C (SIGTERM, a closed terminal) ends the series at its next token, the second at once; what is done is kept."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, *stopping.hang_up())}

    def stop(number: int, frame: object) -> None:
        series.stop.set()
        for each in before:
            signal.signal(each, signal.default_int_handler)
        terminal.say("\nStopping; what is done is kept.", sys.stderr)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
