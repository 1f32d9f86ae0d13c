"""The comparisons of each tab, in this process's memory: kept until the tab closes, the oldest of a tab go first.

In: records by tab. Out: records, their one-line labels, and two of them side by side as Markdown. Draws nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from inference.record import grid
from inference.record.figures import FIGURES, SPEED, TOKENS, TOTAL, Figure
from inference.record.model import LaneRecord, Record
from inference.record.scores import Quality
from inference.record.table import conditions
from inference.series.table import short
from inference.units import UNKNOWN
from ui.tabs import Tabs, bytes_of

MOST_KEPT = 50
TWO_MODELS = "A and B are of different models: a gap between them is not only what a device or 4 bits make."
MOST_BYTES = 16 * 2**20  # of one tab; the newest comparison is kept however large


Sized = tuple[Record, int]  # a record and its bytes, which are counted once


class Histories:
    """Every tab's comparisons, oldest first; what is kept of a tab is replaced, never changed."""

    def __init__(self) -> None:
        self._tabs: Tabs[dict[str, Sized]] = Tabs()

    def add(self, tab: str, id: str, make: Callable[[], Record]) -> Record:
        """The record of the comparison `id`, made and kept at the first call; of two made at once the first is kept."""
        if found := self.get(tab, id):
            return found
        record = make()
        new = record, bytes_of(record)
        return self._tabs.change(tab, lambda kept: _newest({**(kept or {}), id: (kept or {}).get(id, new)}))[id][0]

    def get(self, tab: str, id: str) -> Record | None:
        """One comparison, if it is still kept."""
        return self._records(tab).get(id)

    def set_quality(self, tab: str, id: str, quality: Quality) -> None:
        """Put what a scoring gave into a comparison's record, if it is still kept."""
        if found := self.get(tab, id):
            record = replace(found, quality=quality)
            new = record, bytes_of(record)
            self._tabs.change(tab, lambda kept: _newest({**(kept or {}), id: new} if id in (kept or {}) else kept or {}))

    def choose(self, tab: str, ids: list[str]) -> list[Record]:
        """The comparisons named, in their order in time; all where none is named."""
        return [record for id, record in self._records(tab).items() if id in ids or not ids]

    def labels(self, tab: str) -> list[tuple[str, str]]:
        """(label, id) of each comparison, newest first; each with its model where there are several."""
        records = self._records(tab)
        several = len({model_words(record) for record in records.values()}) > 1
        return [(f"{number}. {line(record, several)}", id) for number, (id, record) in reversed(list(enumerate(records.items(), 1)))]

    def forget(self, tab: str) -> None:
        """Drop a tab that was closed."""
        self._tabs.drop(tab)

    def _records(self, tab: str) -> dict[str, Record]:
        return {id: record for id, (record, _) in (self._tabs.get(tab) or {}).items()}


def _newest(kept: dict[str, Sized]) -> tuple[dict[str, Sized], int]:
    """As many of the newest as one tab may keep, and their bytes."""
    total = sum(size for _, size in kept.values())
    while len(kept) > 1 and (len(kept) > MOST_KEPT or total > MOST_BYTES):
        _, size = kept.pop(next(iter(kept)))
        total -= size
    return kept, total


def model_words(record: Record) -> str:
    """The model of a comparison: its name, what was merged into it and its revision, as far as known; those of other lanes where they differ."""
    model = record.model
    words = " ".join(filter(None, [model.id, model.adapter and f"with {model.adapter}", model.revision and f"({model.revision[:12]})"])) or UNKNOWN
    others = dict.fromkeys(lane.model_id for lane in record.lanes.values() if lane.model_id not in (None, model.id))
    return ", ".join([words, *(f"{lane.title(name)}: {lane.model_id}" for name, lane in record.lanes.items() if lane.model_id in others)])


def line(record: Record, with_model: bool = False) -> str:
    """A comparison in one line: time, its model where asked for, prompt, lanes with their key figures."""
    lanes = "; ".join(f"{lane.title(name)} {SPEED.words(SPEED.read(lane))}, {TOTAL.words(TOTAL.read(lane))}" for name, lane in record.lanes.items())
    model = f"{model_words(record)} · " if with_model else ""
    return f"{record.created[11:19]} UTC · {model}{short(record.request.prompt, 48)} · {lanes}"


def side_by_side(first: Record, second: Record) -> str:
    """Two comparisons, lane by lane, as a Markdown table with second / first in words."""
    models = model_words(first), model_words(second)
    differ = models[0] != models[1]
    rows = [
        ["", "A", "B", "B against A"],
        [grid.bold("Model"), *models, "another model" if differ else ""],
        [grid.bold("Prompt"), short(first.request.prompt), short(second.request.prompt), ""],
    ]
    for name in [name for name in first.lanes if name in second.lanes]:
        a, b = first.lanes[name], second.lanes[name]
        rows.append([grid.bold(b.title(name)), "", "", ""])
        rows.append(["Conditions", conditions(first, a), conditions(second, b), ""])
        rows += [_row(figure, a, b) for figure in (*FIGURES, TOKENS) if figure.read(a) is not None or figure.read(b) is not None]
    apart = [name for name in {**first.lanes, **second.lanes} if (name in first.lanes) != (name in second.lanes)]
    notes = [TWO_MODELS] * differ + [f"Only in one of the two: {', '.join(apart)}."] * bool(apart)
    return "\n\n".join([grid.markdown(rows), *notes])


def _row(figure: Figure, a: LaneRecord, b: LaneRecord) -> list[str]:
    """One figure of two lanes; the ratio's place is empty where one is unknown, and says why where they are unlike."""
    found = figure.ratio(b, a)
    words = figure.ratio_words(found) if found else f"no ratio: {reason}" if (reason := figure.unlike(b, a)) else ""
    return [figure.title, figure.words(figure.read(a)), figure.words(figure.read(b)), words]
