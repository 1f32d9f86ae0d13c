"""The fork viewer's words and HTML from hand-made scores: sides, marks, numbers, the panel's rows, text of every script."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from inference.quality.answers import AnswerQuality
from inference.quality.figures import Positions, figures
from inference.quality.fork import find_fork
from inference.record.scores import Quality
from inference.score_events import Scored, nameless
from inference.units import share
from ui.fork import words
from ui.fork.view import head, tail, view

LANES = ["auto:nf4", "cpu:fp32"]
KLD = (0.001, 0.05, 0.5, 2.0)
END, NAMELESS, UNKNOWN = 2, 999, 3


def scored(pieces: list[str], ids: list[int], best: list[int], kld=(), nll=0.5, margin=0.7) -> Scored:
    """A score in which each place has its first choice of `best`, then 50 ("b")."""
    texts = dict(zip(ids, pieces, strict=True))
    tops = [(token, 50, 51, 52, 53) for token in best]
    top_pieces = tuple(each for token in best for each in (texts.get(token, f" <{token}>"), "b", "c", "d", "e"))
    return Scored(
        "r", tuple(ids), (nll,) * len(ids), tuple(best), sum(tops, ()), (-0.4, -0.4 - margin, -3.0, -9.0, -10.0) * len(ids), tuple(kld), 100, len(ids) + 4,
        pieces=tuple(pieces), top_pieces=top_pieces,
    )  # fmt: skip


def quality(pieces: list[str], other_text: str = "", ids=None, other_ids=None, other_best=None, **more) -> AnswerQuality:
    """An answer of these pieces by FP32, and 4-bit's own answer with `other_ids`."""
    ids = list(ids or range(10, 10 + len(pieces)))
    other_best = other_best or ids
    kld = [KLD[i % 4] for i in range(len(ids))]
    reference = scored(pieces, ids, ids, margin=more.pop("margin", 0.7))
    other = scored(pieces, ids, other_best, kld, 0.6)
    same = np.array([a == b for a, b in zip(ids, other_best, strict=True)])
    found = figures(Positions(np.array(kld), np.array(reference.nll), np.array(other.nll), same))
    text = "".join(piece for token, piece in zip(ids, pieces, strict=True) if token not in (END, NAMELESS))
    fork = find_fork(reference, other, other_ids or ids, (text, other_text or text))
    record = Quality(found, "cpu:fp32", "cpu:nf4", "answer", 9, 100, {})
    made = AnswerQuality(
        "cpu:fp32", "cpu:nf4", "cpu:fp32", "auto:nf4", reference, other, found, fork, True, False, frozenset({END}), frozenset({END, UNKNOWN}), record
    )  # fmt: skip
    return replace(made, **more)


def plain(shown: str) -> str:
    """The text of HTML, without the marks that keep a direction."""
    return re.sub("[\u2068\u2069]", "", html.unescape(re.sub("<[^>]+>", "", shown)))


def lead(shown: str) -> str:
    return plain(re.search(r'<p class="fork-lead">(.*?)</p>', shown, re.S)[1])


def rows(shown: str) -> list[list[str]]:
    """What the panel can be filled with."""
    return json.loads(html.unescape(re.search(r'data-rows="([^"]*)"', shown)[1]))


PARTED = quality([" We", " have", " korma"], " We have rice", other_ids=[10, 11, 70], other_best=[10, 11, 70])


def test_words_stand_first_with_both_lanes_as_the_page_has_them():
    shown = view(PARTED, LANES)
    assert lead(shown) == (
        "At 67 % of the words both lanes had the same first choice. The answers part at word 3: “rice” (4-bit) against “korma” (FP32); "
        "FP32 found its word 2.0 times as likely as its next best."
    )
    assert "Too short for a verdict: 3 of 200 positions." in plain(shown)
    assert re.findall(r"<h4>([^<]*)</h4>", shown) == ["4-bit", "FP32"]
    turned = view(PARTED, LANES[::-1])
    assert "“korma” (FP32) against “rice” (4-bit)" in lead(turned) and re.findall(r"<h4>([^<]*)</h4>", turned) == ["FP32", "4-bit"]
    assert re.findall(r'<div class="(of-[^"]*)"><h4>', shown) == ["of-4bit", "of-fp32"]


def test_no_nats_before_the_details():
    before, inside = view(PARTED, LANES).split("<details", 1)
    reading = before.index('<div class="fork-reading">')
    assert " nat" not in plain(before[:reading]) and "Divergence, mean" in inside and "For scale" in inside


def test_a_near_tie_says_nothing_of_4_bits():
    close = quality([" We", " korma"], " We rice", other_ids=[10, 70], margin=0.01)
    assert lead(view(close, LANES)).endswith("“rice” (4-bit) against “korma” (FP32); a near tie, so that says nothing of 4 bits.")


def test_an_end_against_a_word_is_told_as_an_end():
    ended = quality([" We", " have", "<|im_end|>"], " We have rice", ids=[10, 11, END], other_ids=[10, 11, 70])
    assert "at word 3: “rice” (4-bit) against the end of the answer (FP32)" in lead(view(ended, LANES))


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (quality([" We", " have"]), "The two answers are the same, token for token."),
        (quality([" We", " have"], stopped=True), "The two answers are the same as far as both were written; one was stopped."),
        (quality([" We", " have"], greedy=False), "Both answers are drawn at random (temperature), so where they part says nothing of 4 bits."),
        (quality([" We", " have"], " We", other_ids=[10]), "The answers are the same for 1 token; there the 4-bit answer ends and the FP32 one goes on."),
        (quality([" We"], " We have", other_ids=[10, 11]), "The answers are the same for 1 token; there the FP32 answer ends and the 4-bit one goes on."),
    ],
)
def test_answers_that_do_not_part_are_told_so(found, told):
    assert lead(view(found, LANES)) == f"At every word both lanes had the same first choice. {told}"


def test_a_share_that_is_not_all_is_never_rounded_to_all():
    found = replace(PARTED.figures, top1_agreement=0.999)
    assert words.agreement(found).startswith("At 99 %") and words.agreement(replace(found, top1_agreement=0.001)).startswith("At 1 %")
    assert share(0.999) == "99 %" and share(0.001) == "1 %" and share(1.0) == "100 %" and share(0.0) == "0 %"
    assert words.percent(0.0) == "over 99.9 %" and words.percent(-0.01) == "99.0 %" and words.percent(-0.7) == "50 %"
    assert "At no word" in words.agreement(replace(found, top1_agreement=0.0))


def test_an_error_below_the_digits_shown_is_not_told():
    assert words.with_error(1.105, 7e-18, ".3f") == "1.105" and words.with_error(1.105, 0.02, ".3f") == "1.105 ± 0.02"
    assert words.with_error(0.5, None, ".3g") == "0.5"
    assert words.mean(replace(PARTED.figures, kld_mean=4e-9, kld_se=2e-9)) == "under 0.001 nat"


def test_a_choice_just_ahead_of_the_next_is_not_told_as_level_with_it():
    assert "its word 1.04 times as likely" in lead(view(quality([" We", " korma"], " We rice", other_ids=[10, 70], margin=0.04), LANES))


def test_of_two_4_bit_lanes_it_is_said_which_was_looked_at():
    shown = view(replace(PARTED, other_name="cuda:nf4", other_key="cuda:nf4"), ["cuda:nf4", "cpu:nf4", "cpu:fp32"])
    assert re.findall(r"<h4>([^<]*)</h4>", shown) == ["4-bit on the GPU", "FP32"]


def test_each_token_has_a_row_for_the_panel_and_one_takes_the_focus():
    shown = view(PARTED, LANES)
    assert rows(shown)[2] == [
        "“\u2068\u00a0korma\u2069”", "token 3 of 3", "4 bits moved the prediction clearly here (0.5 nat).",
        "“\u2068\u00a0<70>\u2069”", "67 %", "55 %", "“\u2068\u00a0korma\u2069”", "67 %", "61 %",
    ]  # fmt: skip
    options = re.findall(r'<span role="option" class="([^"]*)" tabindex="(-?\d)" aria-selected="(\w+)"', shown)
    assert options == [("token d0", "-1", "false"), ("token d1", "-1", "false"), ("token d2 other-choice first-fork", "0", "true")]
    panel = shown[shown.index('<div class="fork-panel"') : shown.index("<h3>")]
    assert [html.unescape(slot) for slot in re.findall(r"<span data-slot>(.*?)</span>", panel)] == rows(shown)[2], "the panel begins with that token"


def test_marks_numbers_and_parts_of_characters_are_signs_and_not_text():
    found = quality([" hi", "", "é", " ", "[999]", "<|pad|>", "<|im_end|>"], ids=[10, 11, 12, 13, NAMELESS, UNKNOWN, END])
    shown = view(found, LANES)
    signs = re.findall(r'aria-label="([^"]*)"><span class="sign">([^<]*)</span>', shown)
    assert signs == [("part of a character", "·"), ("token 999",) * 2, ("mark pad",) * 2, ("end of answer",) * 2]
    assert "im_end" not in shown and [row[0] for row in rows(shown)][4] == "token 999" == rows(shown)[4][3]
    assert nameless(NAMELESS) == "[999]" and 'aria-label="a space"> </span>' in shown


@pytest.mark.parametrize(
    ("piece", "told"),
    [(" ", "a space"), ("\n", "a line break"), ("   ", "white space"), ("", "no text"), ("\ufffd", "part of a character"), (" a\n", "“\u2068\u00a0a⏎\u2069”")],
)
def test_what_can_not_be_seen_has_a_name(piece, told):
    assert words.Names(frozenset(), frozenset()).words(10, piece) == told


def test_text_runs_in_its_own_direction():
    shown = view(quality([" مرحبا", " بكم", "."], " مرحبا لكم", other_ids=[10, 70]), LANES)
    assert re.findall(r'class="(fork-text|fork-goes-on)"[^>]*dir="auto"', shown) == ["fork-text", "fork-goes-on", "fork-goes-on"]


def test_the_words_around_the_fork_are_whole():
    assert tail("We have chicken biryani, mutton", 14) == "… mutton" and tail("two words", 40) == "two words"
    assert tail("We have mutton", 11) == "… have mutton" and tail("x" * 50, 40) == "… " + "x" * 40
    assert head("chicken biryani, mutton", 20) == "chicken biryani, …" and head("x" * 200, 160) == "x" * 160 + " …"


def test_model_text_is_written_as_entities():
    evil = "<img src=x onerror=alert(1)> ${1} `"
    shown = view(quality([evil, " b"], evil + " c", other_ids=[10, 70]), LANES)
    assert "<img" not in shown and "${" not in shown and "`" not in shown and rows(shown)[0][0] == f"“\u2068{evil}\u2069”"


def test_headings_are_in_order_tables_have_captions_and_nothing_has_an_id():
    shown = view(PARTED, LANES)
    levels = [int(each) for each in re.findall(r"<h(\d)", shown)]
    assert levels[0] == 2 and all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))
    assert shown.count("<table") == shown.count("<caption") == 3 and not re.search(r"\sid=|\stitle=", shown) and "<th>" not in shown
