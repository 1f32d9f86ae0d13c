"""A part of a report -> every prompt with every lane's whole answer: what differs, what was expected, and which answers flipped.

In: a `Part`. Out: text in pieces, so that the one word that differs can be marked; knows no HTML. A flip is told by "contains", against the reference lane.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from inference.record import scoreboard
from inference.record.figures import OF_A_RUN
from inference.record.model import LaneRecord, Record, RunFigures, RunRecord
from inference.record.verdict import reference_of
from inference.report.parts import Part
from inference.series.expected import flips, is_right
from inference.units import count

WAY = "contains"
SHORT = 500  # characters of a prompt and an answer to it: up to there it is kept on one page of paper


@dataclass(frozen=True)
class Mark:
    """A word on an answer; `kind` is right, wrong, lost, won or note."""

    kind: str
    words: str


@dataclass(frozen=True)
class Side:
    """A lane's answer in three pieces, of which the middle one is where it parts from the other; its figures, marks and fault."""

    title: str
    colour: str
    text: tuple[str, str, str]
    figures: tuple[str, ...]
    marks: tuple[Mark, ...]
    fault: str


@dataclass(frozen=True)
class Asked:
    """A prompt with its answers; `anchor` is its place in the report, `told` whether the answers are the same."""

    anchor: str
    title: str
    prompt: str
    expected: str
    told: str
    same: bool | None
    flipped: bool
    sides: tuple[Side, ...]

    @property
    def short(self) -> bool:
        """Whether it fits on a page with others."""
        return len(self.prompt) + max(sum(map(len, side.text)) for side in self.sides) < SHORT


@dataclass(frozen=True)
class Flipped:
    """A lane against the reference over the answers that something is expected of; the lists are (anchor, number) of prompts."""

    title: str
    words: str
    lost: tuple[tuple[str, int], ...]
    won: tuple[tuple[str, int], ...]
    chance: str


@dataclass(frozen=True)
class Answers:
    """All of a part's prompts."""

    part: Part

    @cached_property
    def each(self) -> list[Asked]:
        return [_asked(self.part, number, record) for number, record in enumerate(self.part.records, 1)]

    @property
    def same(self) -> str:
        """How many answers are the same, by pair of lanes; empty for a single prompt, which says so itself."""
        names = dict.fromkeys(pair.other for record in self.part.records for pair in record.verdict.pairs)
        return " ".join(self._same(name) for name in names) if not self.part.one else ""

    @property
    def _reference(self) -> str:
        """The lane that the others are held against."""
        return reference_of(self.part.whole.lanes)

    def _same(self, lane: str) -> str:
        held = [pair.identical for record in self.part.records for pair in record.verdict.pairs if pair.other == lane]
        return f"{self.part.title(lane)} and {self.part.title(self._reference)} gave the same answer to {sum(held)} of {count(len(held), 'prompt')}."

    @property
    def flips(self) -> list[Flipped]:
        """Each lane against the reference, where answers are expected."""
        return [found for name in self.part.whole.lanes if name != self._reference and (found := self._flipped(name))]

    def _flipped(self, lane: str) -> Flipped | None:
        judged = [(number, pair) for number, record in enumerate(self.part.records, 1) if (pair := _judged(record, lane))]
        if not judged:
            return None
        before, after, wanted = zip(*(pair for _, pair in judged), strict=True)
        found = flips(before, after, wanted, WAY)
        numbers = [number for number, _ in judged]
        reference, other = self.part.title(self._reference), self.part.title(lane)
        return Flipped(
            title=other,
            words=f"Of {count(found.answers, 'answer')} that something is expected of, {reference} holds it in {found.right_reference}, {other} in {found.right_other}.",
            lost=self._places(numbers, found.right_to_wrong), won=self._places(numbers, found.wrong_to_right),
            chance=f"So uneven a split comes by chance with p = {found.mcnemar_p:.3g} (McNemar, exact)." if found.right_to_wrong or found.wrong_to_right else "",
        )  # fmt: skip

    def _places(self, numbers: list[int], which: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
        return tuple((_anchor(self.part, numbers[index]), numbers[index]) for index in which)

    @property
    def file(self) -> str:
        """The prompts as the file that the command reads."""
        return "\n".join(json.dumps(_line(record), ensure_ascii=False) for record in self.part.records)


def _line(record: Record) -> dict[str, str]:
    expected = {"expected": record.row.expected} if record.row and record.row.expected else {}
    return {"prompt": record.request.prompt, **expected}


def _anchor(part: Part, number: int) -> str:
    return f"prompt-{part.number}-{number}"


def _expected(record: Record) -> str:
    return (record.row.expected if record.row else None) or ""


def _judged(record: Record, lane: str) -> tuple[str, str, str] | None:
    """The reference's answer, the lane's and what is expected; None where one of them is not there."""
    runs = [record.lanes[name].shown_run if name in record.lanes else None for name in (reference_of(record.lanes), lane)]
    texts = [run.text for run in runs if run and run.counted]
    return (texts[0], texts[1], _expected(record)) if _expected(record) and len(texts) == 2 else None


def _asked(part: Part, number: int, record: Record) -> Asked:
    pairs = record.verdict.pairs
    line = f", line {record.row.line} of its file" if record.row else ""
    spans = scoreboard.parting(record)
    sides = tuple(_side(part, record, name, lane, spans.get(name)) for name, lane in record.lanes.items())
    return Asked(
        anchor=_anchor(part, number), title="The prompt" if part.one else f"Prompt {number}{line}", prompt=record.request.prompt, expected=_expected(record),
        told=scoreboard.answers(record, pairs[0]) if len(pairs) == 1 else "", same=record.verdict.identical,
        flipped=any(mark.kind == "lost" for side in sides for mark in side.marks), sides=sides,
    )  # fmt: skip


def _side(part: Part, record: Record, name: str, lane: LaneRecord, span: tuple[int, int] | None) -> Side:
    run = lane.shown_run
    title = lane.title(name)
    if run is None:
        return Side(title, part.colour(name), ("", "", ""), (), (), lane.reason or "Not run.")
    begin, end = span or (len(run.text), len(run.text))
    text = (run.text[:begin], run.text[begin:end] or ("(ends here)" if span else ""), run.text[end:])
    return Side(title, part.colour(name), text, tuple(_figures(lane, run)), tuple(_marks(record, name, lane, run)), run.error or "")


def _figures(lane: LaneRecord, run: RunRecord) -> Iterator[str]:
    """What is known of a run (of its lane's runs, where several count)."""
    measured: RunRecord | RunFigures = lane.median if lane.n else run
    yield " or ".join(dict.fromkeys(each.length for each in lane.ended_runs or [run]))  # the medians beside it are of all
    for figure in OF_A_RUN:
        if (found := getattr(measured, figure.key)) is not None:
            yield f"{figure.title.lower()} {figure.words(found)}"


def _marks(record: Record, name: str, lane: LaneRecord, run: RunRecord) -> Iterator[Mark]:
    if "noise" in (lane.note or ""):
        yield Mark("note", "Noise: random weights")
    if run.finish_reason in ("length", "stopped"):
        yield Mark(
            "note", {"length": "Cut at the token limit" if run.new_tokens is None else f"Cut at {run.length}", "stopped": "Stopped here"}[run.finish_reason]
        )
    if (expected := _expected(record)) and run.counted:
        right = is_right(run.text, expected, WAY)
        yield Mark("right", "✓ Holds what is expected") if right else Mark("wrong", "✗ Does not hold what is expected")
        judged = _judged(record, name) if name != reference_of(record.lanes) else None
        if judged and is_right(judged[0], expected, WAY) != right:
            yield Mark("won", "Flipped: wrong in the reference, right here") if right else Mark("lost", "Flipped: right in the reference, wrong here")
