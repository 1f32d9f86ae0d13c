"""Copying where a browser gives a page no clipboard, in headless Chromium over fake lanes: over plain http from another machine, or without leave."""

from __future__ import annotations

import pytest

from tests.support.browser_tab import LEFT
from tests.support.tab_pages import compare

NONE_AT_ALL = "Object.defineProperty(Navigator.prototype, 'clipboard', {get: () => undefined, configurable: true});"
NO_LEAVE = "Clipboard.prototype.writeText = () => Promise.reject(new DOMException('no leave', 'NotAllowedError'));"


@pytest.mark.parametrize("way", [NONE_AT_ALL, NO_LEAVE], ids=["no clipboard", "no leave"])
def test_an_answer_and_a_link_are_copied_without_the_browser_s_clipboard(open_tab, way):
    tab = open_tab()
    tab.page.add_init_script(way)
    tab.open()
    compare(tab, "copied")
    button = tab.page.locator(f"{LEFT} [data-copy-answer]")
    button.click()
    tab.wait(lambda: button.text_content() == "Copied", "it is said")
    assert button.evaluate("(button) => button === document.activeElement"), "the focus is where it was"
    tab.prompt.fill("")
    tab.prompt.press("Control+V")
    assert tab.prompt.input_value() == tab.answer(LEFT)
    tab.prompt.fill("a link")
    tab.page.locator("#copy-link").click()
    tab.wait(lambda: tab.page.locator("#copy-link").text_content() == "Copied", "it is said")
    tab.prompt.press("Control+A")
    tab.prompt.press("Control+V")
    assert tab.prompt.input_value() == f"{tab.app.url}/?prompt=a%20link"
