"""The page on low and narrow screens and with high contrast, in headless Chromium over fake lanes: all is within reach, and what is chosen is seen."""

from __future__ import annotations

import pytest

from tests.support.tab_pages import compare, open_page

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


CONTRAST = """(part) => {
    const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (colour) => colour.slice(0, 3).map((part) => part / 255).map((part) => part < 0.04 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
    let under = part;
    while (under.parentElement && numbers(getComputedStyle(under).backgroundColor)[3] === 0) under = under.parentElement;
    const [low, high] = [getComputedStyle(part).color, getComputedStyle(under).backgroundColor].map((each) => light(numbers(each)) + 0.05).sort((a, b) => a - b);
    return high / low;
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_chosen_tab_and_the_letters_of_a_pair_are_read_on_their_ground(open_tab, theme):
    tab = open_tab()
    tab.page.goto(f"{tab.app.url}/?__theme={theme}")
    tab.page.locator("#send").wait_for()
    compare(tab), compare(tab)
    open_page(tab, "History")
    boxes = tab.page.locator("#history input")
    tab.wait(lambda: boxes.count() == 2, "both listed")
    boxes.nth(0).check(), boxes.nth(1).check()
    tab.page.locator("#pair .letter").first.wait_for()
    tab.page.mouse.move(0, 0)
    tab.page.wait_for_timeout(300)  # colours fade in
    found = {part: tab.page.locator(part).first.evaluate(CONTRAST) for part in ("[role=tab][aria-selected=true]", "#pair .letter")}
    assert min(found.values()) >= 4.5, found


@pytest.mark.parametrize("width", [1280, 390])
def test_wide_letters_push_no_button_out_of_reach(open_tab, width):
    page = open_tab().page
    page.set_viewport_size({"width": width, "height": 844})
    page.add_style_tag(content="* { letter-spacing: 0.12em !important; word-spacing: 0.16em !important; }")
    link, settings = (page.locator(button).bounding_box() for button in ("#copy-link", "#settings-open"))
    assert link["y"] == settings["y"] and settings["x"] + settings["width"] <= width
    page.locator("#settings-open").click()
    page.locator("#settings.open").wait_for()
