"""The comparisons of each tab, in this process's memory: kept until the tab closes, the oldest of a tab go first.

In: records by tab. Out: records, their one-line labels, and two of them side by side as Markdown. Draws nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from inference.record.lanes import held, lane_title, shown_run
from inference.record.markdown import escape
from inference.record.table import conditions
from inference.series.table import short
from inference.units import UNKNOWN, rate, seconds, size, times
from ui.tabs import Tabs

MOST_KEPT = 50
Record = dict[str, Any]


class Histories:
    """Every tab's comparisons, oldest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tabs: Tabs[dict[str, Record]] = Tabs()

    def add(self, tab: str, id: str, make: Callable[[], Record]) -> Record:
        """The record of the comparison `id`, made and kept at the first call; of two made at once the first is kept."""
        found = self.get(tab, id) or make()
        with self._lock:
            kept = self._of(tab)
            found = kept.setdefault(id, found)
            while len(kept) > MOST_KEPT:
                del kept[next(iter(kept))]
            self._tabs.put(tab, kept)
            return found

    def _of(self, tab: str) -> dict[str, Record]:
        return self._tabs.get(tab) or {}

    def get(self, tab: str, id: str) -> Record | None:
        """One comparison, if it is still kept."""
        with self._lock:
            return self._of(tab).get(id)

    def set_quality(self, tab: str, id: str, quality: dict[str, Any]) -> None:
        """Put what a scoring gave into a comparison's record, if it is still kept."""
        with self._lock:
            kept = self._of(tab)
            if id in kept:
                kept[id] = {**kept[id], "quality": quality}

    def choose(self, tab: str, ids: list[str]) -> list[Record]:
        """The comparisons named, in their order in time; all where none is named."""
        with self._lock:
            kept = self._of(tab)
            return [record for id, record in kept.items() if id in ids or not ids]

    def labels(self, tab: str) -> list[tuple[str, str]]:
        """(label, id) of each comparison, newest first."""
        with self._lock:
            kept = list(self._of(tab).items())
        return [(f"{number}. {line(record)}", id) for number, (id, record) in reversed(list(enumerate(kept, 1)))]

    def forget(self, tab: str) -> None:
        """Drop a tab that was closed."""
        with self._lock:
            self._tabs.drop(tab)


def line(record: Record) -> str:
    """A comparison in one line: time, prompt, lanes with their key figures."""
    lanes = "; ".join(
        f"{lane_title(lane, name)} {rate(lane['median']['decode_tps'])}, {seconds(lane['median']['total_s'])}" for name, lane in record["lanes"].items()
    )
    return f"{record['created'][11:19]} UTC · {short(record['request']['prompt'], 48)} · {lanes}"


def side_by_side(first: Record, second: Record) -> str:
    """Two comparisons, lane by lane, as a Markdown table with second / first in words."""
    rows = ["| | A | B | B against A |", "| --- | --- | --- | --- |"]
    rows += [f"| **Prompt** | {escape(short(first['request']['prompt']))} | {escape(short(second['request']['prompt']))} | |"]
    for name in [name for name in first["lanes"] if name in second["lanes"]]:
        a, b = first["lanes"][name], second["lanes"][name]
        rows.append(f"| **{escape(lane_title(b, name))}** | | | |")
        rows.append(f"| Conditions | {escape(conditions(first, a))} | {escape(conditions(second, b))} | |")
        rows += [_row(title, read(a), read(b), words, *more_or_less) for title, read, words, more_or_less in FIGURES]
    apart = [name for name in {**first["lanes"], **second["lanes"]} if (name in first["lanes"]) != (name in second["lanes"])]
    note = f"\n\nOnly in one of the two: {', '.join(apart)}." if apart else ""
    return "\n".join(rows) + note


def _row(title: str, a: float | None, b: float | None, words: Callable[[float | None], str], more: str, less: str) -> str:
    ratio = times(b / a, more, less) if a and b else UNKNOWN
    return f"| {title} | {words(a)} | {words(b)} | {ratio} |"


def _tokens(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


FIGURES: tuple[tuple[str, Callable[[Record], Any], Callable[[float | None], str], tuple[str, str]], ...] = (
    ("First token", lambda lane: lane["median"]["ttft_s"], seconds, ("later", "sooner")),
    ("Speed", lambda lane: lane["median"]["decode_tps"], rate, ("faster", "slower")),
    ("Total", lambda lane: lane["median"]["total_s"], seconds, ("longer", "shorter")),
    ("Tokens", lambda lane: (shown_run(lane) or {}).get("new_tokens"), _tokens, ("more", "fewer")),
    ("Load", lambda lane: (lane["load"] or {}).get("total_s"), seconds, ("longer", "shorter")),
    ("Memory held at most", lambda lane: held(lane)[1], size, ("higher", "lower")),
)
