"""A file's prompts through the engine, one comparison after the other, with a stop that keeps what is done.

In: rows, one request to take the settings from, an event that says stop. Out: records, each with its `row`, and the figures
of each lane over all of them. Knows no file and no page.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from inference.engine.compare import OnProgress, Score, compare, warm_up
from inference.engine.engine import Engine
from inference.events import Request
from inference.record.export import as_json, plain
from inference.record.model import Record, Row, RunFigures, RunRecord
from inference.series.expected import WAYS, is_right
from inference.series.prompts import LeftOut, Prompt
from inference.timing import WARM_UP_TOKENS

SCHEMA = "gpu-vs-cpu-prompts/2"


@dataclass
class Series:
    """What a series has done so far; `stop` is set to end it at the next token."""

    prompts: Sequence[Prompt]
    skipped: LeftOut = field(default_factory=LeftOut)
    records: list[Record] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(
        self, engine: Engine, request: Request, mode: str = "auto", repeats: int = 1,
        on_progress: OnProgress | None = None, quality: Score | None = None,
    ) -> Iterator[Record]:  # fmt: skip
        """Answer each prompt on all lanes; gives each record as it is done, after warm-ups that are not counted.

        A prompt that a lane can't answer is told in its record, and the next one follows. `quality` as in `compare`. All are
        answered by one model: nobody changes it while this goes on.
        """
        with engine.hold_model():
            if repeats == 1:  # with more, every comparison has warm-ups of its own
                first = replace(request, prompt=self.prompts[0].text, max_new_tokens=min(WARM_UP_TOKENS, request.max_new_tokens))
                warm_up(engine, first, mode=mode, on_progress=on_progress, stop=self.stop)
            for prompt in self.prompts:
                if self.stop.is_set():
                    return
                asked = replace(request, prompt=prompt.text)
                found = compare(engine, asked, mode=mode, repeats=repeats, on_progress=on_progress, quality=quality, stop=self.stop)
                record = replace(found, row=Row(prompt.line, prompt.expected))
                if any(run.began or run.error for lane in record.lanes.values() for run in lane.runs):
                    self.records.append(record)
                    yield record

    @property
    def done(self) -> int:
        """Prompts that every lane has answered to its end, or failed at."""
        return sum(all(run.finish_reason != "stopped" for lane in record.lanes.values() for run in lane.runs) for record in self.records)

    def as_json(self) -> dict[str, Any]:
        """The series for JSON: how far it came, medians by lane, the first lines left out and how many more there were, and every record."""
        return {
            "schema": SCHEMA,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "prompts": len(self.prompts),
            "done": self.done,
            "stopped": self.stop.is_set() and self.done < len(self.prompts),
            "skipped": plain(self.skipped.rows),
            "skipped_more": self.skipped.more,
            "lanes": plain(medians(self.records)),
            "records": [as_json(record) for record in self.records],
        }


@dataclass(frozen=True)
class LaneMedians:
    """A lane over all prompts: its figures over the `n` runs that count, how many failed, and of its `expected` answers how many are just so, and how many hold it."""

    median: RunFigures
    min: RunFigures
    max: RunFigures
    n: int
    failed: int
    expected: int
    as_expected: int
    hold_expected: int


def medians(records: Sequence[Record]) -> dict[str, LaneMedians]:
    """Each lane's figures over all its runs, by its name."""
    runs: dict[str, list[tuple[RunRecord, str | None]]] = {}
    for record in records:
        for name, lane in record.lanes.items():
            runs.setdefault(name, []).extend((run, record.row.expected if record.row else None) for run in lane.runs)
    return {name: _medians(found) for name, found in runs.items()}


def _medians(runs: Sequence[tuple[RunRecord, str | None]]) -> LaneMedians:
    counted = [run for run, _ in runs if run.counted]
    judged = [(run.text, expected) for run, expected in runs if expected and run.counted]
    right = {way: sum(is_right(text, expected, way) for text, expected in judged) for way in WAYS}
    return LaneMedians(
        median=RunFigures.over(counted, statistics.median), min=RunFigures.over(counted, min), max=RunFigures.over(counted, max),
        n=len(counted), failed=sum(run.finish_reason == "failed" for run, _ in runs), expected=len(judged),
        as_expected=right["exact"], hold_expected=right["contains"],
    )  # fmt: skip
