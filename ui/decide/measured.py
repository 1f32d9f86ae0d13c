"""What a browser tab has measured that a decision can rest on: its comparisons and its prompts file's rows, of one model.

In: records. Out: what they hold of each lane, with how many runs of how many prompts that is. Measures nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inference.decide.evidence import Gathered, gather
from inference.decide.rules import ENOUGH_RUNS
from inference.record.model import Model, Record
from inference.units import count

FIRST = "Nothing was measured in this browser tab yet. Ask a prompt in the first tab, or better a file of them in the second: each answer is a measurement."
NONE_COUNTED = "No lane has answered to the end yet: what was stopped or failed measures nothing. Ask again in the first tab."


@dataclass(frozen=True)
class Measured:
    """The records of the model that was asked last, and what they hold; `others` are records of another model, left out."""

    records: tuple[Record, ...]
    found: Gathered
    prompts: int
    others: int

    @property
    def runs(self) -> int:
        """The runs that count, of all lanes."""
        return sum(len(lane.total_s) for lane in self.found.lanes)

    def words(self, answers_now: str = "") -> str:
        """What a decision rests on, in a sentence or four; `answers_now` is the model that the page answers by now."""
        if not self.runs:
            return NONE_COUNTED
        told = [f"It rests on {count(self.runs, 'run')} of {count(self.prompts, 'prompt')} in this browser tab, answered by {self.found.model}."]
        if min(len(lane.total_s) for lane in self.found.lanes if lane.total_s) < ENOUGH_RUNS:
            told.append(f"Fewer than {ENOUGH_RUNS} runs of a lane say nothing of a limit on time: ask a few prompts more, or a file of them.")
        if answers_now not in ("", *(record.model.id for record in self.records)):
            told.append(f"The page answers by {answers_now} now: ask it a prompt, and a decision is about it.")
        if self.others:
            told.append(f"{count(self.others, 'comparison')} with another model {'is' if self.others == 1 else 'are'} left out.")
        return " ".join(told)


def measured(records: Sequence[Record]) -> Measured | None:
    """What these hold of the model of the newest one; None without any. Raises WrongArguments where they can't be of one decision."""
    if not records:
        return None
    known = [record for record in records if record.model.id is not None] or list(records)
    model = _key(max(known, key=lambda record: record.created).model)
    kept = tuple(record for record in known if _key(record.model) == model)
    found = gather(kept)
    asked = frozenset().union(*(lane.prompts for lane in found.lanes))
    return Measured(kept, found, len(asked), len(records) - len(kept))


def _key(model: Model) -> tuple[str | None, str | None, str | None]:
    return model.id, model.revision, model.adapter
