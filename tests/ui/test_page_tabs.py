"""History and the prompts tab without a browser: what is kept, what is sent, and when an export is made."""

from __future__ import annotations

import html
import json
import threading
from dataclasses import replace
from types import SimpleNamespace

import gradio as gr
import pytest

from inference.engine.engine import Engine
from inference.events import Request
from inference.settings import Settings
from inference.units import size
from tests.support.fakes import Stage
from tests.support.page_fixtures import start_fake_lane
from tests.support.records import ended, record_of
from ui import history as ui_history
from ui import history_tab, prompts_tab
from ui.download import NOTHING
from ui.fork import ForkViewer
from ui.handlers import Page
from ui.history import Histories
from ui.history_tab import HistoryTab
from ui.prompts_tab import FULL, PromptsTab
from ui.results import Results
from ui.sessions import Sessions
from ui.tabs import MOST_TABS, Tabs, bytes_of

VISITOR = SimpleNamespace(session_hash="tab")
RECORD = record_of(cpu_nf4=ended(5), cpu_fp32=ended(10))
QUICK = {"*": {"load_s": 0, "first_s": 0.001, "token_s": 0.001, "tokens": 3}}


@pytest.fixture
def history():
    stage = Stage(("cpu:nf4", "cpu:fp32"))
    with gr.Blocks():
        return HistoryTab(Page(stage.engine, lambda: None))


def keep(history: HistoryTab, count: int) -> None:
    for number in range(count):
        history.page.histories.add("tab", f"c{number}", lambda: RECORD)


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
    assert size(prompts_tab.MOST_BYTES) in prompts_tab.ABOUT
    assert all("tabs used after it" in words for words in (history_tab.KEPT, prompts_tab.ABOUT))


@pytest.mark.parametrize("use", ["labels", "choose", "get", "add"])
def test_a_history_that_is_used_outlives_those_that_are_not(use):
    histories = Histories()
    for number in range(MOST_TABS):
        histories.add(f"tab{number}", "c", lambda: RECORD)
    getattr(histories, use)("tab0", *{"labels": (), "choose": ([],), "get": ("c",), "add": ("c", lambda: RECORD)}[use])
    histories.add("one more", "c", lambda: RECORD)
    assert histories.labels("tab0") and not histories.labels("tab1")


def test_other_tabs_do_not_wait_while_a_record_is_made():
    histories, made = Histories(), threading.Event()
    thread = threading.Thread(target=lambda: histories.add("a", "c", lambda: histories.labels("b") or RECORD) and made.set(), daemon=True)
    thread.start()
    assert made.wait(5)


# ---- history


def test_nothing_changes_while_a_comparison_is_not_over(history):
    keep(history, 1)
    session = history.page.sessions.begin("tab", lambda: history.page.engine.submit(Request("hi")))
    session.outcomes["cpu:nf4"] = ended(5)
    assert history.refresh([], "csv", VISITOR) == [gr.skip()] * 4
    session.outcomes["cpu:fp32"] = ended(10)
    choice, _, _, button = history.refresh([], "csv", VISITOR)
    assert len(choice.choices) == 2 and button.interactive


def test_an_export_of_many_is_made_when_it_is_downloaded_and_not_before(history, monkeypatch):
    made, export = [], history_tab.export
    monkeypatch.setattr(history_tab, "export", lambda records, format: made.append(len(records)) or export(records, format))
    keep(history, 20)
    _, preview, button = history.show([], "json", VISITOR)
    assert made == [] and not preview.visible and button.interactive
    text, name = history.export([], "json", VISITOR)
    assert made == [20] and name == "comparison.json" and len(json.loads(text)) == 20


def test_few_are_shown_unless_they_are_long(history, monkeypatch):
    keep(history, 20)
    _, preview, _ = history.show(["c1"], "csv", VISITOR)
    assert preview.visible and preview.value == history.export(["c1"], "csv", VISITOR)[0]
    monkeypatch.setattr(history_tab, "MOST_SHOWN", 10)
    _, preview, _ = history.show(["c1"], "csv", VISITOR)
    assert not preview.visible and not preview.value


def test_where_there_is_nothing_download_is_off_and_says_so(history):
    _, preview, button = history.show([], "csv", VISITOR)
    assert not button.interactive and not preview.visible and not history.download.button.interactive
    with pytest.raises(gr.Error, match=NOTHING):
        history.export([], "csv", VISITOR)


# ---- a prompts file


@pytest.fixture
def prompts(monkeypatch):
    monkeypatch.setattr(prompts_tab, "LOOK_S", 0.01)
    monkeypatch.setattr(prompts_tab, "MOST_ROWS", 5)
    with Engine(Settings(lanes=("auto:nf4", "cpu:fp32")), lambda lane, settings: start_fake_lane(lane, settings, FAKE_LANE=json.dumps(QUICK))) as engine:
        with gr.Blocks():
            tab = PromptsTab(Page(engine, lambda: None))
        yield tab


def test_a_running_file_sends_its_last_rows_and_its_lanes_names_and_all_rows_at_the_end(prompts, tmp_path):
    path = tmp_path / "p.txt"
    path.write_text("\n".join(f"prompt {number}" for number in range(20)))
    first, *steps, last = prompts.run(str(path), 3, "together", VISITOR)
    sent = [step[2] for step in steps if step[2] != gr.skip()]
    assert sent and max(len(rows.value["data"]) for rows in sent) == 5 and sent[-1].label.startswith("The last 5 prompts")
    assert len(last[2].value["data"]) == 20 and last[2].label == "Prompts"
    lines = " ".join(step[0] for step in steps)
    assert "cpu:nf4 decode" in lines and "auto:nf4 decode" not in lines
    assert not first[5].interactive and last[5].interactive
    text, name = prompts.export("csv", VISITOR)
    assert name == "prompts.csv" and len(text.splitlines()) == 1 + 2 * 20


def test_too_many_prompts_are_a_sentence_on_the_page(prompts, monkeypatch, tmp_path):
    monkeypatch.setattr(prompts_tab, "MOST_PROMPTS", 2)
    path = tmp_path / "p.txt"
    path.write_text("one\ntwo\nthree\n")
    ((sentence, *others),) = prompts.run(str(path), 3, "auto", VISITOR)
    assert "p.txt has more than 2 prompts" in sentence and others == [gr.skip()] * 5


def test_series_are_kept_for_as_many_tabs_as_histories(prompts):
    for number in range(MOST_TABS + 1):
        prompts.series.put(f"tab{number}", number, 0)
    assert prompts.series.get("tab0") is None and prompts.series.get("tab1") == 1


def test_a_file_ends_with_a_sentence_when_its_answers_fill_what_a_tab_may_keep(prompts, monkeypatch, tmp_path):
    monkeypatch.setattr(prompts_tab, "MOST_BYTES", 1)
    path = tmp_path / "p.txt"
    path.write_text("one\ntwo\nthree\n")
    *_, last = prompts.run(str(path), 3, "together", VISITOR)
    assert "1 of 3 prompts done" in last[0] and FULL in html.unescape(last[0])
    assert len(prompts.series.get("tab").records) == 1 and last[5].interactive


# ---- results


def test_results_are_hidden_and_drawn_by_a_comparison_and_not_by_a_prompt_that_is_refused():
    stage = Stage(("cpu:nf4", "cpu:fp32"))
    page = Page(stage.engine, lambda: None)
    with gr.Blocks():
        results = Results(page)

    def ask(prompt: str):
        return page.begin(prompt, "", "chat", 3, 0, 0, "together", VISITOR)

    ask("hi")
    assert results.hide(VISITOR).visible == "hidden"
    assert results.show(VISITOR)[0] == gr.skip()
    session = page.sessions.get("tab")
    for lane in ("cpu:nf4", "cpu:fp32"):
        page.sessions.ended("tab", session, lane, ended(5))
    assert results.show(VISITOR)[0].visible is True
    assert all(update == gr.skip() for update in results.show(VISITOR)), "drawn once, though each lane's branch comes by"
    assert "empty" in ask(" ")[0].value
    assert results.hide(VISITOR) == gr.skip() and all(update == gr.skip() for update in results.show(VISITOR))
    ask("and now")
    assert results.hide(VISITOR).visible == "hidden"
