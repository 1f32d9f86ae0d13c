"""The page under the answers, in headless Chromium over fake lanes: the race and the rows, and everything else behind Details."""

from __future__ import annotations

import subprocess
import sys

from inference.host.child import ROOT
from tests.support.browser_tab import LEFT, Tab


def rows(tab: Tab) -> dict[str, list[str]]:
    """The key rows, by title."""
    shown = tab.page.locator("#measured tbody tr").all()
    return {row.locator("th").text_content(): row.locator("td .value, td:not(:has(.value))").all_text_contents() for row in shown}


def test_after_a_comparison_the_page_shows_the_race_and_six_rows_and_the_rest_behind_details(open_tab):
    tab = open_tab()
    assert not tab.page.locator("#measured").is_visible() and not tab.page.locator("#details").is_visible()
    tab.send()
    tab.page.locator("#measured table").wait_for()
    assert list(rows(tab)) == ["Writing speed", "First word", "Total", "Memory", "Size", "Quality"]
    tiles = tab.page.locator(f"{LEFT} .tiles dd").all_text_contents()
    assert [rows(tab)[title][0] for title in ("First word", "Writing speed", "Total", "Size")] == tiles, "the same numbers as on the card"
    assert tab.page.locator("#measured .race li").count() == 2 and "for 12 tokens, first after" in tab.page.locator(".race-words").first.text_content()
    assert not tab.page.locator("#table").is_visible()
    tab.page.locator("#details button").first.click()
    tab.page.locator("#table table").wait_for()
    table = tab.page.locator("#table").text_content()
    for row in ("Code to load", "Startup time", "n/a (this lane uses no GPU)", "not measured", "python -m inference quality"):
        assert row in table, row
    assert "times" in tab.page.locator("#summary").text_content()
    tab.page.locator("#code").get_by_text("python -m inference").first.wait_for()  # Gradio draws code later than the rest


def test_what_was_measured_is_gone_while_the_next_prompt_is_answered(tab, fake_app):
    tab.send()
    tab.page.locator("#measured table").wait_for()
    fake_app.script(both={"hold_at": 4})
    tab.wait_idle()
    tab.send()
    tab.wait(lambda: tab.answer(LEFT), "left writes")
    assert not tab.page.locator("#measured table").count() and not tab.page.locator("#details").is_visible()
    fake_app.script()
    tab.page.locator("#measured table").wait_for()


def test_a_label_opens_its_definition_and_escape_closes_it(tab):
    tab.page.locator(f"{LEFT} .tiles .about").first.click()
    told = tab.page.locator("#about-ttft")
    assert told.is_visible() and "until its first token" in told.text_content()
    tab.page.keyboard.press("Escape")
    assert not told.is_visible()


def test_the_pages_process_imports_no_torch_even_for_its_results():
    look = (
        "import app, sys; sys.path.insert(0, 'tests'); from tests.support.records import record_of, ended; from ui.comparison import board, chart; "
        "from inference.record.export import export; r = record_of(cpu_nf4=ended(5), cpu_fp32=ended(10)); board.board(r); chart.measured(r); "
        "export([r], 'markdown'); print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "False"], done.stderr
