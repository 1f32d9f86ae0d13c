"""The tab "Prompts file" in headless Chromium over fake lanes: the sample, a run, a stop, a refusal."""

from __future__ import annotations

import csv
import io

import pytest

from tests.support.browser_tab import Tab
from tests.support.tab_pages import choose_file, download, open_page, progress, save, start_file
from ui.prompts.tab import SAMPLE


@pytest.fixture
def tab(open_tab) -> Tab:
    tab = open_tab()
    open_page(tab, "Prompts file")
    tab.page.locator("#series-run").wait_for()
    return tab


def run_to_the_end(tab: Tab) -> None:
    tab.wait(tab.page.locator("#series-run").is_enabled, "Run enabled")
    tab.page.locator("#series-run").click()
    tab.page.locator("#series-view").wait_for()


def test_the_sample_is_run_with_two_clicks_and_both_answers_of_a_row_are_in_view(tab, fake_app):
    fake_app.script(both={"tokens": 6, "token_s": 0.001, "first_s": 0.001}, cpu_nf4={"tokens": 6, "token_s": 0.001, "first_s": 0.001, "fork_at": 3})
    page = tab.page
    assert page.locator("#series-run").is_disabled() and save(tab, "#sample-save") == (SAMPLE.name, SAMPLE.read_text("utf-8"))
    page.locator("#sample-use").click()
    tab.wait(lambda: "waiter.csv: 18 prompts" in progress(tab), "what is in it")
    run_to_the_end(tab)
    assert "0 of 18 the same" in page.locator("#series-medians").text_content() and "18 of 18 prompts done" in progress(tab)
    row = page.locator("#series-rows li").first
    left, right = row.evaluate("row => [...row.querySelectorAll('.side')].map((side) => side.getBoundingClientRect().toJSON())")
    assert left["top"] == right["top"] and left["right"] <= right["left"] and right["right"] <= page.viewport_size["width"]
    fonts = "element => [getComputedStyle(element).fontFamily, getComputedStyle(document.querySelector('.gradio-container')).fontFamily, getComputedStyle(element).whiteSpace]"
    font, page_font, white = row.locator(".said").first.evaluate(fonts)
    assert font == page_font and white == "pre-wrap" and row.locator("mark").all_text_contents() == ["other", "chicken"]
    page.set_viewport_size({"width": 390, "height": 844})
    tab.wait(lambda: row.locator(".side").nth(1).bounding_box()["y"] > row.locator(".side").nth(0).bounding_box()["y"], "stacked on a phone")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_file_is_answered_with_rows_medians_and_the_lines_left_out(tab, fake_app, tmp_path):
    fake_app.script(both={"tokens": 3, "token_s": 0.001, "first_s": 0.001})
    choose_file(tab, tmp_path / "p.jsonl", '{"prompt": "a<b>"}\n{\n{"prompt": "c", "expected": "we have chicken"}\n')
    tab.wait(lambda: "Line 2 was left out: not JSON." in progress(tab), "what is left out, before it runs")
    run_to_the_end(tab)
    words = tab.page.locator("#series-medians").text_content()
    assert "1 of 1" in words and "Line 2 was left out: not JSON." in words and "2 of 2 prompts done" in progress(tab)
    assert "a<b>" in tab.page.locator("#series-rows").text_content()
    rows = list(csv.DictReader(io.StringIO(download(tab, "#series-download"))))
    assert [row["line"] for row in rows] == ["1", "1", "3", "3"]


def test_stop_keeps_what_is_done_and_a_refused_file_leaves_nothing_of_it(tab, fake_app, tmp_path):
    fake_app.script(both={"tokens": 4, "token_s": 0.02})
    start_file(tab, tmp_path / "p.txt", "\n".join(f"prompt {n}" for n in range(300)))
    tab.page.locator("#series-rows li").first.wait_for()
    tab.wait(lambda: "left" in progress(tab) and "4-bit: " in progress(tab), "how long it takes and what the lanes do")
    tab.page.locator("#series-stop").click()
    tab.wait(lambda: "then stopped; what was done is kept" in progress(tab), "stopped")
    tab.wait(tab.page.locator("#series-run").is_enabled, "Run enabled again")
    rows = list(csv.DictReader(io.StringIO(download(tab, "#series-download"))))
    assert 2 <= len(rows) < 600
    tab.page.locator("#prompts-file").get_by_label("Clear").click()
    choose_file(tab, tmp_path / "bad.csv", "question\nhello\n")
    alert = tab.page.locator("#series-progress [role=alert]")
    alert.wait_for()
    assert "no column `prompt`" in alert.text_content() and alert.bounding_box()["x"] == tab.page.locator("#series-about").bounding_box()["x"]
    tab.wait(lambda: not tab.page.locator("#series-rows li").count() and not tab.page.locator("#series-medians table").count(), "nothing of the earlier file")
    assert tab.page.locator("#series-run").is_disabled() and tab.page.locator("#series-download").is_disabled()


def test_the_drop_zone_is_named_by_the_words_seen_in_it(tab):
    zone = tab.page.locator("#prompts-file button[aria-dropeffect]")
    tab.wait(lambda: zone.get_attribute("aria-label") is None, "no other name")
    assert "Click to Upload" in zone.text_content() and "txt: a prompt a line" in tab.page.locator("#prompts-file").text_content()


def test_a_file_that_is_dropped_beside_the_zone_does_not_take_the_place_of_the_page(tab):
    open_page(tab, "Prompts file")
    dropped = """(part, name) => {
        const files = new DataTransfer();
        files.items.add(new File(["one"], "one.txt", {type: "text/plain"}));
        return !part.dispatchEvent(new DragEvent(name, {dataTransfer: files, bubbles: true, cancelable: true}));
    }"""
    for name in ("dragover", "drop"):
        assert tab.page.locator("#series-about").evaluate(dropped, name), "taken care of"
    tab.page.locator("#prompts-file button[aria-dropeffect]").evaluate(dropped, "drop")
    tab.page.locator("#prompts-file").get_by_text("one").first.wait_for()
    tab.page.locator("#prompts-file").get_by_label("Clear").click()
