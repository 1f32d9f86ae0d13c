"""The fork viewer in words: what a token is called, how far 4 bits moved it, and the sentences that stand first.

In: an `AnswerQuality` and the page's lanes in their order. Out: plain text, the lanes always in that order; a model's words stand between
marks that keep their direction to themselves. Knows no HTML. Words are neutral, and few positions get no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from inference.lanes import DEVICES, LaneName, short_word
from inference.quality.answers import AnswerQuality
from inference.record.scoreboard import first_different_word
from inference.record.scores import ENOUGH_POSITIONS, Choice, Figures, Fork
from inference.score_events import Scored, nameless
from inference.units import count, share
from ui import badge

BOUNDS_NATS = (0.01, 0.1, 1.0)
LEVELS = ("hardly", "a little", "clearly", "far")
BOUNDS_WORDS = "hardly: under 0.01 nat; a little: 0.01 to 0.1; clearly: 0.1 to 1; far: 1 nat and more"
END, PART = "end of answer", "part of a character"
UNFINISHED = "\ufffd"  # what a tokenizer writes for a part of a character
AtFork = tuple[tuple[Choice, ...], int | None, str]
NO_FORK: AtFork = ((), None, "")
INVISIBLE = {"": "no text", " ": "a space", "\n": "a line break", "\n\n": "an empty line", "\t": "a tab"}


@dataclass(frozen=True)
class Side:
    """One lane: its name in a word, the class of its colour, what it scored, and at the fork its likeliest tokens, what it took and how it went on."""

    title: str
    colour: str
    scored: Scored
    top: tuple[Choice, ...]
    taken: int | None
    rest: str


def sides(quality: AnswerQuality, lanes: Sequence[str]) -> tuple[Side, Side]:
    """Both lanes in the order of `lanes`, the page's lanes as configured."""
    fork = quality.fork
    others = (fork.top_other, fork.other_id, fork.other) if fork else NO_FORK
    references = (fork.top_reference, fork.reference_id, fork.reference) if fork else NO_FORK
    both = (quality.other_key, quality.other_name, quality.other, others), (quality.reference_key, quality.reference_name, quality.reference, references)
    first, second = sorted(both, key=lambda each: list(lanes).index(each[0]))
    return _side(*first, lanes), _side(*second, lanes)


def _side(lane: str, name: str, scored: Scored, at_fork: AtFork, lanes: Sequence[str]) -> Side:
    alone = list(map(title, lanes)).count(title(lane)) == 1
    told = title(lane) if alone else f"{title(lane)} on the {DEVICES[LaneName.parse(name).device]}"
    return Side(told, badge.colour(lane, lanes), scored, *at_fork)


def title(lane: str) -> str:
    """A lane in a word: "4-bit"."""
    return short_word(LaneName.parse(lane).precision)


@dataclass(frozen=True)
class Names:
    """What tokens are called: `ends` end an answer, `hidden` are no text of one."""

    ends: frozenset[int]
    hidden: frozenset[int]

    def sign(self, token: int, piece: str) -> str:
        """What stands for a token that is no text, in words; empty for one that is text."""
        if token in self.ends:
            return END
        if piece == nameless(token):
            return f"token {token}"
        if token in self.hidden:
            return f"mark {piece.strip('<|>[]/')}"
        return PART if piece and not piece.strip(UNFINISHED) else ""

    def words(self, token: int, piece: str) -> str:
        """A token in a sentence: its text between quotation marks, or its sign."""
        if sign := self.sign(token, piece):
            return sign
        return quoted(piece) if piece.strip() else INVISIBLE.get(piece, "white space")

    def own(self, scored: Scored, place: int) -> str:
        """The token of the answer at a place; one that adds nothing yet is part of a character."""
        return self.words(scored.ids[place], scored.pieces[place] or UNFINISHED)

    def first(self, scored: Scored, place: int) -> str:
        """A lane's first choice there."""
        token, _, piece = scored.top(place)[0]
        return self.words(token, piece)


def quoted(text: str) -> str:
    """A model's words between quotation marks, their direction their own, their line breaks visible, no break after a mark."""
    held = "\u00a0" + text[1:] if text.startswith(" ") else text
    return "“\u2068" + held.replace("\n", "⏎") + "\u2069”"


# ---- numbers


def level(kld: float) -> int:
    """How far 4 bits moved a prediction: 0 (hardly) to 3 (far)."""
    return sum(kld >= bound for bound in BOUNDS_NATS)


def nats(value: float) -> str:
    """A divergence in nats, to three digits."""
    return f"{value:.3g} nat" if value >= 0.001 else "0 nat" if value <= 0 else "under 0.001 nat"


def with_error(value: float, error: float | None, form: str) -> str:
    """`value`, and its error where that reaches the digits shown."""
    shown = format(value, form)
    return shown if error is None or format(value + error, form) == shown else f"{shown} ± {error:.2g}"


def mean(figures: Figures) -> str:
    """The mean divergence with its error; without it where it is too small to be told."""
    return nats(figures.kld_mean) if figures.kld_mean < 0.001 else with_error(figures.kld_mean, figures.kld_se, ".3g") + " nat"


def percent(logprob: float) -> str:
    """A probability for people, from its logarithm."""
    likely = 100 * math.exp(logprob)
    if likely > 99.9:  # all of it is only ever what a 32-bit number rounds to
        return "over 99.9 %"
    return "under 0.1 %" if likely < 0.1 else f"{likely:.0f} %" if 9.95 <= likely < 98.95 else f"{likely:.1f} %"


def moved(kld: float) -> str:
    """How far 4 bits moved one prediction."""
    how = "hardly moved the prediction" if not level(kld) else f"moved the prediction {LEVELS[level(kld)]}"
    return f"4 bits {how} here ({nats(kld)})."


# ---- the sentences


def agreement(figures: Figures) -> str:
    """At how many of the words both lanes had the same first choice."""
    same = figures.top1_agreement
    if same in (0, 1):
        return "At every word both lanes had the same first choice." if same else "At no word did both lanes have the same first choice."
    return f"At {share(same)} of the words both lanes had the same first choice."


def basis(figures: Figures) -> str:
    """Whether the figures bear a verdict."""
    if not figures.enough:
        return f"Too short for a verdict: {figures.positions} of {count(ENOUGH_POSITIONS, 'position')}."
    return f"Seen at {count(figures.positions, 'position')} of one answer; other texts may give other numbers (python -m inference quality measures yours)."


def parted(quality: AnswerQuality, both: tuple[Side, Side], names: Names) -> str:
    """Where the answers part and what that says; empty where nothing is to be said."""
    fork, reference = quality.fork, title(quality.reference_key)
    if fork is None:
        return _not_parted(quality)
    if fork.reference_id is None or fork.other_id is None:
        ends, on = (reference, title(quality.other_key)) if fork.reference_id is None else (title(quality.other_key), reference)
        return f"The answers are the same for {count(fork.index)}; there the {ends} answer ends and the {on} one goes on."
    place, words = _place(fork, quality, both, names)
    told = f"The answers part at {place}: {words[0]} ({both[0].title}) against {words[1]} ({both[1].title})"
    if fork.near_tie:
        return f"{told}; a near tie, so that says nothing of 4 bits."
    return f"{told}; {reference} found its word {_times(fork.margin or 0)} as likely as its next best."


def _not_parted(quality: AnswerQuality) -> str:
    if not quality.greedy:
        return "Both answers are drawn at random (temperature), so where they part says nothing of 4 bits."
    if quality.stopped:
        return "The two answers are the same as far as both were written; one was stopped."
    return "The two answers are the same, token for token."


def _place(fork: Fork, quality: AnswerQuality, both: tuple[Side, Side], names: Names) -> tuple[str, list[str]]:
    """Where the answers part as the scoreboard counts it, and what each has there: whole words, else tokens."""
    word = first_different_word(fork.before + fork.reference, fork.before + fork.other)
    if word is None:
        return f"token {fork.index + 1}", [_taken(side, names) for side in both]
    wrote = [(fork.before + side.rest).split()[word - 1 : word] for side in both]
    return f"word {word}", [quoted(found[0]) if found else "the end of the answer" for found in wrote]


def _taken(side: Side, names: Names) -> str:
    found = next((choice for choice in side.top if choice.id == side.taken), None)
    return names.words(found.id, found.text) if found else quoted("".join(side.rest.split(maxsplit=1)[:1]))


def _times(margin: float) -> str:
    times = math.exp(min(margin, 7))
    return "over 1,000 times" if times > 1000 else f"{times:.2f} times" if times < 1.95 else f"{times:.1f} times" if times < 9.95 else f"{times:.0f} times"
