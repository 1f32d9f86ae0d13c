"""A decision -> text for a terminal, Markdown, and plain values for JSON; every number with where it is from.

In: a decision. Out: text of which no line is wider than asked. Works nothing out.
"""

from __future__ import annotations

from typing import Any

from inference import terminal
from inference.decide.model import Decision
from inference.record import grid
from inference.record.export import plain
from inference.units import digits, many

SCHEMA = "gpu-vs-cpu-decision/1"
PARTS = (("Because", "because"), ("What would turn it", "turned_by"), ("Beside it", "remarks"))
INDENT = 2
WIDE = 130  # columns, from which on there is room for one of sources


def text(decision: Decision, width: int = terminal.USUAL_WIDTH) -> str:
    """The decision, its reasons, and each lane's numbers."""
    parts = [terminal.wrapped(terminal.printable(decision.sentence), width), _asked(decision, width)]
    for title, name in PARTS:
        if lines := getattr(decision, name):
            each = [terminal.wrapped(terminal.printable(f"- {line}"), width, INDENT) for line in lines]
            parts.append("\n".join([title, *each]))
    return "\n\n".join([*parts, *_figures(decision, width)])


def _figures(decision: Decision, width: int) -> list[str]:
    """Each lane's numbers, with their sources in a column, or below where that would be a narrow one."""
    rows = _table(decision)
    if len(rows) < 2:
        return []
    if width >= WIDE:
        return [grid.fitted(rows, width)]
    sources = [f"- {title}: {part}" for title, *_, source in rows[1:] for part in source.split("\n")]
    below = [terminal.wrapped(terminal.printable(line), width, INDENT) for line in sources]
    return [grid.fitted([row[:-1] for row in rows], width), "\n".join(["Where each is from", *below])]


def _asked(decision: Decision, width: int) -> str:
    return terminal.wrapped(terminal.printable(f"Model {decision.model}. You ask: {asked(decision)}."), width)


def asked(decision: Decision) -> str:
    """What was asked, in words."""
    wanted = decision.asked
    found = [f"{many(wanted.answers_per_day, 'answer')} a day", f"open {many(wanted.open_hours, 'hour')}"]
    found.append("always on" if wanted.sleep_after_min is None else f"asleep {many(wanted.sleep_after_min, 'minute')} after a visitor")
    found += [f"{many(wanted.tokens, 'token')} an answer"] if wanted.tokens is not None else []
    limits = (
        ("first token within {} s", wanted.max_first_token_s), ("answer within {} s", wanted.max_total_s),
        ("same first choice at {} at least", wanted.min_agreement), ("{} of the expected answers lost at most", wanted.max_lost),
    )  # fmt: skip
    found += [words.format(digits(value)) for words, value in limits if value is not None]
    return ", ".join(found) + ("" if any(value is not None for _, value in limits) else ", no limit")


def _table(decision: Decision) -> list[list[str]]:
    """A column a lane, a row a figure, and where each is from: once, where it is from the same for all."""
    shown = [candidate for candidate in decision.candidates if candidate.figures]
    rows = [["", *(f"{candidate.title} ({candidate.lane}){', out' if candidate.out else ''}" for candidate in shown), "From"]]
    by_lane = [{figure.title: figure for figure in candidate.figures} for candidate in shown]
    for title in dict.fromkeys(figure.title for candidate in shown for figure in candidate.figures):
        cells = [found.get(title) for found in by_lane]
        sources = {candidate.lane: cell.source for candidate, cell in zip(shown, cells, strict=True) if cell}
        alike = len(set(sources.values())) == 1
        told = next(iter(sources.values())) if alike else "\n".join(f"{lane}: {source}" for lane, source in sources.items())
        rows.append([title, *(cell.words if cell else "–" for cell in cells), told])
    return rows


def markdown(decision: Decision) -> str:
    """The same as a section."""
    parts = [f"## Which one to serve\n\n**{grid.escape(decision.sentence)}**", grid.escape(f"Model {decision.model}. Asked: {asked(decision)}.")]
    for title, name in PARTS:
        if lines := getattr(decision, name):
            parts.append("\n".join([f"### {title}", "", *(f"- {grid.escape(line)}" for line in lines)]))
    head, *rows = _table(decision)
    if rows:
        parts.append("### The figures\n\n" + grid.markdown([head, *([grid.bold(title), *cells] for title, *cells in rows)]))
    return "\n\n".join(parts) + "\n"


def as_json(decision: Decision) -> dict[str, Any]:
    """The decision as plain values, ready for JSON."""
    return {"schema": SCHEMA, **plain(decision)}
