"""A comparison's record -> what a terminal shows of it: who won, each lane's answer whole, the figures; all of them only if asked for.

In: a record, the terminal's width in columns. Out: text of which no line is wider. Prints nothing.
"""

from __future__ import annotations

from inference.record import grid, scoreboard
from inference.record.model import Record
from inference.record.quality import quality_table
from inference.record.table import errors, key_rows, response, text_rows, text_table
from inference.record.verdict import verdict_text
from inference.terminal import columns, printable, wrap, wrapped

INDENT = 2
STANDINGS = ("lane", "speed", "first word", "size", "answer")


def comparison(record: Record, width: int, full: bool = False) -> str:
    """Verdict, answers and six rows; with `full` every row, the summary and the verdict in sentences."""
    parts = [verdict(record, width), *(answer(record, name, width) for name in record.lanes)]
    if full:
        parts += [text_table(record, width), wrapped(verdict_text(record).replace("**", ""), width)]
    elif any(lane.model_id is not None if lane.elsewhere else lane.precision for lane in record.lanes.values()):  # else no row would hold a figure
        parts.append(text_rows(record, key_rows(record), width))
    if record.quality:
        parts.append(wrapped(quality_table(record.quality), width, INDENT))
    return "\n\n".join(parts)


def verdict(record: Record, width: int) -> str:
    """Who won, in short facts (several lanes: in order of speed), and the caveat."""
    if facts := scoreboard.facts(record):
        pairs = [(fact.title, f"{fact.words}{f' ({fact.numbers})' if fact.numbers else ''}") for fact in facts]
        first = max(columns(title) for title, _ in pairs)
        told = grid.text(pairs, [first, width - first - grid.GAP])
    elif record.verdict.pairs:
        rows = [STANDINGS, *((each.title, each.speed, each.first_token, each.weights, each.answer) for each in scoreboard.standings(record))]
        told = grid.fitted(rows, width)
    else:
        told = wrapped(scoreboard.no_winner(record), width)
    caveat = scoreboard.caveat(record)
    return f"{told}\n\n{wrapped(caveat, width)}" if caveat else told


def answer(record: Record, name: str, width: int) -> str:
    """A lane's answer under its name, in its own lines, and what went wrong."""
    lane = record.lanes[name]
    wrong = errors(record, lane)
    text = response(record, lane) + (f"\n{wrong}" if wrong != "none" else "")
    lines = (part for line in printable(text).split("\n") for part in wrap(line, width - INDENT))
    return "\n".join([*wrap(lane.title(name), width), *(f"{' ' * INDENT}{line}".rstrip() for line in lines)])
