"""Records -> the parts of a report: those of one model, the same lanes and the same way of asking belong together, and are told over all their prompts.

In: records. Out: `Part`s with who won, the table's rows, what the charts show, conditions and faults. Text only; knows no HTML.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from inference.lanes import colour, usual_title
from inference.record import reproduce, scoreboard, table
from inference.record.figures import FIRST_TOKEN, MEMORY, SPEED, TOTAL, Figure
from inference.record.model import Environment, Record
from inference.record.scoreboard import Fact, Standing
from inference.report.charts import Bar, Race, bars, race
from inference.series import overall
from inference.series.series import medians
from inference.units import UNKNOWN, count, size

DRAWN = (
    (SPEED, SPEED.title, "tokens a second, more is better"), (FIRST_TOKEN, FIRST_TOKEN.title, "less is better"), (TOTAL, TOTAL.title, "less is better"),
    (MEMORY, MEMORY.title, "less is better"),
)  # fmt: skip
PROMPTS_FILE = "prompts.jsonl"
ELSEWHERE_TOLD = ("Response",)  # rows of the table that stand in a section of their own
OF_ONE_PROMPT = ("Response", "Quality")


@dataclass(frozen=True)
class Chart:
    """A figure of every lane as bars; `note` is which way is better."""

    title: str
    note: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Part:
    """Records of one model, the same lanes and the same way of asking, in their order; `number` is the part's, from 1."""

    number: int
    records: tuple[Record, ...]

    @cached_property
    def whole(self) -> Record:
        """The record itself, or one that holds all runs of all."""
        return self.records[0] if self.one else overall.overall(self.records)

    @property
    def one(self) -> bool:
        """Whether a single prompt was asked."""
        return len(self.records) == 1

    @property
    def model(self) -> str:
        return self.whole.model.id or "unknown model"

    @property
    def lanes(self) -> list[tuple[str, str]]:
        """Each lane's title and the class of its colour."""
        return [(lane.title(name), self.colour(name)) for name, lane in self.whole.lanes.items()]

    @property
    def titles(self) -> str:
        """All lanes' titles."""
        return ", ".join(title for title, _ in self.lanes)

    def title(self, lane: str) -> str:
        """A lane's title; the usual one where these records have not that lane, as quality of a file of its own may speak of it."""
        return self.whole.lanes[lane].title(lane) if lane in self.whole.lanes else usual_title(lane)

    def colour(self, lane: str | None) -> str:
        """The class of a lane's colour; empty for none."""
        return colour(lane, self.whole.lanes) if lane else ""

    @property
    def basis(self) -> str:
        """What the figures are of."""
        if not self.one:
            return f"Medians over {count(len(self.records), 'prompt')}, with the smallest and the largest."
        repeats = self.whole.request.repeats
        if repeats == 1:
            return "Of one run each: times vary from run to run."
        some = any(lane.n < repeats for lane in self.whole.lanes.values())
        which = f"the runs that came to their end, of {repeats}" if some else f"{repeats} runs"
        return f"Medians of {which} after a warm-up, with the smallest and the largest."

    @cached_property
    def facts(self) -> tuple[Fact, ...]:
        return scoreboard.facts(self.whole) if self.one else overall.facts(self.records, medians(self.records))

    @property
    def standings(self) -> list[tuple[Standing, str]]:
        """The lanes in order of speed, where there are more than two; of several prompts with how many answers are the reference's."""
        if len(self.whole.lanes) < 3 or not self.whole.verdict.pairs:
            return []
        found = scoreboard.standings(self.whole)
        return [(each if self.one else replace(each, answer=self._same(each)), self.colour(each.lane)) for each in found]

    def _same(self, standing: Standing) -> str:
        pairs = [pair for record in self.records for pair in record.verdict.pairs if pair.other == standing.lane]
        return f"{sum(pair.identical for pair in pairs)} of {len(pairs)} the same" if pairs else standing.answer

    @property
    def beside(self) -> str:
        """What must be said beside who won, or why nobody did."""
        if not self.one:
            return overall.beside(self.records, self.facts)
        return scoreboard.no_winner(self.whole) or scoreboard.caveat(self.whole)

    @property
    def key_rows(self) -> list[table.Row]:
        return [row for row in table.key_rows(self.whole) if self.one or row.title not in OF_ONE_PROMPT]

    @property
    def rows(self) -> list[table.Row]:
        """The whole table, less what stands in a section of its own."""
        left_out = ELSEWHERE_TOLD if self.one else OF_ONE_PROMPT
        return [row for row in table.table_rows(self.whole) if row.title not in left_out]

    @cached_property
    def charts(self) -> list[Chart]:
        """The bars of each figure that a lane has."""
        found = [Chart(title, note, bars(self.whole, figure)) for figure, title, note in DRAWN]
        return [chart for chart in found if any(bar.share for bar in chart.bars)]

    @cached_property
    def raced(self) -> Record:
        """The record whose race is drawn: of several the one in the middle, by the time of its slowest lane."""
        return sorted(self._timed, key=lambda record: max((_known(TOTAL, record)), default=0.0))[len(self._timed) // 2]

    @property
    def _timed(self) -> Sequence[Record]:
        """The records in which a lane came to its end; all where none did."""
        return [record for record in self.records if any(_known(TOTAL, record))] or self.records

    @cached_property
    def race(self) -> Race | None:
        return race(self.raced)

    @property
    def raced_prompt(self) -> str:
        """Which prompt that is, where there are several."""
        return "" if self.one else f"Prompt {self.records.index(self.raced) + 1}, whose time is the middle one of {len(self._timed)}."

    @property
    def settings(self) -> list[tuple[str, str]]:
        """How it was asked."""
        asked = self.whole.request
        drawn = f"{asked.temperature:g}, seed {asked.seed}" if asked.temperature else "0: each lane takes its likeliest token"
        found = [
            ("Prompts", str(len(self.records))), ("Format", {"chat": "the model's chat template", "raw": "the prompt as it is"}.get(asked.format, asked.format)),
            ("System prompt", asked.system), ("An answer is cut at", count(asked.max_new_tokens)), ("Temperature", drawn),
            ("Lanes", {"in-turn": "one after the other", "together": "at the same time"}.get(asked.mode, asked.mode)),
            ("Runs of each", f"{asked.repeats}, after a warm-up" if asked.repeats > 1 else "1"),
        ]  # fmt: skip
        return [(title, words) for title, words in found if words]

    @property
    def environments(self) -> list[list[tuple[str, str]]]:
        """Hardware and versions, each set once."""
        return [_environment(each) for each in dict.fromkeys(record.environment for record in self.records)]

    @property
    def faults(self) -> list[str]:
        """What went wrong, was not at its best or must be said, a line each, with the prompts that it is of."""
        found: dict[str, list[int]] = {}
        for number, record in enumerate(self.records, 1):
            for line in _faults(record):
                found.setdefault(line, []).append(number)
        return [line + _which(numbers, len(self.records)) for line, numbers in found.items()]

    @property
    def no_fault(self) -> str:
        """What may be said where there is none of that; of a server nobody here knows how it answered."""
        here = [lane for lane in self.whole.lanes.values() if not lane.elsewhere]
        alone = " and alone" if all(run.alone for lane in here for run in lane.runs) else ""
        whose = ", at its fastest" if len(here) == len(self.whole.lanes) else ", those that run here at their fastest"
        return f"None: every lane answered{whose}{alone}."

    @property
    def command(self) -> str:
        """The command line that measures this again."""
        return reproduce.command(self.whole, "" if self.one else PROMPTS_FILE)


def parts(records: Sequence[Record]) -> list[Part]:
    """The records by what they have in common, in the order of the first of each."""
    found: dict[object, list[Record]] = {}
    for record in records:
        asked = replace(record.request, prompt="", seed=record.request.seed if record.request.temperature else 0)
        found.setdefault((record.model.id, record.model.revision, record.model.adapter, tuple(record.lanes), asked), []).append(record)
    return [Part(number, tuple(each)) for number, each in enumerate(found.values(), 1)]


def _known(figure: Figure, record: Record) -> Iterator[float]:
    return (found for lane in record.lanes.values() if (found := figure.read(lane)))


def _environment(found: Environment) -> list[tuple[str, str]]:
    gpu = f"{found.gpu}, {size(found.gpu_memory_bytes)}, driver {found.driver or UNKNOWN}" if found.gpu else ""
    ram = size(found.ram_limit_bytes) if found.ram_limit_bytes else ""
    versions = ((name, getattr(found, name) or "") for name in table.VERSIONS)
    return [(title, words) for title, words in (("CPU", found.cpu or ""), ("RAM limit", ram), ("GPU", gpu), *versions) if words]


def _faults(record: Record) -> Iterator[str]:
    for name, lane in record.lanes.items():
        title = lane.title(name)
        if lane.reason and not lane.available:
            yield f"{title}: {lane.reason}"
        yield from (f"{title}: {run.error}" for run in lane.runs if run.error)
        yield from (f"{title}: stopped before its end" for run in lane.runs if run.finish_reason == "stopped")
        yield from (f"{title} was not at its fastest: {run.path_reason}" for run in lane.runs if run.path_reason)
        yield from (f"{title}: another run was going on beside" for run in lane.runs if run.alone is False)
    notes = {lane.note for lane in record.lanes.values()}
    yield from (f"{lane.title(name)}: {lane.note}" if len(notes) > 1 else lane.note for name, lane in record.lanes.items() if lane.note)


def _which(numbers: Sequence[int], of: int) -> str:
    """The prompts that a line is of, where that is not all of them."""
    known = sorted(set(numbers))
    return "" if len(known) == of else f" (prompt{'s' * (len(known) > 1)} {', '.join(map(str, known))})"
