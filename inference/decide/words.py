"""A decision -> text for a terminal, Markdown, and plain values for JSON; every number with where it is from.

In: a decision. Out: text of which no line is wider than asked. Works nothing out.
"""

from __future__ import annotations

from typing import Any

from inference import terminal
from inference.decide.model import Candidate, Decision
from inference.record import grid
from inference.record.export import plain

SCHEMA = "gpu-vs-cpu-decision/1"
PARTS = (("Because", "because"), ("What would turn it", "turned_by"), ("Beside it", "remarks"))
INDENT = 2


def text(decision: Decision, width: int = terminal.USUAL_WIDTH) -> str:
    """The decision, its reasons, and each lane's numbers."""
    parts = [terminal.wrapped(terminal.printable(decision.sentence), width), _asked(decision, width)]
    for title, name in PARTS:
        if lines := getattr(decision, name):
            each = [terminal.wrapped(terminal.printable(f"- {line}"), width, INDENT) for line in lines]
            parts.append("\n".join([title, *each]))
    return "\n\n".join([*parts, *(_lane(candidate, width) for candidate in decision.candidates if candidate.figures)])


def _asked(decision: Decision, width: int) -> str:
    return terminal.wrapped(terminal.printable(f"Model {decision.model}. You ask: {asked(decision)}."), width)


def asked(decision: Decision) -> str:
    """What was asked, in words."""
    wanted = decision.asked
    found = [f"{wanted.answers_per_day:,.10g} answers a day", f"open {wanted.open_hours:g} hours"]
    found.append("always on" if wanted.sleep_after_min is None else f"asleep {wanted.sleep_after_min:g} minutes after a visitor")
    limits = (
        ("{:g} tokens an answer", wanted.tokens), ("first token within {:g} s", wanted.max_first_token_s), ("answer within {:g} s", wanted.max_total_s),
        ("same first choice at {:g} at least", wanted.min_agreement), ("{:g} of the expected answers lost at most", wanted.max_lost),
    )  # fmt: skip
    found += [words.format(value) for words, value in limits if value is not None]
    return ", ".join(found) + ("" if any(value is not None for _, value in limits[1:]) else ", no limit")


def _lane(candidate: Candidate, width: int) -> str:
    title = f"{candidate.title} ({candidate.lane}){'' if candidate.out is None else ', out'}"
    rows = [(f"{each.title}", each.words, each.source) for each in candidate.figures]
    return grid.fitted([(title, "", "from"), *rows], width)


def markdown(decision: Decision) -> str:
    """The same as a section."""
    parts = [f"## Which one to serve\n\n**{grid.escape(decision.sentence)}**", grid.escape(f"Model {decision.model}. Asked: {asked(decision)}.")]
    for title, name in PARTS:
        if lines := getattr(decision, name):
            parts.append("\n".join([f"### {title}", "", *(f"- {grid.escape(line)}" for line in lines)]))
    for candidate in decision.candidates:
        if candidate.figures:
            rows = [(grid.bold(each.title), each.words, each.source) for each in candidate.figures]
            parts.append(f"### {grid.escape(f'{candidate.title} ({candidate.lane})')}\n\n" + grid.markdown([("", "", "from"), *rows]))
    return "\n\n".join(parts) + "\n"


def as_json(decision: Decision) -> dict[str, Any]:
    """The decision as plain values, ready for JSON."""
    return {"schema": SCHEMA, **plain(decision)}
