"""The tab "History" in headless Chromium over fake lanes: one opened again, two held against each other, asked again, exported."""

from __future__ import annotations

import json
import threading

from tests.support.tab_pages import compare, download, open_page, save
from ui.download import NOTHING
from ui.histories import Histories
from ui.history import tab as history_tab


def test_one_is_opened_again_two_are_compared_and_what_is_chosen_is_exported(open_tab, fake_app):
    tab = open_tab()
    page = tab.page
    prompt = "هل لديكم طعام نباتي؟"
    compare(tab, prompt)
    fake_app.script(both={"fork_at": 3})
    compare(tab, prompt)
    open_page(tab, "History")
    boxes = page.locator("#history input[type=checkbox]")
    tab.wait(lambda: boxes.count() == 2, "two comparisons")
    assert "memory of the server" in page.locator("#kept").text_content()
    offset = page.evaluate("new Date().getTimezoneOffset()")
    assert offset == 0 or offset == float(page.locator("input[type=number]").first.input_value())
    boxes.nth(0).focus()
    page.keyboard.press("Space")
    page.locator("#pair .winners").wait_for()
    assert page.locator("#pair .side").count() == 2 and page.locator("#pair .question").text_content() == prompt
    page.get_by_role("radio", name="JSON").first.check()
    tab.wait(lambda: page.locator("#export textarea").input_value().startswith("{"), "the JSON of one")
    record = json.loads(download(tab, "#download"))
    assert record["request"]["prompt"] in page.locator("#history label").first.text_content()
    boxes.nth(1).check()
    page.locator("#pair table").first.wait_for()
    assert page.locator("#pair .side").count() == 4 and page.locator("#pair mark").count() == 4
    letters = [page.locator("#history label").nth(i).evaluate("label => getComputedStyle(label, '::after').content") for i in (0, 1)]
    assert letters == ['"B"', '"A"'] and page.locator("#pair .letter").all_text_contents() == ["A", "B"]
    boxes.nth(0).uncheck(), boxes.nth(1).uncheck()
    tab.wait(lambda: page.locator("#export textarea").input_value().startswith("["), "the JSON of all")
    records = json.loads(download(tab, "#download"))
    assert len(records) == 2 and records[1] == record


def test_asked_again_its_prompt_and_settings_stand_in_the_first_tab(open_tab):
    tab = open_tab()
    tab.choose("Raw completion", max_new_tokens="7")
    compare(tab, "an earlier prompt")
    tab.choose("Chat template", max_new_tokens="9")
    tab.prompt.fill("something else")
    open_page(tab, "History")
    tab.page.locator("#history input[type=checkbox]").first.check()
    tab.page.locator("#ask-again").click()
    tab.wait(lambda: tab.prompt.is_visible() and tab.prompt.input_value() == "an earlier prompt", "the prompt in the first tab")
    settings = tab.page.locator("#settings")
    assert settings.get_by_label("Raw completion", exact=True).is_checked() and settings.get_by_label("Max new tokens").input_value() == "7"
    tab.wait(lambda: tab.page.evaluate("document.activeElement.tagName") == "TEXTAREA", "the focus in the prompt")


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
    for label, ending, begin in (
        ("CSV", "csv", "created,"),
        ("JSON", "json", "{"),
        ("Markdown", "md", "## 4-bit"),
        ("Report (HTML)", "html", "<!doctype html>"),
    ):
        tab.page.get_by_role("radio", name=label).last.check()
        name, text = save(tab, "#download")
        assert name == f"comparison.{ending}" and text.startswith(begin)


def test_what_is_not_kept_any_more_is_told_when_it_is_downloaded(open_tab, monkeypatch):
    tab = open_tab()
    compare(tab)
    open_page(tab, "History")
    tab.wait(tab.page.locator("#download").is_enabled, "Download enabled")
    monkeypatch.setattr(history_tab, "export", lambda *_: "")  # and not what is kept: the other lane's end may list that once more
    tab.page.locator("#download").click()
    tab.page.get_by_text(NOTHING).first.wait_for()


def test_what_is_ticked_while_a_comparison_is_listed_stays_ticked(open_tab, monkeypatch):
    tab = open_tab()
    compare(tab, "the first")
    open_page(tab, "History")
    boxes = tab.page.locator("#history input[type=checkbox]")
    tab.wait(lambda: boxes.count() == 1, "the first comparison")
    listed, labels = threading.Event(), Histories.labels
    monkeypatch.setattr(Histories, "labels", lambda *arguments: listed.wait(20) and labels(*arguments))
    open_page(tab, "One prompt")
    compare(tab, "the second")
    open_page(tab, "History")
    boxes.first.check()
    tab.page.locator("#pair .winners").wait_for()
    listed.set()
    tab.wait(lambda: boxes.count() == 2, "the second comparison")
    assert [boxes.nth(i).is_checked() for i in (0, 1)] == [False, True]
    tab.wait(lambda: "the first" in tab.page.locator("#pair").text_content(), "the first still shown")
