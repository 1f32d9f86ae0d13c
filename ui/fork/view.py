"""The fork viewer as HTML: words first, then the full-precision answer token by token, the panel of one token, the fork, and the nats.

In: an `AnswerQuality` and the page's lanes in their order. Out: HTML that is safe inside `gr.HTML` (every text of a model is written as
entities). `looks/fork.js` fills the panel from the rows that go with the text. Colour is never the only sign.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from inference.quality.answers import AnswerQuality
from inference.quality.fork import NEAR_TIE_NATS
from inference.record.quality import USUAL
from inference.record.scores import Figures
from inference.units import count, share
from ui.badge import escape
from ui.fork import words
from ui.fork.words import PART, UNFINISHED, Names, Side

TITLE = "The answers, token by token"
WORST = 10
PART_SIGN = "·"
MOST_BEFORE, MOST_AFTER = 40, 160  # characters around the fork


def note(sentence: str, role: str = "status", beside: str = "") -> str:
    """A sentence in the viewer's place; what stands `beside` it is not read out each time it changes."""
    return f'<p class="fork-note"><span role="{role}">{escape(sentence)}</span> {escape(beside)}</p>'


def view(quality: AnswerQuality, lanes: Sequence[str]) -> str:
    """The whole viewer."""
    both, names = words.sides(quality, lanes), Names(quality.end_ids, quality.hidden_ids)
    told = " ".join(filter(None, (words.agreement(quality.figures), words.parted(quality, both, names))))
    fork = quality.fork.index if quality.fork else None
    return (
        f'<section class="fork" aria-label="{TITLE}"><h2>{TITLE}</h2><p class="fork-lead">{_unbroken(escape(told), both)}</p>'
        f'<p class="fork-lead few">{escape(words.basis(quality.figures))}</p>{_explained(quality)}{_legend(fork is not None)}'
        f"{_reading(quality, both, names, fork)}{_fork(quality, both, names)}{_figures(quality, both, names)}</section>"
    )


def _unbroken(told: str, both: tuple[Side, Side]) -> str:
    """With no line break inside a lane's name."""
    for side in both:
        told = told.replace(side.title, f'<span class="whole">{side.title}</span>')
    return told


def _explained(quality: AnswerQuality) -> str:
    told = (
        f"Both lanes read the {words.title(quality.reference_key)} answer, token by token: a token is a word or a part of one. "
        "A lane's first choice is what it finds likeliest to come next."
    )
    return f'<p class="fork-basis">{escape(told)}</p>'


def _legend(forked: bool) -> str:
    swatches = "".join(f'<li><span class="swatch d{level}"></span> {word}</li>' for level, word in enumerate(words.LEVELS))
    mark = '<li><span class="swatch first-fork"></span> the answers part here</li>' if forked else ""
    return (
        f'<ul class="fork-legend" aria-label="Colours"><li>4 bits moved the prediction:</li>{swatches}'
        f'<li><span class="other-choice">abc</span> another first choice</li>{mark}</ul>'
    )


# ---- the text and the panel of one token


def _reading(quality: AnswerQuality, both: tuple[Side, Side], names: Names, fork: int | None) -> str:
    reference, kld = quality.reference, quality.other.kld
    last = len(reference.ids)
    rows = [_row(quality, both, names, place) for place in range(last)]
    chosen = fork if fork is not None and fork < last else max(range(last), key=lambda place: kld[place])
    tokens = "".join(_token(quality, names, place, place == fork, place == chosen) for place in range(last))
    label = f"The {words.title(quality.reference_key)} answer, token by token"
    return (
        '<div class="fork-reading"><p class="fork-basis">Choose a token for its values: click or tap it, or move with the arrow keys and press Enter.</p>'
        f'<div class="fork-text" role="listbox" aria-label="{escape(label)}" dir="auto" data-rows="{escape(json.dumps(rows))}">{tokens}</div>'
        f"{_panel(rows[chosen], both)}</div>"
    )


def _token(quality: AnswerQuality, names: Names, place: int, fork: bool, chosen: bool) -> str:
    reference, other = quality.reference, quality.other
    kinds = f"token d{words.level(other.kld[place])}"
    kinds += " other-choice" if reference.best[place] != other.best[place] else ""
    kinds += " first-fork" if fork else ""
    sign = names.sign(reference.ids[place], reference.pieces[place] or UNFINISHED)
    unseen = sign or not reference.pieces[place].strip()
    label = f' aria-label="{escape(names.own(reference, place))}"' if unseen else ""
    inside = f'<span class="sign">{escape(PART_SIGN if sign == PART else sign)}</span>' if sign else _shown(reference.pieces[place])
    return f'<span role="option" class="{kinds}" tabindex="{0 if chosen else -1}" aria-selected="{"true" if chosen else "false"}"{label}>{inside}</span>'


def _shown(piece: str) -> str:
    return escape(piece).replace("\n", '<span class="newline">&#9166;</span>\n')


def _row(quality: AnswerQuality, both: tuple[Side, Side], names: Names, place: int) -> list[str]:
    """What the panel's slots hold for one token, in their order."""
    row = [
        names.own(quality.reference, place),
        f"token {place + 1} of {len(quality.reference.ids)}",
        words.moved(quality.other.kld[place]),
    ]
    for side in both:
        logprob = side.scored.top(place)[0][1]
        row += [names.first(side.scored, place), words.percent(logprob), words.percent(-side.scored.nll[place])]
    return row


def _panel(row: list[str], both: tuple[Side, Side]) -> str:
    slots = [f"<span data-slot>{escape(value)}</span>" for value in row]
    said = "".join(
        f'<div class="{side.colour}"><dt>{escape(side.title)}</dt><dd>first choice <b>{first}</b>, {likely}</dd><dd>this token: {own}</dd></div>'
        for side, first, likely, own in zip(both, slots[3::3], slots[4::3], slots[5::3], strict=True)
    )
    return (
        f'<div class="fork-panel" role="status" aria-live="polite" aria-atomic="true"><p><b>{slots[0]}</b> <span class="quiet">{slots[1]}</span></p>'
        f"<p>{slots[2]}</p><dl>{said}</dl></div>"
    )


# ---- where the answers part


def _fork(quality: AnswerQuality, both: tuple[Side, Side], names: Names) -> str:
    if quality.fork is None:
        return ""
    before = tail(quality.fork.before)
    shown = "".join(_side(side, names, before) for side in both)
    return f'<h3>Where the answers part</h3><div class="fork-sides">{shown}</div>'


def _side(side: Side, names: Names, before: str) -> str:
    rest = head(side.rest)
    goes_on = f"<span>{escape(rest)}</span>" if rest else f'<span class="sign">{words.END}</span>'
    return (
        f'<div class="{side.colour}"><h4>{escape(side.title)}</h4>'
        f'<p class="fork-goes-on" dir="auto"><span class="before">{escape(before)}</span>{goes_on}</p>{_likeliest(side, names)}</div>'
    )


def _likeliest(side: Side, names: Names) -> str:
    rows = "".join(
        f'<tr{" class=taken" if choice.id == side.taken else ""}><th scope="row">{escape(names.words(choice.id, choice.text))}'
        f"{' (written)' if choice.id == side.taken else ''}</th><td>{words.percent(choice.logprob)}</td></tr>"
        for choice in side.top
    )
    if not rows:
        return ""
    return (
        f"<table><caption>What {escape(side.title)} found likeliest there</caption>"
        f'<thead><tr><th scope="col">next token</th><th scope="col">probability</th></tr></thead><tbody>{rows}</tbody></table>'
    )


def head(text: str, most: int = MOST_AFTER) -> str:
    """The beginning of a text, ending with a whole word where it has any."""
    if len(text) <= most:
        return text
    kept = text[:most]
    return (kept.rsplit(maxsplit=1)[0] if len(kept.split()) > 1 else kept) + " …"


def tail(text: str, most: int = MOST_BEFORE) -> str:
    """The end of a text, beginning with a whole word where it has any."""
    if len(text) <= most:
        return text
    kept = text[-most:]
    return "… " + (kept.split(maxsplit=1)[1] if len(kept.split()) > 1 and not text[-most - 1].isspace() else kept)


# ---- the figures in nats


def _figures(quality: AnswerQuality, both: tuple[Side, Side], names: Names) -> str:
    return (
        f'<details class="fork-nats"><summary>The figures in nats</summary>{_tiles(quality.figures)}<p class="fork-basis">{escape(_basis(quality))}</p>'
        f"{_worst(quality, both, names)}{_scale()}</details>"
    )


def _tiles(figures: Figures) -> str:
    shown = (
        ("Divergence, mean", words.mean(figures)),
        ("Divergence, median", words.nats(figures.kld_median)),
        ("Divergence, largest", words.nats(figures.kld_max)),
        ("Same first choice", share(figures.top1_agreement)),
        ("Perplexity ratio", words.with_error(figures.ppl_ratio, figures.ppl_ratio_se, ".3f")),
    )
    cells = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>" for label, value in shown)
    return f'<dl class="fork-tiles">{cells}</dl>'


def _basis(quality: AnswerQuality) -> str:
    told = (
        f"The divergence at a token is how far {quality.other_name}'s probabilities lie from {quality.reference_name}'s ({words.BOUNDS_WORDS}). "
        f"{count(quality.other.rows, 'row')} went through each model at once, where writing takes one at a time."
    )
    if quality.fork and quality.fork.margin is not None:
        reference = words.title(quality.reference_key)
        told += f" At the fork {reference} put its first choice {words.nats(quality.fork.margin)} before its second; under {NEAR_TIE_NATS} nat is a near tie."
    return told


def _worst(quality: AnswerQuality, both: tuple[Side, Side], names: Names) -> str:
    kld = quality.other.kld
    order = sorted(range(len(kld)), key=lambda place: -kld[place])[:WORST]
    rows = "".join(
        f'<tr><td>{place + 1}</td><th scope="row">{escape(names.own(quality.reference, place))}</th><td>{words.nats(kld[place])}</td>'
        + "".join(f"<td>{escape(names.first(side.scored, place))}</td>" for side in both)
        + "</tr>"
        for place in order
    )
    heads = ("place", "token", "divergence", *(f"{side.title} first choice" for side in both))
    head_row = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    caption = "Where 4 bits moved the prediction most"
    return (
        f'<div class="fork-table" tabindex="0" role="region" aria-label="{caption}"><table><caption>{caption}</caption>'
        f"<thead><tr>{head_row}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _scale() -> str:
    rows = "".join(f"<li>{escape(usual.words())}</li>" for usual in USUAL)
    return f'<h3>For scale, measured on a longer text</h3><ul class="fork-scale">{rows}</ul>'
