"""A decision in the page's words: lanes by their titles, "first word", and how a thing is measured here and not by a command.

In: a decision. Out: the same with its sentences put so, and its Markdown. Changes no figure.
"""

from __future__ import annotations

import re
from dataclasses import replace

from inference.decide import words
from inference.decide.evidence import ALIKE
from inference.decide.model import Candidate, Decision
from inference.decide.rules import ASK_AGAIN, ENOUGH_RUNS, EXPECT, SCORE
from inference.lanes import LaneName, lane_title

HERE = {  # what the decision says for its command, and what is said on the page
    ASK_AGAIN: f"ask more prompts, until {ENOUGH_RUNS} runs of it count",
    SCORE: "“Compare the answers token by token” under a comparison measures it, some 50 positions at a time",
    EXPECT: "a prompts file with expected answers measures it",
    ALIKE: "“Tokens an answer” makes them alike",
    "First token": "First word",
    "first token": "first word",
}
NO_PRICE = re.compile(r"(no price is given for its hardware, so no cost): \S+=DOLLARS")


def in_page_words(decision: Decision) -> Decision:
    """The decision with its sentences in the page's words."""
    titles = {each.lane: title(each) for each in decision.candidates}

    def say(sentence: str) -> str:
        return _said(sentence, titles)

    def all_of(sentences: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(say, sentences))

    candidates = tuple(
        replace(
            each, title=titles[each.lane], out=each.out and say(each.out),
            rules=tuple(replace(rule, title=say(rule.title), words=say(rule.words), margin=say(rule.margin)) for rule in each.rules),
            figures=tuple(replace(figure, title=say(figure.title), source=say(figure.source)) for figure in each.figures),
        )
        for each in decision.candidates
    )  # fmt: skip
    return replace(
        decision, candidates=candidates, sentence=say(decision.sentence), because=all_of(decision.because), turned_by=all_of(decision.turned_by),
        remarks=all_of(decision.remarks),
    )  # fmt: skip


def title(candidate: Candidate) -> str:
    """A lane's title, by its name where it was never loaded."""
    name = LaneName.parse(candidate.lane)
    return candidate.title if candidate.title != candidate.lane or name.elsewhere else lane_title(name.precision, name.device)


def _said(sentence: str, titles: dict[str, str]) -> str:
    for there, here in HERE.items():
        sentence = sentence.replace(there, here)
    sentence = NO_PRICE.sub(r"\1", sentence)
    for lane, named in titles.items():
        alone = re.escape(lane)
        sentence = re.sub(rf"{re.escape(named)} \({alone}\)|(?<![\w:/]){alone}(?![\w/-])", lambda _, named=named: named, sentence)  # type: ignore[misc]
    return sentence


def markdown(decision: Decision) -> str:
    """A decision in the page's words as Markdown, to send on."""
    return words.markdown(decision).replace("first token", "first word")
