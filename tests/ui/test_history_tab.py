"""The history tab without a browser: what its list says, what is opened, what two comparisons show, and when an export is made."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import gradio as gr
import pytest

from inference.events import Request
from inference.record.scoreboard import in_short
from inference.record.verdict import verdict
from tests.support.fakes import Stage
from tests.support.records import ended, record_of
from ui.answers import local
from ui.comparison.handlers import Page
from ui.download import NOTHING
from ui.histories import END, ISOLATE, MOST_KEPT, Histories, model_words
from ui.history import pair
from ui.history import tab as history_tab
from ui.history.tab import HistoryTab

VISITOR = SimpleNamespace(session_hash="tab")
RECORD = record_of(cpu_nf4=ended(5), cpu_fp32=ended(10))
EVIL = "<img src=x onerror='window.hurt=1'> ${window.hurt=1} `x`"


@pytest.fixture
def history():
    stage = Stage(("cpu:nf4", "cpu:fp32"))
    with gr.Blocks():
        return HistoryTab(Page(stage.engine, lambda: None))


def keep(history: HistoryTab, count: int, record=RECORD) -> None:
    for number in range(count):
        history.page.histories.add("tab", f"c{number}", lambda: record)


def saying(text: str, prompt: str = "hi"):
    record = record_of(cpu_nf4=replace(ended(5), text=text, done=replace(ended(5).done, text=text)), cpu_fp32=ended(10))
    return replace(record, request=replace(record.request, prompt=prompt))


# ---- the list


def test_a_label_has_the_prompt_the_visitors_time_and_who_won():
    histories = Histories()
    made = replace(RECORD, created=datetime.now(UTC).isoformat(timespec="seconds"))
    histories.add("tab", "c", lambda: made)
    ((label, _),) = histories.labels("tab", offset_min=-330)
    here = datetime.fromisoformat(made.created) + timedelta(hours=5, minutes=30)
    first, second = label.splitlines()
    assert first == f"1. {ISOLATE}hi{END}" and f"{here:%H:%M}" in second and second.endswith("FP32 writes 2.0× faster")


@pytest.mark.parametrize(
    ("adapter", "revision", "words"),
    [
        (None, None, "menu"),
        (None, "0123456789abcdef", "menu (0123456789ab)"),
        ("menu (LORA, rank 8)", None, "menu (LORA, rank 8)"),
        ("menu@0123456789abcdef (LORA, rank 8)", "0123456789abcdef", "menu@0123456789abcdef (LORA, rank 8)"),
        ("other (LORA, rank 8)", None, "menu with other (LORA, rank 8)"),
    ],
)
def test_a_model_that_is_an_adapter_is_named_once(adapter, revision, words):
    model = replace(RECORD.model, id="menu", adapter=adapter, revision=revision)
    lanes = {name: replace(lane, model_id="menu") for name, lane in RECORD.lanes.items()}
    assert model_words(replace(RECORD, model=model, lanes=lanes)) == words


def test_a_comparison_keeps_its_number_when_the_oldest_go(history):
    keep(history, MOST_KEPT + 2)
    labels = [label for label, _ in history.page.histories.labels("tab")]
    assert len(labels) == MOST_KEPT and labels[0].startswith(f"{MOST_KEPT + 2}. ") and labels[-1].startswith("3. ")


def test_a_time_of_another_day_has_its_day():
    assert local("2020-03-01T00:30:00+00:00", 60) == "Feb 29, 23:30"


def test_a_label_says_why_there_is_no_winner_and_who_is_fastest_of_several():
    assert in_short(record_of(cpu_nf4=ended(5, reason="stopped"), cpu_fp32=ended(10))).startswith("No winner: 4-bit was stopped")
    assert in_short(record_of(cuda_nf4=ended(100), cuda_bf16=ended(50), cpu_fp32=ended(10))) == "4-bit NF4 on the GPU writes fastest"
    tied = record_of(cuda_nf4=ended(100), cuda_bf16=ended(100), cpu_nf4=ended(99))
    assert in_short(replace(tied, verdict=verdict(tied.lanes))) == "4-bit NF4 on the GPU, FP32 on the GPU and 4-bit NF4 on the CPU write equally fast"
    comma = {name: replace(lane, server="vLLM, 4-bit") if name == "cuda:nf4" else lane for name, lane in tied.lanes.items()}
    assert in_short(replace(tied, lanes=comma)).startswith("vLLM, 4-bit, ")


def test_a_speed_that_is_not_known_is_no_winner():
    short = replace(ended(5).done, timings=replace(ended(5).done.timings, decode_tps=None, tpot_s=None))
    assert in_short(record_of(cpu_nf4=replace(ended(5), done=short), cpu_fp32=ended(10))) == "Equally soon"


def test_nothing_changes_while_a_comparison_is_not_over(history):
    keep(history, 1)
    session = history.page.sessions.begin("tab", lambda: history.page.engine.submit(Request("hi")))
    session.outcomes["cpu:nf4"] = ended(5)
    assert history.listed([], 0, VISITOR) == gr.skip()
    session.outcomes["cpu:fp32"] = ended(10)
    choice = history.listed([], 0, VISITOR)
    assert len(choice.choices) == 2 and choice.visible and history.show([], "csv", 0, VISITOR)[-1].interactive


def test_what_is_kept_no_longer_is_ticked_no_longer(history):
    keep(history, 2)
    session = history.page.sessions.begin("tab", lambda: history.page.engine.submit(Request("hi")))
    session.outcomes.update({"cpu:nf4": ended(5), "cpu:fp32": ended(10)})
    assert history.listed(["c0", "gone"], 0, VISITOR).value == ["c0"]


# ---- one, and two


def shown(history: HistoryTab, *ids: str) -> str:
    return history.show(list(ids), "csv", 0, VISITOR)[0]


def test_one_chosen_is_opened_with_its_facts_answers_settings_and_table(history):
    keep(history, 2)
    opened, again, more, table, *_ = history.show(["c1"], "csv", 0, VISITOR)
    assert "FP32 writes 2.0× faster" in opened and "4-bit (NF4)" in opened and "at most 50 tokens · greedy · chat format · in turn" in opened
    assert more.visible and "| **Code to load**" in table and not again.visible, "nothing is wired to ask it again"
    assert history.again(["c1"], VISITOR) == ["hi", "", "chat", 50, 0.0, 0, "in-turn"]
    assert history.again(["c0", "c1"], VISITOR) == [gr.skip()] * 7


def test_nothing_is_made_of_comparisons_that_are_not_chosen(history, monkeypatch):
    keep(history, 20)
    for module, name in ((history_tab, "markdown_table"), (history_tab.reopened, "view"), (pair, "view"), (history_tab, "export")):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("made of what is not shown"))
    assert "Choose one" in shown(history) and "3 chosen" in history._view(history._chosen(["c1", "c2", "c3"], VISITOR), 3, 0)


def test_two_chosen_stand_beside_each_other_with_what_differs_marked(history):
    history.page.histories.add("tab", "a", lambda: saying("one two  three"))
    history.page.histories.add("tab", "b", lambda: saying("one 2  three four"))
    told = shown(history, "b", "a")
    assert "one <mark>two</mark>  three</div>" in told and "one <mark>2</mark>  three <mark>four</mark></div>" in told
    assert "3 words stand in one answer only" in told and "Both answers are the same, word for word." in told


def test_words_that_come_often_are_no_difference_and_one_word_is_one():
    many = ["over", "and"] * 150
    assert pair.marked(" ".join(["yes", *many]), " ".join(["no", *many]))[2] == 2
    assert "1 word stands in one answer only; it is" in pair.view(saying("one two"), saying("one two three"), 0)


def test_lanes_that_gave_no_text_are_not_told_to_have_answered_the_same():
    told = pair.view(saying(""), saying(" "), 0)
    assert told.count("word for word") == 1, "the other lane's"


def test_the_figures_of_two_are_held_against_each_other():
    first, second = RECORD, record_of(cpu_nf4=ended(10))
    assert ["Speed", "5.00 tok/s", "10.0 tok/s", "2.0 times faster"] in pair.figure_rows(first, second, "cpu:nf4")
    assert pair.notes(first, second) == ["Only in one of the two: cpu:fp32."]


def test_answers_to_different_prompts_are_not_marked(history):
    history.page.histories.add("tab", "a", lambda: saying("one"))
    history.page.histories.add("tab", "b", lambda: saying("two", "another"))
    told = shown(history, "a", "b")
    assert pair.TWO_PROMPTS in told and "<mark>" not in told


def test_what_a_model_or_a_visitor_wrote_is_no_markup(history):
    history.page.histories.add("tab", "a", lambda: saying(EVIL, EVIL))
    history.page.histories.add("tab", "b", lambda: saying("other words", EVIL))
    for told in (shown(history, "a"), shown(history, "a", "b")):
        assert "onerror" in told and "<img" not in told and "${" not in told and "`" not in told


# ---- the export


def test_an_export_of_many_is_made_when_it_is_downloaded_and_not_before(history, monkeypatch):
    made, export = [], history_tab.export
    monkeypatch.setattr(history_tab, "export", lambda records, format: made.append(len(records)) or export(records, format))
    keep(history, 20)
    *_, preview, button = history.show([], "json", 0, VISITOR)
    assert made == [] and not preview.visible and button.interactive
    text, name = history.export([], "json", VISITOR)
    assert made == [20] and name == "comparison.json" and len(json.loads(text)) == 20


def test_few_are_shown_unless_they_are_long(history, monkeypatch):
    keep(history, 20)
    preview = history.show(["c1"], "csv", 0, VISITOR)[-2]
    assert preview.visible and preview.value == history.export(["c1"], "csv", VISITOR)[0]
    monkeypatch.setattr(history_tab, "MOST_SHOWN", 10)
    preview = history.show(["c1"], "csv", 0, VISITOR)[-2]
    assert not preview.visible and not preview.value


def test_where_there_is_nothing_download_is_off_and_says_so(history):
    *_, preview, button = history.show([], "csv", 0, VISITOR)
    assert not button.interactive and not preview.visible and not history.download.button.interactive
    with pytest.raises(gr.Error, match=NOTHING):
        history.export([], "csv", VISITOR)


def test_a_comparison_that_is_kept_no_longer_is_told_as_that(history):
    assert "No comparison yet" in history.show([], "markdown", 0, VISITOR)[0]
    assert "kept no longer" in history.show(["c0"], "markdown", 0, VISITOR)[0]


def test_a_figure_that_one_of_a_pair_lacks_says_why():
    first, second = record_of(cpu_nf4=ended(5), cpu_fp32=ended(9)), record_of(cpu_nf4=ended(5, reason="stopped"), cpu_fp32=ended(9))
    rows = {row[0]: row[1:] for row in pair.figure_rows(first, second, "cpu:nf4")}
    assert rows["Speed"] == ["5.00 tok/s", "n/a (stopped before its end)", ""]
