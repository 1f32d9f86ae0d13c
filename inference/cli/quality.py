"""`python -m inference quality`: how far a lane moved from full precision, on a text or on the answers to a file of prompts.

In: parsed options and settings. Out: a table of figures on stdout, or the JSON alone; progress on stderr.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from inference import terminal
from inference.cli import output
from inference.cli.exits import FAILED
from inference.cli.progress import Line
from inference.engine.engine import Engine
from inference.errors import WrongArguments
from inference.events import Request
from inference.quality.prompts import Keep, quality_of_prompts
from inference.quality.scorer import NO_LOGITS, Say, choose, pieces, quality_of, shown_of, text_spans
from inference.quality.survival import base_of, survival
from inference.record.export import quality_as_json
from inference.record.quality import quality_markdown, quality_table
from inference.record.scores import NoSurvival, Quality
from inference.series.prompts import LeftOut, read_prompts
from inference.settings import Settings

SAMPLE_S = 0.02


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Measure and print; raises InferenceError with one sentence for anything that can't be measured."""
    if settings.servers:
        raise WrongArguments(f"{NO_LOGITS} Leave out: {', '.join(settings.servers)}.")
    settings = replace(settings, cpu_model_id=options.reference_model or settings.cpu_model_id)
    text, prompts, skipped = (_read(options.text), [], LeftOut()) if options.text else ("", *read_prompts(Path(options.prompts)))
    pattern = Request(max((prompt.text for prompt in prompts), key=len, default="-"), format=options.format, max_new_tokens=options.max_new_tokens)
    pattern.check()  # the longest, before a lane is loaded for any
    output.check_targets(options)
    began, kept = time.perf_counter(), list[Quality]()
    with Engine(settings) as engine, RssWatch(engine) as watch:
        with output.never_lost(lambda: _json(kept[-1], {"model": settings.model_id}) if kept else ""), closing(Line()) as line:
            for words in skipped.words():
                line.say(words)
            line.say("loading the lanes")
            if options.text:
                found = measure_text(engine, text, options.base, line.say, kept.append)
            else:
                found = quality_of_prompts(engine, prompts, pattern, line.say, options.base, kept.append)
        beside = {"model": settings.model_id, "total_s": time.perf_counter() - began, "ram_above_model": watch.above(), "ram_peak": watch.peak()}
        written = _give(options, found, beside)  # before the lanes are ended: nothing of that can take it away
    lacks_survival = bool(options.base) and isinstance(found.survival, NoSurvival)
    return 0 if written and not found.unanswered and not lacks_survival else FAILED


def _give(options: argparse.Namespace, found: Quality, beside: dict[str, Any]) -> bool:
    text_of_json = _json(found, beside)
    with output.never_lost(lambda: text_of_json):
        shown = terminal.wrapped(quality_table(found, beside["ram_above_model"]), terminal.width(), hang=2)
        written = output.show(shown, text_of_json if options.json == "-" else None)
        written &= options.json in (None, "-") or output.put(options.json, text_of_json)
        return written and (not options.markdown or output.put(options.markdown, quality_markdown(found, beside["model"])))


def _json(found: Quality, beside: dict[str, Any]) -> str:
    return json.dumps({"quality": {**quality_as_json(found), **beside}}, ensure_ascii=False) + "\n"


def measure_text(engine: Engine, text: str, base: str = "", say: Say = lambda _: None, keep: Keep = lambda _: None) -> Quality:
    """`quality` of an engine's lanes on a text, with the survival where a `base` is named or known."""
    reference, others = choose(engine)
    spans = text_spans(reference, others, text)
    began = time.perf_counter()
    found = list(pieces(reference, others, spans, say))
    quality = replace(quality_of(reference, others, found, "text"), scoring_s=time.perf_counter() - began)
    if base := base or base_of([reference, *others]) or "":
        keep(quality)
        quality = replace(quality, survival=survival(base, reference, shown_of(others), (spans, found), text, say))
    return quality


class RssWatch:
    """Samples the lane processes' RSS (mapped file pages count) from when each one's model is loaded."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._low: dict[str, int] = {}
        self._high: dict[str, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rss", daemon=True)

    def __enter__(self) -> RssWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def above(self) -> dict[str, int]:
        """By lane, the peak RSS less the RSS when its model had been loaded, in bytes."""
        return {name: self._high[name] - self._low[name] for name in self._high}

    def peak(self) -> dict[str, int]:
        """By lane, the peak RSS since its model had been loaded, libraries and model included, in bytes."""
        return dict(self._high)

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_S):
            pids = self._engine.pids()
            for status in self._engine.status():
                if status.facts and status.key in pids:
                    self._sample(status.name, pids[status.key])

    def _sample(self, name: str, pid: int) -> None:
        try:
            rss = psutil.Process(pid).memory_info().rss
        except psutil.NoSuchProcess:
            return
        self._low.setdefault(name, rss)
        self._high[name] = max(self._high.get(name, 0), rss)


def _read(file: str) -> str:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongArguments(f"{file} can't be read ({getattr(error, 'strerror', None) or error}). Give a UTF-8 text file.") from error
    if not text.strip():
        raise WrongArguments(f"{file} is empty. Give a text of some thousands of tokens.")
    return text
