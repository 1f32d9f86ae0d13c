"""The page on low and narrow screens and with high contrast, in headless Chromium over fake lanes: all is within reach, and what is chosen is seen."""

from __future__ import annotations

import pytest

from tests.support.tab_pages import open_page

SCREENS = {"laptop": (1366, 657), "phone": (390, 844), "phone on its side": (844, 390), "zoomed twice": (640, 450)}


@pytest.mark.parametrize("screen", SCREENS)
def test_every_setting_is_within_reach(open_tab, screen):
    page = open_tab().page
    width, height = SCREENS[screen]
    page.set_viewport_size({"width": width, "height": height})
    page.locator("#settings-open").click()
    drawer = page.locator("#settings.open")
    drawer.wait_for()
    fields = drawer.locator("input:visible, textarea:visible")
    assert fields.count() == 9, "three numbers, five choices, the system prompt"
    for number in range(fields.count()):
        field = fields.nth(number)
        field.scroll_into_view_if_needed()
        seen = "(field) => { const box = field.getBoundingClientRect(); return field.contains(document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2)); }"
        page.wait_for_function(seen, arg=field.element_handle())
    assert drawer.evaluate("(part) => [...part.querySelectorAll('*')].every((each) => each.scrollWidth <= each.clientWidth + 1 || !each.clientWidth)")


def test_all_tabs_stand_on_the_line_of_a_small_phone(open_tab):
    page = open_tab().page
    page.set_viewport_size({"width": 360, "height": 740})
    page.reload()
    page.get_by_role("tab", name="Decide").wait_for()
    assert page.get_by_role("tab").count() == 4 and page.evaluate("document.documentElement.scrollWidth") <= 360


def test_with_high_contrast_what_is_chosen_is_seen_and_a_button_has_an_edge(open_tab):
    tab = open_tab()
    page = tab.page
    page.emulate_media(forced_colors="active")
    look = "(part, name) => getComputedStyle(part)[name]"
    open_page(tab, "Prompts file")
    page.locator("#series-run").wait_for()
    line = [page.get_by_role("tab", name=name).evaluate(look, "borderBottomWidth") for name in ("Prompts file", "Decide")]
    assert line[0] != line[1]
    radios = page.locator("#series-ask input[type=radio]")
    assert {radios.nth(number).evaluate(look, "appearance") for number in range(radios.count())} == {"auto"}, "drawn by the browser, with its dot"
    assert page.locator("#series-run").evaluate(look, "borderTopWidth") == "1px"
