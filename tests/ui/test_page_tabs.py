"""What is kept of each tab, for how long and how much of it; without a browser."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import gradio as gr
import pytest

from inference.events import Request
from inference.units import size
from tests.support.fakes import Stage
from tests.support.records import ended, record_of
from ui import histories as ui_history
from ui.api import build_request
from ui.comparison.handlers import Page
from ui.comparison.results import Results
from ui.comparison.sessions import Sessions
from ui.fork.viewer import ForkViewer
from ui.histories import MOST_KEPT, Histories
from ui.history import tab as history_tab
from ui.prompts import tab as prompts_tab
from ui.prompts import watched
from ui.tabs import MOST_TABS, Tabs, bytes_of

VISITOR = SimpleNamespace(session_hash="tab")
RECORD = record_of(cpu_nf4=ended(5), cpu_fp32=ended(10))


# ---- what is kept


def test_the_tab_unused_longest_goes_first():
    tabs = Tabs(2)
    tabs.put("a", 1, 0), tabs.put("b", 2, 0)
    assert tabs.get("a") == 1
    tabs.put("c", 3, 0)
    assert (tabs.get("a"), tabs.get("b"), tabs.get("c")) == (1, None, 3)


def test_bytes_are_bounded_too_and_the_newest_is_kept_however_large():
    tabs = Tabs(most_bytes=100)
    tabs.put("a", 1, 40), tabs.put("b", 2, 40)
    assert tabs.get("a") == 1
    tabs.put("c", 3, 40)
    assert (tabs.get("a"), tabs.get("b"), tabs.get("c")) == (1, None, 3)
    tabs.resize("a", 1, 70)
    assert (tabs.get("a"), tabs.get("c")) == (1, None)
    tabs.put("d", 4, 1000)
    assert (tabs.get("a"), tabs.get("d")) == (None, 4)


def test_what_grows_after_its_tab_was_closed_is_not_kept_again():
    tabs, first = Tabs(), ["first"]
    tabs.put("a", first, 1)
    tabs.put("a", ["second"], 1)
    tabs.resize("a", first, 5)
    assert tabs.get("a") == ["second"]
    tabs.drop("a")
    tabs.resize("a", ["second"], 5)
    assert tabs.get("a") is None


def test_the_size_of_what_is_kept_follows_its_texts_and_ids():
    short, long = record_of(cpu_nf4=ended(5)), record_of(cpu_nf4=ended(5, ids=range(4000)))
    assert bytes_of(long) - bytes_of(short) > 8 * 3997
    assert bytes_of({"text": "x" * 200_000}) > 200_000 and bytes_of(["ж" * 1000]) > 2000


def test_one_tabs_history_is_bounded_in_bytes_and_keeps_the_newest(monkeypatch):
    monkeypatch.setattr(ui_history, "MOST_BYTES", 3 * bytes_of(RECORD))
    histories = Histories()
    for number in range(5):
        histories.add("tab", f"c{number}", lambda: RECORD)
    assert len(histories.choose("tab", [])) == 3 and histories.get("tab", "c4") and not histories.get("tab", "c1")
    monkeypatch.setattr(ui_history, "MOST_BYTES", 1)
    histories.add("tab", "c5", lambda: RECORD)
    assert len(histories.choose("tab", [])) == 1 and histories.get("tab", "c5")


def test_a_sessions_answers_count_and_its_tab_goes_when_others_need_the_room():
    stage = Stage(("cpu:nf4", "cpu:fp32"))
    sessions = Sessions(most_bytes=20_000)
    first = sessions.begin("a", lambda: stage.ask("together"))
    sessions.begin("b", lambda: stage.ask("together"))
    sessions.ended("a", first, "cpu:nf4", ended(5, ids=range(4000)))
    assert sessions.get("a") is first and sessions.get("b") is None


def test_both_lanes_may_end_while_their_sizes_are_taken():
    sessions = Sessions()
    session = sessions.begin("a", lambda: Stage(("cpu:nf4", "cpu:fp32")).ask("together"))
    before = session.size

    class Grows(str):
        """Its size is taken just when the other lane ends."""

        def __sizeof__(self) -> int:
            if not session.complete:
                sessions.ended("a", session, "cpu:nf4", ended(5))
            return 1000

    sessions.ended("a", session, "cpu:fp32", replace(ended(10), text=Grows("abc")))
    assert session.complete and session.size > before + 1000 + bytes_of(ended(5))


def test_the_scoring_is_not_offered_for_a_comparison_that_goes_on_after_the_verdict_of_another():
    page = Page(Stage(("cpu:nf4", "cpu:fp32")).engine, lambda: None)
    with gr.Blocks():
        viewer = ForkViewer(page)
    session = page.sessions.begin("tab", lambda: page.engine.submit(Request("hi")))
    page.sessions.ended("tab", session, "cpu:nf4", ended(5))
    assert not viewer.ready(VISITOR)[0].interactive
    page.sessions.ended("tab", session, "cpu:fp32", ended(10))
    assert viewer.ready(VISITOR)[0].interactive


def test_what_is_kept_is_told_with_its_bounds():
    assert str(ui_history.MOST_KEPT) in history_tab.KEPT and size(ui_history.MOST_BYTES) in history_tab.KEPT
    assert size(watched.MOST_BYTES) in prompts_tab.KEPT
    assert all("tabs used after it" in words for words in (history_tab.KEPT, prompts_tab.KEPT))


@pytest.mark.parametrize("use", ["labels", "choose", "get", "add"])
def test_a_history_that_is_used_outlives_those_that_are_not(use):
    histories = Histories()
    for number in range(MOST_TABS):
        histories.add(f"tab{number}", "c", lambda: RECORD)
    getattr(histories, use)("tab0", *{"labels": (), "choose": ([],), "get": ("c",), "add": ("c", lambda: RECORD)}[use])
    histories.add("one more", "c", lambda: RECORD)
    assert histories.labels("tab0") and not histories.labels("tab1")


def test_a_history_keeps_the_newest_and_makes_each_record_once():
    histories, made = Histories(), []
    for number in range(MOST_KEPT + 5):
        histories.add("tab", f"c{number}", lambda: made.append(1) or RECORD)
        histories.add("tab", f"c{number}", lambda: made.append(1) or {})
    assert len(made) == MOST_KEPT + 5 and len(histories.choose("tab", [])) == MOST_KEPT
    assert histories.get("tab", "c0") is None and len(histories.choose("tab", ["c10"])) == 1
    histories.forget("tab")
    assert histories.labels("tab") == []


def test_other_tabs_do_not_wait_while_a_record_is_made():
    histories, made = Histories(), threading.Event()
    thread = threading.Thread(target=lambda: histories.add("a", "c", lambda: histories.labels("b") or RECORD) and made.set(), daemon=True)
    thread.start()
    assert made.wait(5)


# ---- results


def test_results_are_hidden_and_drawn_by_a_comparison_and_not_by_a_prompt_that_is_refused():
    stage = Stage(("cpu:nf4", "cpu:fp32"))
    page = Page(stage.engine, lambda: None)
    with gr.Blocks():
        results = Results(page)

    def ask(prompt: str):
        return page.begin(lambda: build_request(prompt, "", "chat", 3, 0, 0), "together", SimpleNamespace(session_hash="tab"))

    ask("hi")
    hidden, details = results.hide(VISITOR)
    assert hidden == "" and not details.visible
    assert results.show(VISITOR)[0] == gr.skip()
    session = page.sessions.get("tab")
    for lane in ("cpu:nf4", "cpu:fp32"):
        page.sessions.ended("tab", session, lane, ended(5))
    assert "tok/s" in results.show(VISITOR)[0]
    assert all(update == gr.skip() for update in results.show(VISITOR)), "drawn once, though each lane's branch comes by"
    assert "empty" in ask(" ")[0].value
    assert results.hide(VISITOR) == [gr.skip()] * 2 and all(update == gr.skip() for update in results.show(VISITOR))
    ask("and now")
    assert results.hide(VISITOR)[0] == ""
