"""The comparisons of each tab, in this process's memory: kept until the tab closes, the oldest of a tab go first.

In: records by tab. Out: records, their labels, and a comparison's model, settings and winner in words. Draws nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from inference.record.model import Record
from inference.record.scoreboard import in_short
from inference.record.scores import Quality
from inference.series.table import short
from inference.units import UNKNOWN, count
from ui.answers import local
from ui.tabs import Tabs, bytes_of

MOST_KEPT = 50
ISOLATE, END = "\u2068", "\u2069"  # a text between them has its own direction and turns nothing around it
MOST_PROMPT = 80  # characters of a prompt in its label
MOST_BYTES = 16 * 2**20  # of one tab; the newest comparison is kept however large


@dataclass(frozen=True)
class Kept:
    """A record, its number among all of its tab, and what is asked of it again and again: its bytes, its model, the words of its label."""

    record: Record
    size: int
    model: str
    prompt: str
    winner: str
    number: int = 1

    @classmethod
    def of(cls, record: Record) -> Kept:
        """What is kept of a record."""
        return cls(record, bytes_of(record), model_words(record), short(record.request.prompt, MOST_PROMPT), in_short(record))

    def label(self, offset_min: float, with_model: bool) -> str:
        """The prompt on a line, and under it when it was, who won and, where asked for, the model."""
        rest = [local(self.record.created, offset_min), self.winner, *[self.model] * with_model]
        return f"{self.number}. {ISOLATE}{self.prompt}{END}\n{' · '.join(rest)}"


class Histories:
    """Every tab's comparisons, oldest first; what is kept of a tab is replaced, never changed."""

    def __init__(self) -> None:
        self._tabs: Tabs[dict[str, Kept]] = Tabs()

    def add(self, tab: str, id: str, make: Callable[[], Record]) -> Record:
        """The record of the comparison `id`, made and kept at the first call; of two made at once the first is kept."""
        if found := self.get(tab, id):
            return found
        new = Kept.of(make())
        return self._tabs.change(tab, lambda kept: _newest(_with(kept or {}, id, new)))[id].record

    def get(self, tab: str, id: str) -> Record | None:
        """One comparison, if it is still kept."""
        return self._records(tab).get(id)

    def set_quality(self, tab: str, id: str, quality: Quality) -> None:
        """Put what a scoring gave into a comparison's record, if it is still kept."""
        if found := self.get(tab, id):
            new = Kept.of(replace(found, quality=quality))
            self._tabs.change(tab, lambda kept: _newest({**kept, id: replace(new, number=kept[id].number)} if kept and id in kept else kept or {}))

    def choose(self, tab: str, ids: list[str]) -> list[Record]:
        """The comparisons named, in their order in time; all where none is named."""
        return [record for id, record in self._records(tab).items() if id in ids or not ids]

    def labels(self, tab: str, offset_min: float = 0) -> list[tuple[str, str]]:
        """(label, id) of each comparison, newest first; each with its model where there are several; on the visitor's clock."""
        kept = self._tabs.get(tab) or {}
        several = len({each.model for each in kept.values()}) > 1
        return [(each.label(offset_min, several), id) for id, each in reversed(kept.items())]

    def forget(self, tab: str) -> None:
        """Drop a tab that was closed."""
        self._tabs.drop(tab)

    def _records(self, tab: str) -> dict[str, Record]:
        return {id: kept.record for id, kept in (self._tabs.get(tab) or {}).items()}


def _with(kept: dict[str, Kept], id: str, new: Kept) -> dict[str, Kept]:
    """`kept` with a comparison more, if it is none of them; its number stays its own when those before it go."""
    return {**kept} if id in kept else {**kept, id: replace(new, number=1 + max((each.number for each in kept.values()), default=0))}


def _newest(kept: dict[str, Kept]) -> tuple[dict[str, Kept], int]:
    """As many of the newest as one tab may keep, and their bytes."""
    total = sum(each.size for each in kept.values())
    while len(kept) > 1 and (len(kept) > MOST_KEPT or total > MOST_BYTES):
        total -= kept.pop(next(iter(kept))).size
    return kept, total


def model_words(record: Record) -> str:
    """The model of a comparison: its name, what was merged into it and its revision, as far as known; those of other lanes where they differ."""
    model = record.model
    adapter = model.adapter or ""
    of_its_name = adapter.startswith((f"{model.id} (", f"{model.id}@"))  # what was asked for is the adapter itself
    named = [adapter] if of_its_name else [model.id, adapter and f"with {adapter}"]
    revision = f"({model.revision[:12]})" if model.revision and model.revision not in adapter else ""
    words = " ".join(filter(None, [*named, revision])) or UNKNOWN
    others = dict.fromkeys(lane.model_id for lane in record.lanes.values() if lane.model_id not in (None, model.id))
    return ", ".join([words, *(f"{lane.title(name)}: {lane.model_id}" for name, lane in record.lanes.items() if lane.model_id in others)])


def settings_words(record: Record) -> str:
    """What was asked for besides the prompt: "at most 50 tokens · greedy · chat format · in turn"."""
    asked = record.request
    drawn = "greedy" if not asked.temperature else f"temperature {asked.temperature:g}, seed {asked.seed}"
    return " · ".join([f"at most {count(asked.max_new_tokens)}", drawn, f"{asked.format} format", asked.mode.replace("-", " ")])
