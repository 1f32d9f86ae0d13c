"""The prompts tab without a browser: what a file is told to be, what is sent while it runs, its rows, and what is left of it."""

from __future__ import annotations

import html
import json
import re
import threading
from dataclasses import replace
from types import SimpleNamespace

import gradio as gr
import pytest

from inference.engine.engine import Engine
from inference.record.model import Row
from inference.series.prompts import LeftOut, Prompt, Skipped, read_prompts
from inference.series.series import Series
from inference.settings import Settings
from tests.support.page_fixtures import start_fake_lane
from tests.support.records import ended, record_of
from ui.comparison.handlers import Page
from ui.prompts import tab as prompts_tab
from ui.prompts import view as series_view
from ui.prompts import watched
from ui.prompts.tab import NO_FILE, SAMPLE, STILL_RUNNING, PromptsTab
from ui.prompts.watched import FULL, Watched, left
from ui.tabs import MOST_TABS
from ui.visitors import Visitors

VISITOR = SimpleNamespace(session_hash="tab")
QUICK = {"*": {"load_s": 0, "first_s": 0.001, "token_s": 0.001, "tokens": 3}}


@pytest.fixture
def prompts(monkeypatch):
    monkeypatch.setattr(watched, "LOOK_S", 0.01)
    monkeypatch.setattr(series_view, "PAGE", 5)
    with Engine(Settings(lanes=("auto:nf4", "cpu:fp32")), lambda lane, settings: start_fake_lane(lane, settings, FAKE_LANE=json.dumps(QUICK))) as engine:
        with gr.Blocks():
            tab = PromptsTab(Page(engine, lambda: None))
        yield tab


def named(tab: PromptsTab, update: list) -> SimpleNamespace:
    """A listener's values by the component they are for."""
    names = {component: name for name, component in vars(tab).items() if isinstance(component, gr.components.Component | gr.Row)}
    return SimpleNamespace(download=update[-1], **{names[component]: value for component, value in zip(tab.shown[:-1], update, strict=False)})


def write(tmp_path, *lines: str, name: str = "p.txt") -> str:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def run(prompts: PromptsTab, path: str, tokens: int = 3) -> list[SimpleNamespace]:
    return [named(prompts, update) for update in prompts.run(path, tokens, "together", VISITOR)]


# ---- a file


def test_run_is_off_until_there_is_a_file_that_can_be_run(prompts, tmp_path):
    assert not prompts.start.interactive
    good = named(prompts, prompts.look(str(SAMPLE), VISITOR))
    assert good.start.interactive and "waiter.csv: 18 prompts, 16 with an expected answer." in good.progress
    none = named(prompts, prompts.look(None, VISITOR))
    assert not none.start.interactive and html.escape(NO_FILE) in none.progress
    assert len(read_prompts(SAMPLE)[0]) == 18 and "18 orders" in NO_FILE and "16 of them" in NO_FILE


def test_blank_rows_of_a_csv_are_named_as_soon_as_it_is_chosen(prompts, tmp_path):
    told = named(prompts, prompts.look(write(tmp_path, "prompt,expected", "a,b", ",", "c,d", name="p.csv"), VISITOR))
    assert "p.csv: 2 prompts, 2 with an expected answer. Line 3 was left out: the row is blank." in told.progress and told.start.interactive


def test_nothing_is_left_of_an_earlier_file_where_one_is_refused(prompts, tmp_path, monkeypatch):
    assert run(prompts, write(tmp_path, "one"))[-1].rows
    monkeypatch.setattr(prompts_tab, "MOST_PROMPTS", 2)
    refused = named(prompts, prompts.look(write(tmp_path, "one", "two", "three"), VISITOR))
    assert 'role="alert"' in refused.progress and "p.txt has more than 2 prompts" in refused.progress
    assert refused.rows == refused.summary == refused.place == "" and not refused.view.visible
    assert not refused.start.interactive and not refused.download.interactive and prompts.series.get("tab") is None
    with pytest.raises(gr.Error):
        prompts.export("csv", VISITOR)


def test_a_setting_that_is_refused_is_a_sentence_and_run_stays_on(prompts, tmp_path):
    (refused,) = run(prompts, write(tmp_path, "one"), tokens=0)
    assert "Max new tokens must be from 1" in refused.progress and refused.start.interactive and refused.rows == ""


def test_a_file_that_the_server_has_deleted_is_told_without_the_servers_path(prompts, tmp_path):
    (told,) = run(prompts, str(tmp_path / "gone.txt"))
    assert "deleted the file meanwhile" in told.progress and "gone" not in told.progress


def test_a_file_that_runs_is_left_alone_by_a_second_and_by_a_second_click(prompts, tmp_path):
    path = write(tmp_path, *map(str, range(50)))
    updates = prompts.run(path, 3, "together", VISITOR)
    next(updates)
    assert prompts.look(write(tmp_path, "question", name="bad.csv"), VISITOR) == [gr.skip()] * len(prompts.shown)
    (again,) = run(prompts, path)
    assert html.escape(STILL_RUNNING) in again.progress and again.rows == gr.skip()
    updates.close()
    assert prompts.series.get("tab").stop.is_set()


def test_a_file_for_which_there_is_no_thread_is_told_and_can_be_run_later(prompts, tmp_path, monkeypatch):
    """The tab said that it was still running, and where visitors have limits this one could ask nothing more."""
    path, limited = write(tmp_path, "one", "two"), Visitors(Settings(limits="on"))
    monkeypatch.setattr(prompts.page, "visitors", limited)
    start = threading.Thread.start
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", lambda thread: no_thread() if thread.name == "series" else start(thread))
        (told,) = run(prompts, path)
    assert "could not be begun (can&#x27;t start new thread)" in told.progress and told.start.interactive
    assert "2 of 2 prompts done" in run(prompts, path)[-1].progress


def no_thread():
    raise RuntimeError("can't start new thread")


# ---- while it runs, and at the end


def test_a_running_file_shows_its_newest_page_and_lanes_in_words_and_all_pages_at_the_end(prompts, tmp_path):
    path = write(tmp_path, *(f"prompt {number}" for number in range(20)))
    first, *steps, last = run(prompts, path)
    sent = [step for step in steps if step.rows != gr.skip()]
    assert sent and max(step.rows.count("<li>") for step in sent) <= 5 and not any(hasattr(step.view, "visible") and step.view.visible for step in sent)
    lines = " ".join(step.progress for step in steps)
    assert re.search("4-bit: (writing|done)", lines) and "FP32: " in lines and "nf4" not in lines
    assert not first.start.interactive and first.stop.interactive and not first.download.interactive
    assert last.start.interactive and not last.stop.interactive and last.download.interactive and last.view.visible
    assert last.place == '<p role="status">Rows 1–5 of 20</p>' and [value for _, value in last.only.choices] == ["all", "differ"]
    assert "20 of 20 prompts done" in last.progress and "All 20 the same" in last.summary
    text, name = prompts.export("csv", VISITOR)
    assert name == "prompts.csv" and len(text.splitlines()) == 1 + 2 * 20
    later = prompts._turn(1)(0, "all", VISITOR)
    assert later[1] == 1 and "prompt 5" in later[0] and "Rows 6–10 of 20" in later[2]
    assert "No such row" in prompts._turn(None)(3, "differ", VISITOR)[2]


def test_a_screen_reader_is_told_each_tenth_and_not_each_prompt(prompts, tmp_path):
    path = write(tmp_path, *map(str, range(100)))
    told = [re.search('role="status"[^>]*>([^<]*)<', step.progress)[1] for step in run(prompts, path)]
    assert len(set(told)) <= 14 and told[-1].startswith("100 of 100")


def test_of_a_short_file_a_screen_reader_is_never_told_too_few():
    watch = SimpleNamespace(left_s=lambda: None, _names={}, _does={}, _series=SimpleNamespace(stop=SimpleNamespace(is_set=lambda: False)))
    assert [Watched._going(watch, done, 3)[0] for done in (1, 2)] == ["1 of 3 prompts done", "2 of 3 prompts done"]


def test_the_time_left_follows_the_pace_from_the_first_prompt_on(prompts, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(Watched, "_run", lambda *_: None)
    series = Series([Prompt(line, "x") for line in range(1, 21)])
    watch = Watched(prompts.page.engine, series, None, "auto", clock=lambda: now[0])
    assert watch.left_s() is None
    series.records += [None] * 3
    watch._first_at, watch._last_at, now[0] = 130.0, 134.0, 135.0
    assert watch.left_s() == 17 * 2.0 - 1.0


@pytest.mark.parametrize(("span_s", "words"), [(0.2, "5 s"), (38, "40 s"), (57, "55 s"), (58, "1 min"), (170, "3 min"), (4800, "1 h 20 min")])
def test_a_time_left_is_told_roundly(span_s, words):
    assert left(span_s) == words


def test_a_file_ends_with_a_sentence_when_its_answers_fill_what_a_tab_may_keep(prompts, monkeypatch, tmp_path):
    monkeypatch.setattr(watched, "MOST_BYTES", 1)
    last = run(prompts, write(tmp_path, "one", "two", "three"))[-1]
    assert "1 of 3 prompts done" in last.progress and FULL in html.unescape(last.progress)
    assert len(prompts.series.get("tab").records) == 1 and last.download.interactive


def test_series_are_kept_for_as_many_tabs_as_histories(prompts):
    for number in range(MOST_TABS + 1):
        prompts.series.put(f"tab{number}", number, 0)
    assert prompts.series.get("tab0") is None and prompts.series.get("tab1") == 1


# ---- what is shown


def record(line: int, left: str, right: str, expected: str | None = None, reason: str = "stop"):
    def run(text: str, tps: float):
        ids = tuple(map(ord, text))
        return replace(ended(tps), text=text, done=replace(ended(tps, ids, reason).done, text=text))

    return replace(record_of(cpu_nf4=run(left, 5), cpu_fp32=run(right, 10)), row=Row(line, expected))


def shown(*records, only: str = "all") -> str:
    return series_view.rows(Series((), records=list(records)), 0, only).html


def test_a_row_has_both_whole_answers_and_marks_the_word_they_part_at():
    long = "word " * 300
    told = shown(record(7, f"{long}one two", f"{long}one 2"))
    assert f"{long}one <mark>two</mark></div>" in told and f"{long}one <mark>2</mark></div>" in told
    assert "Line 7" in told and "Differ from word 302" in told and told.index("4-bit (NF4)") < told.index("Full precision (FP32)")
    ends = shown(record(7, "one", "one two"))
    assert "one<mark>(ends here)</mark>" in ends and "one <mark>two</mark>" in ends


def test_a_row_says_what_is_as_expected_what_holds_it_and_what_was_cut():
    told = shown(record(1, " The Cola ", "it is the cola.", "the cola"), record(2, "a", "a", "the cola", "length"))
    assert told.count("✓ As expected") == 1 and told.count("✓ Holds what is expected") == 1 and told.count("✗ Not as expected") == 2
    assert told.count("Cut at 3 tokens") == 2 and "The same so far" in told


def test_of_a_very_long_expectation_the_beginning_is_shown():
    told = shown(record(1, "a", "b", "x" * 200_000))
    assert "(200,000 characters)" in told and len(told) < 5000


def test_only_the_rows_wanted_are_shown():
    rows = record(1, "a", "a", "a"), record(2, "a", "b", "a"), record(3, "a", "b")
    assert [re.findall(r"Line (\d)", shown(*rows, only=only)) for only in ("all", "differ", "wrong")] == [["1", "2", "3"], ["2", "3"], ["2"]]


def test_the_summary_says_who_won_over_all_how_many_are_the_same_and_how_many_hold_what_is_expected():
    records = [record(1, "a cola", "a cola", "cola"), record(2, "a tea", "a cola", "cola"), record(3, "a", "a")]
    told = series_view.summary(Series((), LeftOut([Skipped(4, "not JSON")]), records))
    for words in ("FP32 writes 2.0× faster", "2 of 3 the same", "4-bit 1 of 2, FP32 2 of 2", "0 of 2, 1 more hold it", "Line 4 was left out: not JSON."):
        assert words in told, words
    assert told.index("FP32 writes") < told.index("<table")


def test_what_a_model_or_a_file_says_is_no_markup():
    evil = "<img src=x onerror='window.hurt=1'> ${window.hurt=1} `x`"
    told = shown(replace(record(1, evil, f"{evil} more", evil), request=replace(record(1, "", "").request, prompt=evil)))
    assert told.count("onerror") == 4 and "<img" not in told and "${" not in told and "`" not in told
