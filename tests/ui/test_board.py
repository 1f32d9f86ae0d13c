"""The scoreboard as HTML and as copied text: before, during and after; a tie, a failure, four lanes; text of strangers; no browser."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from inference.progress import Progress
from inference.record.markdown import markdown
from inference.record.scoreboard import TITLES
from tests.support.records import ended, record_of
from ui import badge, definitions
from ui.comparison import board

HOSTILE = '${alert(1)} {{x}} `y` "quoted" \'single\' <img src=x onerror="window.ran=1"> | **b**'
FAILED = Progress(0.0, "failed", "half", 3, prompt_ids=(1, 2), error="It died.", t_first_s=0.25, t_last_s=0.75)
TWO = ["auto:nf4", "cpu:fp32"]


def words(markup: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", markup))).strip()


def facts(markup: str) -> list[tuple[str, str]]:
    """Each fact's classes and words."""
    return [(classes, words(fact)) for classes, fact in re.findall(r'<li class="([^"]*)">.*?<strong>(.*?)</strong>', markup)]


def copies(markup: str) -> list[str]:
    """What the Copy buttons copy, as a browser reads it."""
    return [html.unescape(value) for value in re.findall(r'data-copy="([^"]*)"', markup)]


def of_prompt(prompt: str, **runs):
    record = record_of(**runs or {"cuda_nf4": ended(20), "cpu_fp32": ended(5)})
    return replace(record, request=replace(record.request, prompt=prompt), model=replace(record.model, id=prompt))


# ---- before, during and after


def test_before_and_during_every_fact_has_its_place_and_nobody_has_won():
    before, during, after = board.empty(TWO), board.empty(TWO, "hello"), board.board(record_of(cuda_nf4=ended(20), cpu_fp32=ended(5)))
    assert board.BEFORE in words(before) and board.DURING in words(during)
    for shown in (before, during):
        assert facts(shown) == [("fact", "–")] * len(TITLES) and copies(shown) == ["", ""] and shown.count(" disabled>") == 2
    assert "Asked: hello" in words(during) and "Asked" not in words(before)
    parts = [re.findall(r"<(\w+)", shown) for shown in (before, after)]
    assert [part for part in parts[0] if part not in ("span", "bdi")] == [part for part in parts[1] if part not in ("span", "bdi")]


def test_the_winner_of_each_fact_is_named_in_its_lanes_colour():
    shown = facts(board.board(record_of(cuda_nf4=ended(5), cpu_fp32=ended(20))))
    assert shown[0] == ("fact won of-fp32", "FP32 writes 4.0× faster")
    assert shown[1] == ("fact", "Equally soon"), "a tie is nobody's"
    assert shown[2] == ("fact won of-4bit", "4-bit is 6.7× smaller") and shown[3] == ("fact", "The same, word for word")


def test_the_caveat_stands_beneath_in_the_same_breath():
    assert "Device and precision differ at once" in words(board.board(record_of(cuda_nf4=ended(20), cpu_fp32=ended(5))))


@pytest.mark.parametrize(("end", "said"), [(FAILED, "No winner: FP32 failed."), (ended(5, reason="stopped"), "No winner: FP32 was stopped.")])
def test_without_both_answers_nobody_wins_and_the_board_says_why(end, said):
    record = record_of(cuda_nf4=ended(20), cpu_fp32=end)
    assert facts(board.board(record)) == [("fact", "–")] * len(TITLES) and said in words(board.board(record))
    assert all(copied.endswith(said) for copied in copies(board.board(record)))


def test_two_answers_without_text_have_no_winner():
    no_text = replace(ended(20), text="", done=replace(ended(20).done, text=""))
    assert "No winner" in words(board.board(record_of(cpu_nf4=no_text, cpu_fp32=no_text)))


# ---- more lanes


FOUR = {"cuda_nf4": ended(100), "cuda_bf16": ended(20), "cpu_nf4": ended(50), "cpu_fp32": ended(10)}


def rows(markup: str) -> list[tuple[str, str]]:
    return [(colour, words(row)) for colour, row in re.findall(r'<tr class="([^"]*)">(.*?)</tr>', markup)]


def test_four_lanes_are_a_table_the_fastest_first_each_in_a_colour_of_its_own():
    shown = rows(board.board(record_of(**FOUR)))
    assert [row.split(" tok/s")[0].split()[-1] for _, row in shown] == ["100", "50.0", "20.0", "10.0"]
    assert len({colour for colour, _ in shown}) == 4 and "the reference" in shown[-1][1]
    assert len(rows(board.empty([name.replace("_", ":") for name in FOUR]))) == 4, "the place is kept"


def test_beneath_four_lanes_and_in_what_is_copied_stands_which_is_the_fastest():
    shown = board.board(record_of(**FOUR))
    told = "4-bit NF4 on the GPU writes fastest, 2.0× faster than 4-bit NF4 on the CPU."
    assert told in words(shown) and all(told in copied for copied in copies(shown))


def test_three_lanes_stay_a_table_where_one_of_them_failed():
    shown = board.board(record_of(cuda_nf4=ended(100), cpu_nf4=FAILED, cpu_fp32=ended(10)))
    assert len(rows(shown)) == 3 and "failed" in rows(shown)[-1][1] and not facts(shown)
    assert "| failed |" in copies(shown)[1]


# ---- text of strangers


def test_a_prompt_and_a_models_name_are_escaped_wherever_they_stand():
    record = of_prompt(HOSTILE)
    for shown in (board.board(record), board.empty(TWO, HOSTILE), board.board(of_prompt(HOSTILE, **FOUR))):
        assert not set("${}`'") & set(shown) and "<img" not in shown and HOSTILE in words(shown)
        assert '<bdi dir="auto">' in shown
    text, _ = copies(board.board(record))
    assert HOSTILE in text, "copied as it was asked"


def test_copied_markdown_holds_no_markup_of_a_prompt():
    _, copied = copies(board.board(of_prompt(HOSTILE)))
    assert "<img" not in copied and "**b**" not in copied.replace(r"\*\*b\*\*", "") and "`y`" not in copied.replace(r"\`y\`", "")


def test_copied_text_and_markdown_say_model_machine_prompt_facts_and_caveat():
    text, copied = copies(board.board(record_of(cuda_nf4=ended(20), cpu_fp32=ended(5))))
    assert text.splitlines()[:4] == ["fake/model, 4-bit against full precision, measured", "c", "Asked: hi", ""]
    assert "| **Writing speed** | 4-bit writes 4.0× faster | 20.0 tok/s against 5.00 tok/s |" in copied
    for words_ in (text, copied):
        assert "4-bit is 6.7× smaller" in words_ and "Device and precision differ at once" in words_


def test_how_many_a_reload_would_lose_is_on_the_board():
    assert 'data-kept="3"' in board.board(record_of(cuda_nf4=ended(20), cpu_fp32=ended(5)), 3) and 'data-kept="0"' in board.empty(TWO)


# ---- definitions


def test_every_label_that_can_be_opened_has_its_definition_on_the_page():
    there = set(re.findall(r'id="about-(\w+)"', definitions.popovers()))
    assert set(badge.DEFINED.values()) <= there == set(definitions.DEFINITIONS)
    assert {title for title in TITLES if 'popovertarget="' not in badge.about(title)} == set()
    for label, key in badge.DEFINED.items():
        assert f'popovertarget="about-{key}"' in badge.about(label)
    assert badge.about("<b>Own") == "&lt;b&gt;Own"


def test_what_is_copied_says_what_was_compared():
    bf16 = record_of(cuda_nf4=ended(20), cuda_bf16=ended(5))
    bf16 = replace(bf16, lanes={name: replace(lane, precision="BF16") if name == "cuda:bf16" else lane for name, lane in bf16.lanes.items()})
    for record, words in ((bf16, "4-bit NF4 on the GPU against BF16 on the GPU"), (record_of(cpu_fp32=ended(5)), "FP32 on the CPU")):
        text, table = board.copied(record)
        assert text.startswith(f"fake/model, {words}, measured\n") and markdown(record).startswith(f"## {words}, measured\n")
