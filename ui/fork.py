"""The fork viewer: the full-precision answer token by token, coloured by how far 4 bits moved, and where the answers part.

In: an `AnswerQuality`. Out: HTML that is safe inside `gr.HTML` (every text of a model is written as entities). Colour is
never the only sign: values stand in each token's tooltip and in a list. Words are neutral; few positions get no verdict.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Generator
from typing import Any

import gradio as gr

from inference.errors import InferenceError
from inference.lanes import LaneName, precision_words
from inference.quality.answers import AnswerQuality, one_answer
from inference.quality.fork import NEAR_TIE_NATS
from inference.quality.scorer import REFERENCES
from inference.record.scale import USUAL
from inference.record.scores import ENOUGH_POSITIONS, Choice, Figures, Fork
from inference.units import count
from ui import badge
from ui.badge import escape
from ui.handlers import FAULT, Page

log = logging.getLogger(__name__)
BUTTON = "What did 4 bits cost here?"
BOUNDS_NATS = (0.01, 0.1, 1.0)
LEGEND = ("under 0.01 nat", "0.01 to 0.1", "0.1 to 1", "1 nat and more")
WORST = 10
PART = "·"  # stands for a token that is only part of a character


class ForkViewer:
    """The listeners of the viewer over one page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        keys = [lane.key for lane in page.lanes]
        self.possible = any(LaneName.parse(key).four_bit for key in keys) and any(key in REFERENCES for key in keys)

    def ready(self, verdict: str, request: gr.Request) -> list[Any]:
        """The button, usable once a comparison has its verdict, and the viewer, emptied."""
        session = self.page.sessions.get(request.session_hash or "")
        # A new comparison may have begun since that verdict, and what ended of it may be growing.
        answered = bool(verdict) and session is not None and session.complete and all(run.done and run.done.token_ids for run in session.outcomes.values())
        return [gr.Button(interactive=answered), gr.HTML("", visible=False)]

    def show(self, request: gr.Request) -> Generator[list[Any]]:
        """Score the comparison's answer and show it: the button and the viewer, first what is being done, then the result.

        Nothing changes at the end where a new comparison has begun meanwhile: it has emptied the viewer.
        """
        tab = request.session_hash or ""
        session = self.page.sessions.get(tab)
        if session is None or not session.complete:
            yield [gr.skip(), _note("Ask something first; there is no finished comparison to look at.")]
            return
        yield [gr.Button(interactive=False), _note("Both lanes are scoring the full-precision answer, one after the other …")]
        try:
            with self.page.engine.hold_model(session.comparison.model_number):
                quality = one_answer(self.page.engine, session.outcomes, greedy=not session.comparison.request.temperature)
            self.page.histories.set_quality(tab, session.comparison.id, quality.record)
            shown = gr.HTML(view(quality), visible=True)
        except InferenceError as error:
            shown = _note(str(error), "alert")
        except Exception:
            log.exception("no fork viewer")
            shown = _note(FAULT, "alert")
        still_shown = self.page.sessions.get(tab) is session
        yield [gr.Button(interactive=True), shown] if still_shown else [gr.skip(), gr.skip()]


def _note(sentence: str, role: str = "status") -> gr.HTML:
    return gr.HTML(f'<p class="fork-note" role="{role}">{escape(sentence)}</p>', visible=True)


def view(quality: AnswerQuality) -> str:
    """The whole viewer."""
    reference, other = (precision_words(LaneName.parse(name).precision) for name in (quality.reference_name, quality.other_name))
    names = reference, other
    index = quality.fork.index if quality.fork else None
    return (
        f'<section class="fork" aria-label="What 4 bits cost here"><h3>{escape(names[0])} answer, seen by both lanes</h3>'
        f"{_basis(quality, names)}{_figures(quality.figures)}{_legend(index is not None)}{_tokens(quality, names, index)}"
        f"{_fork(quality, names)}{_worst(quality, names)}{_scale()}</section>"
    )


def _basis(quality: AnswerQuality, names: tuple[str, str]) -> str:
    figures = quality.figures
    words = (
        f"Both lanes read the {names[0]} answer ({quality.reference_name}) and say how likely each of its {count(figures.positions)} was; "
        f"the divergence is how far {names[1]} ({quality.other_name}) moved from it. {quality.other.rows} rows went through each model at once, "
        "where writing takes one at a time."
    )
    few = f"{count(figures.positions, 'position')}: under {ENOUGH_POSITIONS} there is no verdict, only the numbers of this one answer."
    enough = f"{figures.positions} positions of one answer. Other texts may give other numbers: python -m inference quality measures yours."
    return f'<p class="fork-basis">{escape(words)}</p><p class="fork-basis"><strong>{escape(enough if figures.enough else few)}</strong></p>'


def _scale() -> str:
    rows = "".join(f"<li>{escape(usual.words())}</li>" for usual in USUAL)
    return f'<h4>For scale, measured on a longer text</h4><ul class="fork-scale">{rows}</ul>'


def _figures(figures: Figures) -> str:
    return badge.tiles(
        [
            ("Divergence, mean", nats(figures.kld_mean) + _error(figures.kld_se)),
            ("Divergence, median", nats(figures.kld_median)),
            ("Divergence, largest", nats(figures.kld_max)),
            ("Same first choice", f"{100 * figures.top1_agreement:.0f} %"),
            ("Perplexity ratio", f"{figures.ppl_ratio:.3f}" + _error(figures.ppl_ratio_se)),
        ]
    )


def nats(value: float) -> str:
    """A divergence in nats, to three digits."""
    return f"{value:.3g} nat"


def _error(value: float | None) -> str:
    return "" if value is None else f" ± {value:.2g}"


def _legend(forked: bool) -> str:
    swatches = "".join(f'<li><span class="token d{level}">&#8195;</span> {escape(words)}</li>' for level, words in enumerate(LEGEND))
    mark = '<li><span class="token first-fork">&#8195;</span> the answers part here</li>' if forked else ""
    return f'<ul class="fork-legend">{swatches}<li><span class="token other-choice">abc</span> another first choice</li>{mark}</ul>'


def level(kld: float) -> int:
    """The colour of a divergence: 0 (none) to 3."""
    return sum(kld >= bound for bound in BOUNDS_NATS)


def _tokens(quality: AnswerQuality, names: tuple[str, str], fork: int | None) -> str:
    spans = []
    for i, piece in enumerate(quality.reference.pieces):
        kinds = [f"token d{level(quality.other.kld[i])}"]
        kinds += ["other-choice"] if quality.reference.best[i] != quality.other.best[i] else []
        kinds += ["first-fork"] if i == fork else []
        hover = f"token {i + 1}: {nats(quality.other.kld[i])}. First choice: {names[0]} {_first(quality.reference, i)}, {names[1]} {_first(quality.other, i)}"
        spans.append(f'<span class="{" ".join(kinds)}" title="{escape(hover)}">{_shown(piece)}</span>')
    return f'<p class="fork-text">{"".join(spans)}</p>'


def _first(scored: Any, position: int) -> str:
    return visible(scored.top(position)[0][2])


def _shown(piece: str) -> str:
    return escape(piece).replace("\n", '<span class="newline">&#9166;</span>\n') if piece else f'<span class="newline">{PART}</span>'


def visible(piece: str) -> str:
    """A token's text between quotation marks, with its line breaks made visible."""
    return "“" + (piece.replace("\n", "⏎") or PART) + "”"


def _fork(quality: AnswerQuality, names: tuple[str, str]) -> str:
    fork = quality.fork
    if fork is None:
        same = (
            "The two answers are the same as far as both were written; one was stopped."
            if quality.stopped
            else "The two answers are the same, token for token."
        )
        return f'<p class="fork-basis">{same}</p>' if quality.greedy else ""
    if fork.margin is None:
        told = f"The answers are the same up to token {fork.index}, where the {names[0]} answer ends and the other goes on."
    else:
        told = f"The answers part at token {fork.index + 1}. There {names[0]} put its first choice {fork.margin:.3g} nat before its second."
        if fork.near_tie:
            told += f" That is a near tie (under {NEAR_TIE_NATS} nat): rounding alone can turn it, so the fork by itself tells nothing of 4 bits."
    sides = _side(fork, names[0], fork.top_reference, fork.reference_id, fork.reference) + _side(fork, names[1], fork.top_other, fork.other_id, fork.other)
    return f'<h4>The first fork</h4><p class="fork-basis">{escape(told)}</p><div class="fork-sides">{sides}</div>'


def _side(fork: Fork, name: str, top: tuple[Choice, ...], taken: int | None, text: str) -> str:
    rows = "".join(
        f"<tr{' class=taken' if choice.id == taken else ''}><td>{escape(visible(choice.text))}</td><td>{100 * math.exp(choice.logprob):.1f} %</td>"
        f"<td>{'taken' if choice.id == taken else ''}</td></tr>"
        for choice in top
    )
    table = f"<table><thead><tr><th>likeliest next</th><th>probability</th><th></th></tr></thead><tbody>{rows}</tbody></table>" if rows else ""
    before = ("…" + fork.before[-40:]) if len(fork.before) > 40 else fork.before
    return (
        f'<div><h5>{escape(name)} goes on</h5><p class="fork-text continuation"><span class="before">{escape(before)}</span>'
        f"<span>{escape(text) or '<em>(ends here)</em>'}</span></p>{table}</div>"
    )


def _worst(quality: AnswerQuality, names: tuple[str, str]) -> str:
    order = sorted(range(len(quality.other.kld)), key=lambda i: -quality.other.kld[i])[:WORST]
    rows = "".join(
        f"<tr><td>{i + 1}</td><td>{escape(visible(quality.reference.pieces[i]))}</td><td>{nats(quality.other.kld[i])}</td>"
        f"<td>{escape(_first(quality.reference, i))}</td><td>{escape(_first(quality.other, i))}</td></tr>"
        for i in order
    )
    head = "".join(f"<th>{escape(words)}</th>" for words in ("place", "token", "divergence", f"{names[0]} first", f"{names[1]} first"))
    title = "The largest divergence" + ("s" if len(order) > 1 else "")
    return f'<h4>{title}</h4><div class="fork-table"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
