"""A file's prompts through the engine, one comparison after the other, with a stop that keeps what is done.

In: rows, one request to take the settings from, an event that says stop. Out: records, each with its `row`, and the
whole series as a plain dictionary ready for JSON. Knows no file and no page.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from inference.engine.compare import OnProgress, compare, warm_up
from inference.engine.engine import Engine
from inference.events import Request
from inference.record.build import FIGURES
from inference.record.lanes import ENDED
from inference.series.expected import is_right
from inference.series.prompts import LeftOut, Prompt

SCHEMA = "gpu-vs-cpu-prompts/1"
WARM_UP_TOKENS = 4


@dataclass
class Series:
    """What a series has done so far; `stop` is set to end it at the next token."""

    prompts: Sequence[Prompt]
    skipped: LeftOut = field(default_factory=LeftOut)
    records: list[dict[str, Any]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, engine: Engine, request: Request, mode: str = "auto", repeats: int = 1, on_progress: OnProgress | None = None) -> Iterator[dict[str, Any]]:
        """Answer each prompt on all lanes; gives each record as it is done, after warm-ups that are not counted.

        A prompt that a lane can't answer is told in its record, and the next one follows.
        """
        if repeats == 1:  # with more, every comparison has warm-ups of its own
            first = replace(request, prompt=self.prompts[0].text, max_new_tokens=min(WARM_UP_TOKENS, request.max_new_tokens))
            warm_up(engine, first, mode=mode, on_progress=on_progress, stop=self.stop)
        for prompt in self.prompts:
            if self.stop.is_set():
                return
            record = compare(engine, replace(request, prompt=prompt.text), mode=mode, repeats=repeats, on_progress=on_progress, stop=self.stop)
            record["row"] = {"line": prompt.line, "expected": prompt.expected}
            if any(run["new_tokens"] or run["error"] for lane in record["lanes"].values() for run in lane["runs"]):
                self.records.append(record)
                yield record

    @property
    def done(self) -> int:
        """Prompts that every lane has answered to its end, or failed at."""
        return sum(all(run["finish_reason"] != "stopped" for lane in record["lanes"].values() for run in lane["runs"]) for record in self.records)

    def as_dict(self) -> dict[str, Any]:
        """The series for JSON: how far it came, medians by lane, the first lines left out and how many more there were, and every record."""
        return {
            "schema": SCHEMA,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "prompts": len(self.prompts),
            "done": self.done,
            "stopped": self.stop.is_set() and self.done < len(self.prompts),
            "skipped": [{"line": row.line, "reason": row.reason} for row in self.skipped.rows],
            "skipped_more": self.skipped.more,
            "lanes": medians(self.records),
            "records": self.records,
        }


def medians(records: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By lane: median, min and max of each figure over all runs that ended by themselves, their number n, failures, and how many answers are as expected."""
    runs: dict[str, list[tuple[dict[str, Any], str | None]]] = {}
    for record in records:
        for name, lane in record["lanes"].items():
            runs.setdefault(name, []).extend((run, (record.get("row") or {}).get("expected")) for run in lane["runs"])
    return {name: _summary(found) for name, found in runs.items()}


def _summary(runs: list[tuple[dict[str, Any], str | None]]) -> dict[str, Any]:
    ended = [(run, expected) for run, expected in runs if run["finish_reason"] in ENDED]
    values = {key: [run[key] for run, _ in ended if run[key] is not None] for key in FIGURES}
    ways = (("median", statistics.median), ("min", min), ("max", max))
    judged = [is_right(run["text"], expected, "exact") for run, expected in ended if expected]
    return {
        **{name: {key: way(found) if found else None for key, found in values.items()} for name, way in ways},
        "n": len(ended),
        "failed": sum(run["finish_reason"] == "failed" for run, _ in runs),
        "expected": len(judged),
        "as_expected": sum(judged),
    }
