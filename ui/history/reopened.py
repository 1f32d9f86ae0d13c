"""A kept comparison as it was: who won, what was asked and how, and every lane's answer with its figures.

In: a record and the visitor's clock. Out: HTML. Knows no component.
"""

from __future__ import annotations

from inference.record import scoreboard
from inference.record.model import Record
from inference.series.overall import lane_titles
from ui.answers import asked, facts, local, opened, parting, sides, table
from ui.badge import escape
from ui.histories import model_words, settings_words


def view(record: Record, offset_min: float) -> str:
    """The whole comparison but its table."""
    system = f'<p class="note">System prompt</p>{asked(record.request.system)}' if record.request.system else ""
    return opened(
        "The comparison chosen",
        f'<p class="when">{local(record.created, offset_min)} · model: {escape(model_words(record))}</p>'
        f'{asked(record.request.prompt)}{system}<p class="note">{escape(settings_words(record))}</p>'
        f"{_won(record)}{sides(record, lane_titles(record), parting(record))}",
    )


def _won(record: Record) -> str:
    if told := scoreboard.facts(record):
        return facts(told, record.lanes, scoreboard.caveat(record))
    if not record.verdict.pairs:
        return f'<p class="note">{escape(scoreboard.no_winner(record))}</p>'
    rows = [[each.title, each.speed, each.first_token, each.weights, each.answer] for each in scoreboard.standings(record)]
    return table(["Lane", *scoreboard.TITLES], rows) + f'<p class="note">{escape(scoreboard.caveat(record))}</p>'
