"""The page under and beside the answers, in headless Chromium over fake lanes: table, charts, history, export, a prompts file."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

from inference.child import ROOT
from inference.progress import Progress
from tests.support.browser_tab import Tab
from tests.support.records import ended, record_of
from ui import charts
from ui.download import NOTHING
from ui.history import MOST_KEPT, Histories, side_by_side


def compare(tab: Tab) -> None:
    tab.send()
    tab.wait_idle()
    tab.page.locator("#results table").wait_for()


def open_page(tab: Tab, name: str) -> None:
    tab.page.get_by_role("tab", name=name).click()


def save(tab: Tab, button: str) -> tuple[str, str]:
    """The name and the text of the file that a click on `button` gives."""
    with tab.page.expect_download() as saved:
        tab.page.locator(button).click()
    return saved.value.suggested_filename, Path(saved.value.path()).read_bytes().decode("utf-8")


def download(tab: Tab, button: str) -> str:
    return save(tab, button)[1]


# ---- results


def test_after_a_comparison_the_page_shows_table_summary_charts_and_their_numbers(open_tab):
    tab = open_tab()
    assert not tab.page.locator("#results").is_visible()
    compare(tab)
    table = tab.page.locator("#table").text_content()
    for row in ("Code to load", "Startup time", "Decode speed", "n/a (this lane uses no GPU)", "not measured", "python -m inference quality"):
        assert row in table, row
    assert "times" in tab.page.locator("#summary").text_content()
    tab.page.locator("#tokens-over-time svg, #tokens-over-time canvas").first.wait_for()
    assert "first token" in tab.page.locator("#charts-in-words").text_content()


def test_history_puts_two_side_by_side_and_exports_what_is_chosen(open_tab):
    tab = open_tab()
    compare(tab), compare(tab)
    open_page(tab, "History")
    boxes = tab.page.locator("#history input[type=checkbox]")
    tab.wait(lambda: boxes.count() == 2, "two comparisons")
    assert "memory of the server" in tab.page.locator("#kept").text_content()
    boxes.nth(0).check(), boxes.nth(1).check()
    tab.page.locator("#pair table").wait_for()
    boxes.nth(1).uncheck()
    tab.page.get_by_role("radio", name="JSON").first.check()
    tab.wait(lambda: tab.page.locator("#export textarea").input_value().startswith("{"), "the JSON of one")
    record = json.loads(download(tab, "#download"))
    assert record["request"]["prompt"] in tab.page.locator("#history label").first.text_content()
    boxes.nth(0).uncheck()
    tab.wait(lambda: tab.page.locator("#export textarea").input_value().startswith("["), "the JSON of all")
    records = json.loads(download(tab, "#download"))
    assert len(records) == 2 and records[1] == record


def test_download_saves_in_the_format_chosen_at_that_moment_and_is_off_while_there_is_nothing(open_tab):
    tab = open_tab()
    open_page(tab, "History")
    assert tab.page.locator("#download").is_disabled() and not tab.page.locator("#export").is_visible()
    open_page(tab, "Prompts file")
    assert tab.page.locator("#series-download").is_disabled()
    open_page(tab, "One prompt")
    compare(tab)
    open_page(tab, "History")
    tab.wait(tab.page.locator("#download").is_enabled, "Download enabled")
    for label, ending, begin in (("CSV", "csv", "created,"), ("JSON", "json", "{"), ("Markdown", "md", "## 4-bit")):
        tab.page.get_by_role("radio", name=label).last.check()
        name, text = save(tab, "#download")
        assert name == f"comparison.{ending}" and text.startswith(begin)


def test_what_is_not_kept_any_more_is_told_when_it_is_downloaded(open_tab, monkeypatch):
    tab = open_tab()
    compare(tab)
    open_page(tab, "History")
    tab.wait(tab.page.locator("#download").is_enabled, "Download enabled")
    monkeypatch.setattr(Histories, "choose", lambda *_: [])
    tab.page.locator("#download").click()
    tab.page.get_by_text(NOTHING).first.wait_for()


# ---- a prompts file


def start_file(tab: Tab, path: Path, data: str) -> None:
    path.write_text(data, "utf-8")
    open_page(tab, "Prompts file")
    tab.page.locator("#prompts-file input[type=file]").set_input_files(str(path))
    tab.page.locator("#prompts-file").get_by_text(path.stem).first.wait_for()
    tab.page.locator("#series-run").click()


def test_a_prompts_file_is_answered_with_rows_medians_and_the_lines_left_out(open_tab, fake_app, tmp_path):
    fake_app.script(both={"tokens": 3, "token_s": 0.001, "first_s": 0.001})
    tab = open_tab()
    start_file(tab, tmp_path / "p.jsonl", '{"prompt": "a<b>"}\n{\n{"prompt": "c", "expected": "we have chicken"}\n')
    tab.page.locator("#series-medians table").wait_for()
    words = tab.page.locator("#series-medians").text_content()
    assert "1 of 1" in words and "Line 2 was left out: not JSON." in words
    assert "2 of 2 prompts done" in tab.page.locator("#series-progress").text_content()
    assert "a<b>" in tab.page.locator("#series-rows").text_content()
    rows = list(csv.DictReader(io.StringIO(download(tab, "#series-download"))))
    assert [row["line"] for row in rows] == ["1", "1", "3", "3"]


def test_stop_keeps_what_is_done_and_the_tab_can_run_again(open_tab, fake_app, tmp_path):
    fake_app.script(both={"tokens": 4, "token_s": 0.02})
    tab = open_tab()
    start_file(tab, tmp_path / "p.txt", "\n".join(f"prompt {n}" for n in range(300)))
    tab.wait(lambda: tab.page.locator("#series-rows").is_visible(), "a row")
    tab.page.locator("#series-stop").click()
    tab.wait(lambda: "then stopped; what was done is kept" in tab.page.locator("#series-progress").text_content(), "stopped")
    tab.wait(tab.page.locator("#series-run").is_enabled, "Run enabled again")
    rows = list(csv.DictReader(io.StringIO(download(tab, "#series-download"))))
    assert 2 <= len(rows) < 600


def test_a_bad_file_gives_a_sentence(open_tab, tmp_path):
    tab = open_tab()
    start_file(tab, tmp_path / "p.csv", "question\nhello\n")
    tab.wait(lambda: "no column `prompt`" in (tab.page.locator("#series-progress").text_content() or ""), "a sentence")


# ---- without a browser


def test_the_time_axis_is_logarithmic_only_where_totals_differ_by_more_than_ten_times():
    near, far = record_of(cpu_nf4=ended(5), cpu_fp32=ended(10)), record_of(cuda_nf4=ended(100), cpu_fp32=ended(1, total=10.0))
    assert not charts.logarithmic(near) and charts.logarithmic(far)
    assert charts.tokens_over_time(near).frame["time"].tolist()[:3] == [0.1, 0.2, 0.3]
    assert abs(charts.tokens_over_time(far).frame["time"][0] + 1) < 1e-9 and "logarithmic" in charts.in_words(far)


def test_four_lanes_have_four_colours():
    record = record_of(cuda_nf4=ended(100), cuda_bf16=ended(200), cpu_nf4=ended(20), cpu_fp32=ended(10))
    assert len(set(charts.colours(record).values())) == 4
    assert all(len(chart.frame) == 4 for chart in charts.bars(record)[:3])


def test_the_charts_in_words_tell_how_each_run_ended_and_what_a_failed_one_got_to():
    failed = Progress(0.0, "failed", "half", 3, prompt_ids=(1, 2), error="It died.", t_first_s=0.25, t_last_s=0.75)
    words = charts.in_words(record_of(cpu_nf4=failed, cuda_nf4=Progress(0.0, "failed", error="No."), cpu_fp32=ended(10, reason="length"))).splitlines()
    assert any("first token 250 ms, end after 750 ms: failed (not counted); 4.00 tok/s; load" in line for line in words)
    assert any("first token n/a, end before the first token: failed (not counted)" in line for line in words)
    assert any("end after 300 ms: cut at the token limit;" in line for line in words)
    assert not any("stopped after" in line or "all after" in line for line in words)


def test_a_history_keeps_the_newest_and_makes_each_record_once():
    histories, made = Histories(), []
    for number in range(MOST_KEPT + 5):
        histories.add("tab", f"c{number}", lambda: made.append(1) or record_of(cpu_nf4=ended(5), cpu_fp32=ended(10)))
        histories.add("tab", f"c{number}", lambda: made.append(1) or {})
    assert len(made) == MOST_KEPT + 5 and len(histories.choose("tab", [])) == MOST_KEPT
    assert histories.get("tab", "c0") is None and len(histories.choose("tab", ["c10"])) == 1
    histories.forget("tab")
    assert histories.labels("tab") == []


def test_two_comparisons_side_by_side_say_how_they_differ():
    text = side_by_side(record_of(cpu_nf4=ended(5), cpu_fp32=ended(10)), record_of(cpu_nf4=ended(10)))
    assert "| Speed | 5.00 tok/s | 10.0 tok/s | 2.0 times faster |" in text and "Only in one of the two: cpu:fp32." in text


def test_the_pages_process_imports_no_torch_even_for_its_results():
    look = (
        "import app, sys; sys.path.insert(0, 'tests'); from tests.support.records import record_of, ended; from ui import charts; "
        "from inference.record.export import export; r = record_of(cpu_nf4=ended(5), cpu_fp32=ended(10)); charts.bars(r); export([r], 'markdown'); "
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "False"], done.stderr
