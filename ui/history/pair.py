"""Two comparisons held against each other, B against A: both answers of each lane with what differs marked, and the figures.

In: two records, the earlier first, and the visitor's clock. Out: rows of words, and HTML. Knows no component.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator

from inference.record.figures import FIGURES, TOKENS, Figure
from inference.record.missing import shown
from inference.record.model import LaneRecord, Record
from inference.record.scoreboard import WORD
from inference.record.table import conditions
from inference.series.overall import lane_titles
from ui.answers import asked, local, opened, side, table
from ui.badge import colour, escape
from ui.histories import model_words, settings_words

TWO_MODELS = "A and B are of different models: a gap between them is not only what a device or 4 bits make."
TWO_PROMPTS = "A and B answer different prompts: nothing is marked in the answers."
MOST_PAIRS = 10**6  # of equal words, one in each answer: what is compared word by word in half a second


def figure_rows(first: Record, second: Record, lane: str) -> list[list[str]]:
    """A lane's figures in both: title, A, B, and B against A in words, for those that one of them has."""
    a, b = first.lanes[lane], second.lanes[lane]
    known = [_row(figure, a, b) for figure in (*FIGURES, TOKENS) if figure.read(a) is not None or figure.read(b) is not None]
    return [*known, ["Conditions", conditions(first, a), conditions(second, b), ""]]


def _row(figure: Figure, a: LaneRecord, b: LaneRecord) -> list[str]:
    """The ratio's place is empty where a figure is unknown, and says why where they are unlike."""
    found = figure.ratio(b, a)
    words = figure.ratio_words(found) if found else f"no ratio: {reason}" if (reason := figure.unlike(b, a)) else ""
    return [figure.title, *(shown(figure.read(each), figure.words, each, figure.key) for each in (a, b)), words]


def notes(first: Record, second: Record) -> list[str]:
    """What must be said of a pair."""
    apart = [name for name in {**first.lanes, **second.lanes} if (name in first.lanes) != (name in second.lanes)]
    told = [TWO_MODELS] * (model_words(first) != model_words(second)) + [TWO_PROMPTS] * (first.request.prompt != second.request.prompt)
    return told + [f"Only in one of the two: {', '.join(apart)}."] * bool(apart)


def marked(left: str, right: str) -> tuple[str, str, int]:
    """Both texts as HTML, with the words that only one of them has marked, and how many words are."""
    a, b = list(WORD.finditer(left)), list(WORD.finditer(right))
    changes = [op for op in _matcher([word[0] for word in a], [word[0] for word in b]).get_opcodes() if op[0] != "equal"]
    ours, theirs = _mark(left, a, [(i, j) for _, i, j, _, _ in changes]), _mark(right, b, [(k, m) for *_, k, m in changes])
    return ours, theirs, sum(j - i + m - k for _, i, j, k, m in changes)


def _matcher(a: list[str], b: list[str]) -> difflib.SequenceMatcher[str]:
    """Takes words that come often for words too, as far as there is time for them: an answer that repeats itself is made of such."""
    often = Counter(b)
    pairs = sum(number * often[word] for word, number in Counter(a).items())
    return difflib.SequenceMatcher(None, a, b, autojunk=pairs > MOST_PAIRS)


def _mark(text: str, words: list[re.Match[str]], runs: list[tuple[int, int]]) -> str:
    """`text` with each run of words (from, to) marked from its first sign to its last."""
    parts, done = [], 0
    for first, last in runs:
        if first < last:
            begin, end = words[first].start(), words[last - 1].end()
            parts.append(f"{escape(text[done:begin])}<mark>{escape(text[begin:end])}</mark>")
            done = end
    return "".join(parts) + escape(text[done:])


def view(first: Record, second: Record, offset_min: float) -> str:
    """The whole comparison."""
    said = "".join(f'<p class="note">{escape(words)}</p>' for words in notes(first, second))
    heads = _head("A", first, offset_min) + _head("B", second, offset_min)
    lanes = "".join(_lanes(first, second))
    return opened("A and B compared", f'<div class="sides">{heads}</div>{said}{lanes}')


def _head(letter: str, record: Record, offset_min: float) -> str:
    return (
        f'<div class="of-pair"><p class="when"><span class="letter">{letter}</span> {local(record.created, offset_min)}</p>{asked(record.request.prompt)}'
        f'<p class="note">Model: {escape(model_words(record))}</p><p class="note">{escape(settings_words(record))}</p></div>'
    )


def _lanes(first: Record, second: Record) -> Iterator[str]:
    titles = lane_titles(second)
    same_prompt = first.request.prompt == second.request.prompt
    for lane in [name for name in first.lanes if name in second.lanes]:
        a, b = first.lanes[lane], second.lanes[lane]
        left, right, told = "", "", ""
        if same_prompt and (ours := _wrote(a)) and (theirs := _wrote(b)):
            left, right, differ = marked(ours, theirs)
            told = _differ(differ)
        css = colour(lane, second.lanes)
        yield f'<h2 class="{css}">{escape(titles[lane])}</h2>' + (f'<p class="note">{told}</p>' if told else "")
        yield f'<div class="sides">{side("A", css, a, left)}{side("B", css, b, right)}</div>'
        yield table(["Figure", "A", "B", "B against A"], figure_rows(first, second, lane), "pair")


def _wrote(lane: LaneRecord) -> str:
    """The text of a lane's answer, if it gave one."""
    return lane.shown_run.text if lane.shown_run and lane.shown_run.text.strip() else ""


def _differ(words: int) -> str:
    if not words:
        return "Both answers are the same, word for word."
    return "1 word stands in one answer only; it is underlined." if words == 1 else f"{words} words stand in one answer only; they are underlined."
