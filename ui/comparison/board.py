"""The scoreboard above the answers: who won, in four short facts; more than two lanes as a table in order of speed.

In: what was asked and, once every lane has ended, its record. Out: HTML that is safe inside `gr.HTML`, of the same height before, during and
after a run; the texts that its Copy buttons copy. Who won is said by `inference/record/scoreboard.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inference.lanes import LaneName, lane_title, precision_words
from inference.record import grid, scoreboard
from inference.record.model import Record
from inference.record.scoreboard import TITLES, Fact
from inference.record.verdict import subject
from ui.badge import about, colour, escape

BEFORE = "Send a prompt: who is faster, and by how much, will stand here."
DURING = "The answers are being written; who is faster stands here when all have ended."
MOST_ASKED = 400  # characters of a prompt on its one line, which shows fewer
HEADS = ("Lane", "Writing speed", "First word", "Size", "Answer")


def empty(lanes: Iterable[str], asked: str = "") -> str:
    """The scoreboard with nothing won yet: before the first prompt, or while `asked` is being answered."""
    lanes = list(lanes)
    body = _facts([Fact(title, "–") for title in TITLES], lanes) if len(lanes) < 3 else _table([(lane, [_title(lane), *["–"] * 4]) for lane in lanes], lanes)
    return _board("running" if asked else "empty", asked, body, DURING if asked else BEFORE)


def _title(lane: str) -> str:
    asked = LaneName.parse(lane)
    if asked.elsewhere:
        return asked.server
    return precision_words(asked.precision) if asked.automatic else lane_title(asked.precision, asked.device)


def board(record: Record, kept: int = 1) -> str:
    """The scoreboard of a finished comparison; `kept`: how many this tab has, all of which a reload would lose."""
    lanes = list(record.lanes)
    if facts := scoreboard.facts(record):
        body, said = _facts(facts, lanes), scoreboard.caveat(record)
    elif len(lanes) > 2:
        rows = [(each.lane, [each.title, each.speed, each.first_token, each.weights, each.answer]) for each in scoreboard.standings(record)]
        body, said = _table(rows, lanes), " ".join(filter(None, [scoreboard.no_winner(record), scoreboard.caveat(record)]))
    else:
        body, said = _facts([Fact(title, "–") for title in TITLES], lanes), scoreboard.no_winner(record)
    return _board("done", record.request.prompt, body, said, copied(record), kept, "caveat" if record.verdict.pairs else "caveat no-winner")


def _board(state: str, asked: str, body: str, said: str, copies: tuple[str, str] = ("", ""), kept: int = 0, looks: str = "caveat") -> str:
    text, table = copies
    off = "" if text else " disabled"
    shown = f'<span class="asked-label">Asked:</span> <bdi dir="auto">{escape(" ".join(asked[:MOST_ASKED].split()))}</bdi>' if asked else "&nbsp;"
    return (
        f'<section class="board" data-state="{state}" data-kept="{kept}" aria-label="Who won"><p class="asked">{shown}</p>{body}'
        f'<div class="board-foot"><p class="{looks}">{escape(said)}</p><div class="board-copy">'
        f'<button type="button" class="quiet" data-copy="{escape(text)}"{off}>Copy</button>'
        f'<button type="button" class="quiet" data-copy="{escape(table)}"{off}>Copy as Markdown</button></div></div></section>'
    )


def _facts(facts: Sequence[Fact], lanes: list[str]) -> str:
    cells = []
    for fact in facts:
        won = f" won {colour(fact.winner, lanes)}" if fact.winner else ""
        cells.append(f'<li class="fact{won}"><span class="fact-title">{about(fact.title)}</span><strong>{escape(fact.words)}</strong></li>')
    return f'<ul class="facts">{"".join(cells)}</ul>'


def _table(rows: list[tuple[str, list[str]]], lanes: list[str]) -> str:
    head = "".join(f'<th scope="col">{escape(words)}</th>' for words in HEADS)
    body = "".join(
        f'<tr class="{colour(lane, lanes)}"><th scope="row">{escape(cells[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells[1:])}</tr>'
        for lane, cells in rows
    )
    return f'<div class="standings"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def copied(record: Record) -> tuple[str, str]:
    """The scoreboard to send on: as text, and as Markdown."""
    asked = f"Asked: {record.request.prompt}"
    model = f"{record.model.id or 'unknown model'}, {subject(record)}, measured"
    hardware = ", ".join(filter(None, [record.environment.gpu, record.environment.cpu]))
    text = "\n".join([*filter(None, [model, hardware, asked]), "", *scoreboard.as_text(record)])
    rows: list[list[str]] = []
    if facts := scoreboard.facts(record):
        rows = [["", "", "measured"], *([grid.bold(fact.title), fact.words, fact.numbers] for fact in facts)]
    elif record.verdict.pairs:
        rows = [list(HEADS), *([each.title, each.speed, each.first_token, each.weights, each.answer] for each in scoreboard.standings(record))]
    told = [grid.markdown(rows), scoreboard.caveat(record)] if rows else [scoreboard.no_winner(record)]
    return text, "\n\n".join(filter(None, [grid.bold(model), *map(grid.escape, (hardware, asked)), *told]))
