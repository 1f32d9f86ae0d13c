"""A decision -> what the tab shows of it: the sentence, why, what would turn it, the drawing, every figure with where it is from, and what must be said beside it.

In: a decision in the page's words, and what the lanes cost. Out: HTML that is safe inside `gr.HTML`. Works nothing out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inference.decide.model import Decision
from inference.report.decision import OTHERS, Cell, CostLine, Row, Shown, shown
from ui.badge import escape
from ui.decide.chart import chart
from ui.decide.words import markdown

KINDS = {"kept": ("✓", "yes"), "broken": ("✗", "no"), "unsure": ("?", "not to be told")}
CAPTION = "A tap on a figure's name says where it is from."


def note(sentence: str) -> str:
    """A sentence in the place of a decision."""
    return f'<section><p role="status" class="note">{escape(sentence)}</p></section>'


def working() -> str:
    """What stands beside the button until there is a decision."""
    return '<p role="status" class="note" data-working>Working it out …</p>'


def refusal(sentence: str) -> str:
    """What is wrong with a value, beside its field; nothing for no sentence."""
    return f'<p role="alert">{escape(sentence)}</p>' if sentence else ""


def view(decision: Decision, costs: Iterable[CostLine], rests: str) -> str:
    """The whole decision; `rests` says what it rests on."""
    told = shown(decision, tuple(costs))
    drawn = chart(told.chart, told.turns) if told.chart else ""
    first = [group for group in told.groups if group[0] != OTHERS]
    others = [("", rows) for title, rows in told.groups if title == OTHERS]
    return (
        f'<section class="decision" aria-label="The decision">{_verdict(told, rests)}'
        f'<div class="reasons">{_list("Because", decision.because)}{_list("What would turn it", decision.turned_by)}</div>{drawn}{_table(told, first, CAPTION)}'
        f'<details class="more"><summary>{OTHERS}, and what you asked</summary>{_table(told, others, "")}<h3>You asked</h3>{_pairs(told)}</details>'
        f'<div class="reasons">{_list("Beside it", decision.remarks)}</div></section>'
    )


def _pairs(told: Shown) -> str:
    return f'<dl class="pairs">{"".join(f"<div><dt>{escape(title)}</dt><dd>{escape(words)}</dd></div>" for title, words in told.asked)}</dl>'


def _verdict(told: Shown, rests: str) -> str:
    decision = told.decision
    state = "decided" if decision.chosen else "undecided"
    sentence = decision.sentence if decision.chosen else decision.sentence.removeprefix("Not decided. ")
    head = "" if decision.chosen or sentence == decision.sentence else '<p class="head">Not decided</p>'
    return (
        f'<div class="verdict {told.colour}" data-state="{state}">{head}<p class="told">{escape(sentence)}</p><p class="rests">{escape(rests)}</p>'
        f'<button type="button" class="quiet" data-copy="{escape(markdown(decision))}">Copy as Markdown</button></div>'
    )


def _list(title: str, sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(words)}</li>" for words in sentences)
    return f"<div><h3>{escape(title)}</h3><ul>{items}</ul></div>" if items else ""


def _table(told: Shown, groups: Iterable[tuple[str, tuple[Row, ...]]], caption: str) -> str:
    heads = "".join(f'<th scope="col" class="{css}">{escape(title)}</th>' for title, css in told.heads)
    rows = "".join(_group(title, rows, told.heads) for title, rows in groups)
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<table class="stacks by-lane">{said}<thead><tr><td></td>{heads}</tr></thead>{rows}</table>'


def _group(title: str, rows: Iterable[Row], heads: Sequence[tuple[str, str]]) -> str:
    head = f'<tr class="group"><th scope="colgroup" colspan="{len(heads) + 1}">{escape(title)}</th></tr>' if title else ""
    return f"<tbody>{head}{''.join(_row(row, heads) for row in rows)}</tbody>"


def _row(row: Row, heads: Sequence[tuple[str, str]]) -> str:
    """A figure of every lane; its name opens where it is from, a line a lane where they differ."""
    each = list(zip(row.cells, heads, strict=True))
    sources = [row.source] if row.source else [f"{title}: {cell.source}" for cell, (title, _) in each if cell.source]
    name = escape(row.title)
    head = (
        f'<details><summary><span class="about">{name}</span></summary>{"".join(f"<p>{escape(words)}</p>" for words in sources)}</details>' if sources else name
    )
    cells = "".join(_cell(cell, title, css) for cell, (title, css) in each)
    return f'<tr><th scope="row">{head}</th>{cells}</tr>'


def _cell(cell: Cell, lane: str, css: str) -> str:
    sign, words = KINDS.get(cell.kind, ("", ""))
    mark = f'<span class="mark" aria-hidden="true">{sign} </span><span class="unseen">{words}: </span>' if sign else ""
    return f'<td data-head="{escape(lane)}" class="{css} {cell.kind}">{mark}{escape(cell.words)}</td>'
