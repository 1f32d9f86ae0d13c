"""A part of a report -> what 4 bits changed: the figures of one scored answer, or those of several prompts with their means, or that none were measured.

In: a `Part`. Out: words and rows. Means over several are weighted by positions, so they are those of all positions together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from inference.record.quality import TOO_FEW, USUAL, figure_rows, in_short, remarks
from inference.record.scores import ENOUGH_POSITIONS, Figures, NoQuality, Quality
from inference.report.parts import Part
from inference.units import count, share

NOT_MEASURED = "Not measured in these runs. This measures it, on prompts of your own:"
COMMAND = "python -m inference quality --prompts FILE"
SMALLEST = 1e-300  # of a ratio, which may have become 0
HEADS = ("Positions", "Divergence, mean", "Same first choice", "Perplexity ratio")


@dataclass(frozen=True)
class Section:
    """The section: sentences, a table with its heads (none: no table), more to be said, what is usual, the command where nothing was measured."""

    sentences: tuple[str, ...]
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    more: tuple[str, ...] = ()
    usual: tuple[str, ...] = ()
    command: str = ""


def sections(found: Sequence[Part], beside: Sequence[Quality] = ()) -> list[Section | None]:
    """A section a part; what is not of a part's own runs is told once a model, under the first such part, and None stands for it under the others."""
    told: list[Section | None] = []
    models = set()
    for part in found:
        model = (part.whole.model.id, part.whole.model.revision, part.whole.model.adapter)
        own = any(record.quality for record in part.records)
        told.append(section(part, beside) if own or model not in models else None)
        models |= set() if own else {model}
    return told


def section(part: Part, beside: Sequence[Quality] = ()) -> Section:
    """What was measured in the part's runs, else `beside` them, else why nothing was."""
    scored = [(number, record.quality) for number, record in enumerate(part.records, 1) if isinstance(record.quality, Quality) and _tells(record.quality)]
    reasons = tuple(dict.fromkeys(record.quality.error for record in part.records if isinstance(record.quality, NoQuality)))
    usual = tuple(each.words() for each in USUAL)
    told = scored or list(enumerate(filter(_tells, beside), 1))
    if not told:
        return Section(tuple(f"No quality figures: {reason}" for reason in reasons)) if reasons else Section((NOT_MEASURED,), command=COMMAND)
    if part.one if scored else len(told) == 1:
        return _of_one(part, told[0][1], usual)
    sentences, rows = _of_several(part, told, "answer" if scored else "measurement")
    return Section(sentences, ("Prompt" if scored else "Measurement", *HEADS), rows, tuple(f"Not in it: {reason}" for reason in reasons), usual)


def _tells(found: Quality) -> bool:
    """Whether it holds figures: of no position, or of what is no number, there are none, and a decision leaves it out too."""
    return all(figures.positions and not math.isnan(figures.top1_agreement) for figures in (found.figures, *found.lanes.values()))


def _of_one(part: Part, found: Quality, usual: tuple[str, ...]) -> Section:
    basis = f"{part.title(found.other)} against {part.title(found.reference)}, on the {found.source}: {count(found.figures.positions, 'position')}."
    rows = tuple((cells[0][0].capitalize(), *(words for _, words in cells)) for cells in zip(*map(figure_rows, found.lanes.values()), strict=True))
    few = () if found.figures.enough else (TOO_FEW,)
    return Section((in_short(found), basis, *few), ("", *(part.title(lane) for lane in found.lanes)), rows, tuple(remarks(found)), usual)


def _of_several(part: Part, scored: Sequence[tuple[int, Quality]], what: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """A sentence a lane over all, and a row each; `what` one of them is."""
    lanes = dict.fromkeys(lane for _, found in scored for lane in found.lanes)
    sentences = tuple(_together(part, lane, [found.lanes[lane] for _, found in scored if lane in found.lanes], what) for lane in lanes)
    return sentences, tuple(_row(number, found.figures) for number, found in scored)


def _together(part: Part, lane: str, each: Sequence[Figures], what: str) -> str:
    positions = sum(figures.positions for figures in each)
    agreement, kld, loss = (
        sum(figures.positions * of for figures, of in zip(each, values, strict=True)) / positions
        for values in ([f.top1_agreement for f in each], [f.kld_mean for f in each], [math.log(max(f.ppl_ratio, SMALLEST)) for f in each])
    )
    few = "" if positions >= ENOUGH_POSITIONS else f" {TOO_FEW}"
    return (
        f"{part.title(lane)} makes the same first choice as the reference at {share(agreement)} of {count(positions, 'position')} in {count(len(each), what)} "
        f"(mean divergence {kld:.2g} nat, perplexity ratio {math.exp(loss):.2f}).{few}"
    )


def _row(number: int, figures: Figures) -> tuple[str, ...]:
    words = dict(figure_rows(figures))
    return (str(number), str(figures.positions), words["divergence, mean"], words["same first choice"], words["perplexity ratio"])
