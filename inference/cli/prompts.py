"""`python -m inference compare --prompts FILE`: every prompt on every lane, a progress bar, Ctrl+C keeps what is done.

The bar and the lines left out go to stderr; tables, or with `--json -` the series, to stdout.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from inference.cli import output
from inference.engine.engine import Engine
from inference.events import Request
from inference.progress import Progress
from inference.record.export import dump
from inference.series import table
from inference.series.prompts import read_prompts
from inference.series.series import Series
from inference.settings import Settings
from inference.units import seconds

BAR = 24
STOPPED = 130


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Answer the file; returns 0, 1 where a prompt failed on a lane or a file could not be written, 130 where it was stopped. Raises InferenceError for a bad file."""
    prompts, skipped = read_prompts(Path(options.prompts))
    longest = max((prompt.text for prompt in prompts), key=len)
    request = Request(longest, options.system, options.format, options.max_new_tokens, options.temperature, options.seed)
    request.check()
    output.check_targets(options)
    series = Series(prompts, skipped)
    for line in series.skipped.words():
        print(line, file=sys.stderr)
    bar = Bar(len(prompts))
    with closing(bar), Engine(settings) as engine, _interrupt_stops(series):
        for done, _ in enumerate(series.run(engine, request, options.mode, options.repeats, bar.lane), 1):
            bar.done(done)
    if not output.give(options, series.records, dump(series.as_json()), table.text(series), table.markdown(series)):
        return 1
    if series.done < len(prompts):
        return STOPPED
    return 1 if any(not lane.n for record in series.records for lane in record.lanes.values()) else 0


@contextmanager
def _interrupt_stops(series: Series) -> Iterator[None]:
    """The first Ctrl+C (or SIGTERM) ends the series at its next token; the second ends the command."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: object) -> None:
        series.stop.set()
        for each in before:
            signal.signal(each, signal.default_int_handler)
        print("\nStopping; what is done is kept.", file=sys.stderr, flush=True)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Bar:
    """The progress of a series on stderr: drawn in place on a terminal, a line every ten prompts on a pipe."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._lanes = total, 0, ""
        self._live, self._began, self._drawn = sys.stderr.isatty(), time.monotonic(), 0.0

    def lane(self, lane: str, progress: Progress) -> None:
        """What a lane does at the moment."""
        self._lanes = f"{lane} {progress.phase}{f' {progress.n}' if progress.phase == 'decode' else ''}"
        if self._live and time.monotonic() - self._drawn > 0.1:
            self._draw()

    def done(self, count: int) -> None:
        """`count` prompts are done."""
        self._done = count
        if self._live or count % 10 == 0 or count == self._total:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        full = BAR * self._done // self._total
        spent = self._drawn - self._began
        left = f", about {seconds(spent / self._done * (self._total - self._done))} left" if self._done else ""
        line = f"[{'#' * full}{'.' * (BAR - full)}] {self._done} of {self._total} prompts, {seconds(spent)}{left}"
        print(f"\r\033[K{line}  {self._lanes}" if self._live else line, end="" if self._live else "\n", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave an empty line behind."""
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
