"""The figures that lanes are held against each other by: one list, with a title, words, how it is read, and what more of it means.

Verdict, summary, table, history, charts, the tables of a prompts file and the bench's take theirs from here. A ratio is
other / reference; of unlike things (a cold and a warm load, one that fetched the model, VRAM and RAM) there is none, and the reason is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inference.events import LoadFigures
from inference.record.model import LaneRecord
from inference.units import UNKNOWN, rate, same_size, seconds, size, times

Words = Callable[[float | None], str]
Two = Callable[[LaneRecord, LaneRecord], str]


def ratio(top: float | None, bottom: float | None) -> float | None:
    """top / bottom, None where one is unknown or there is nothing to divide by."""
    return top / bottom if top is not None and bottom else None


def having(lane: LaneRecord, key: str) -> int:
    """How many of the runs that count have the figure `key`: an answer of one token has no speed."""
    return sum(getattr(run, key, None) is not None for run in lane.ended_runs)


@dataclass(frozen=True)
class Figure:
    """One figure of a lane. `key` is its name in a record or a bench, `short` that of its ratio there (empty where none is kept).

    `more`, `less` and `same` are the words for a ratio; `unit` is for an axis; `note` says what both numbers are of;
    `unlike` says why two lanes' numbers give no ratio, or nothing.
    """

    key: str
    title: str
    words: Words
    unit: str
    read: Callable[[LaneRecord], float | None]
    more: str
    less: str
    more_is_better: bool = False
    same: str = "about the same"
    short: str = ""
    note: Two = lambda other, reference: ""
    unlike: Two = lambda other, reference: ""

    def ratio(self, other: LaneRecord, reference: LaneRecord) -> float | None:
        """other / reference; None where one is unknown, or the two are unlike."""
        return None if self.unlike(other, reference) else ratio(self.read(other), self.read(reference))

    def ratio_words(self, value: float) -> str:
        """A ratio in words, with its number."""
        return times(value, self.more, self.less, self.same)

    def numbers(self, other: LaneRecord, reference: LaneRecord) -> str:
        """Both numbers: "5.00 tok/s against 10.0 tok/s"."""
        return f"{self.words(self.read(other))} against {self.words(self.read(reference))}"

    def compared(self, other: LaneRecord, reference: LaneRecord) -> str:
        """ "2.0 times slower (5.00 tok/s against 10.0 tok/s)", or why there is no ratio; empty where a number is unknown."""
        if not self.read(other) or not self.read(reference):
            return ""
        if reason := self.unlike(other, reference):
            return f"no ratio ({self.numbers(other, reference)}): {reason}"
        found = ratio(self.read(other), self.read(reference))
        return f"{self.ratio_words(found or 0)} ({self.numbers(other, reference)}){self.note(other, reference)}"


def _both_loads(other: LaneRecord, reference: LaneRecord) -> str:
    return ", both cold" if other.load and other.load.cold else ", both warm"


def _unlike_loads(other: LaneRecord, reference: LaneRecord) -> str:
    """A warm load finds files and libraries in memory that a cold one reads from the disk; what one lane fetched or restored the other one finds."""
    if not other.load or not reference.load:
        return ""
    if other.load.cold != reference.load.cold:
        return f"the first is a {_cold(other)} load, the second a {_cold(reference)} one"
    first, second = other.load, reference.load
    whole, without = ratio(first.total_s, second.total_s), ratio(first.total_s - fetching_s(first), second.total_s - fetching_s(second))
    if not whole or not without or same_size(whole / without):
        return ""
    return f"{seconds(fetching_s(first))} of the first and {seconds(fetching_s(second))} of the second went into fetching or restoring the model"


def fetching_s(load: LoadFigures) -> float:
    """The part of a load in which the model's files came from elsewhere, or were restored: it is not there the next time."""
    return load.spans.get("download", 0.0)


def _cold(lane: LaneRecord) -> str:
    return "cold" if lane.load and lane.load.cold else "warm"


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def _unlike_memory(other: LaneRecord, reference: LaneRecord) -> str:
    """VRAM is what the lane's process reserves; a RAM peak has the mapped pages of files in it, which are the system's to take back."""
    if other.memory_kind == reference.memory_kind:
        return ""
    return f"the first is {other.memory_kind}, the second {reference.memory_kind}, and mapped files count in RAM only"


LOAD = Figure(
    "load_s", "Load", seconds, "Seconds", lambda lane: lane.load.total_s if lane.load else None, "longer", "shorter",
    short="load", note=_both_loads, unlike=_unlike_loads,
)  # fmt: skip
FIRST_TOKEN = Figure(
    "ttft_s", "First token", seconds, "Seconds", lambda lane: lane.median.ttft_s, "later", "sooner", same="about as soon", short="ttft"
)  # fmt: skip
SPEED = Figure(
    "decode_tps", "Speed", rate, "Tokens a second", lambda lane: lane.median.decode_tps, "faster", "slower",
    more_is_better=True, same="about as fast", short="decode",
)  # fmt: skip
TOTAL = Figure("total_s", "Total", seconds, "Seconds", lambda lane: lane.median.total_s, "longer", "shorter", short="total")
MEMORY = Figure(
    "memory_bytes", "Memory", size, "VRAM or RAM", lambda lane: lane.memory_bytes, "higher", "lower",
    note=lambda _, reference: f", {reference.memory_kind}", unlike=_unlike_memory,
)  # fmt: skip
AT_REST = Figure(
    "ram_uss", "RAM at rest", size, "RAM", lambda lane: lane.at_rest_bytes, "higher", "lower", note=lambda *_: ", USS of the lane's process"
)  # fmt: skip
WEIGHTS = Figure(
    "weights_bytes", "Size", size, "Weights", lambda lane: lane.weights_bytes, "larger", "smaller", short="memory", note=lambda *_: ", weights"
)  # fmt: skip
TOKENS = Figure(
    "new_tokens", "Tokens", _number, "Tokens", lambda lane: lane.shown_run.new_tokens if lane.shown_run else None, "more", "fewer", more_is_better=True
)  # fmt: skip
FIGURES = (LOAD, FIRST_TOKEN, SPEED, TOTAL, MEMORY, AT_REST, WEIGHTS)
OF_A_RUN = (FIRST_TOKEN, SPEED, TOTAL)  # what each single run has
