"""What stands on the page is seen whole, in headless Chromium over fake lanes: nothing stands before it, and no word of it is cut."""

from __future__ import annotations

import pytest

from inference.settings import Settings
from tests.support.browser_tab import LEFT, Tab
from tests.support.page_fixtures import FakeApp
from tests.support.tab_pages import compare
from ui.comparison.render import IDLE_WORDS

SEEN = """(part) => {
    const box = part.getClientRects()[0];
    return part.contains(document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2));
}"""


def scored(tab: Tab) -> None:
    """A comparison of long answers, and the same token by token, its text at the foot of a window."""
    tab.app.script(both={"tokens": 50, "say": "some words\n"})
    compare(tab)
    tab.page.locator("#fork-button:enabled").click()
    tab.page.locator(".fork-text").wait_for()
    tab.page.evaluate("scrollTo(0, scrollY + document.querySelector('.fork-text').getBoundingClientRect().top - innerHeight + 100)")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_panel_of_a_token_is_in_view_and_hides_neither_the_text_nor_what_was_chosen(open_tab, width):
    tab = open_tab()
    tab.page.set_viewport_size({"width": width, "height": 800})
    scored(tab)
    tokens = tab.page.locator(".fork-text [role=option]")
    assert tokens.first.evaluate(SEEN), "before one is chosen"
    tokens.nth(1).click()
    panel = tab.page.locator(".fork-panel")
    assert "token 2 of 50" in panel.inner_text().replace("\u2068", "").replace("\u2069", "")
    tab.wait(lambda: tokens.nth(1).evaluate(SEEN), "what was chosen is seen")
    box = panel.bounding_box()
    assert box["y"] + box["height"] <= 801, "and what it says is, too"


WORDS = (
    *IDLE_WORDS.values(),
    "Starting the lane's process",
    "Stopped before the first token",
    "Loading: reading weights",
    "Loading: restoring its weights (once)",
)


@pytest.mark.parametrize("words", WORDS)
def test_what_a_lane_is_at_is_read_whole_on_a_phone(tab, words):
    before = tab.page.viewport_size
    tab.page.set_viewport_size({"width": 390, "height": 844})
    try:
        cut = """(part, words) => {
            part.textContent = words;
            return part.scrollWidth > part.clientWidth || part.scrollHeight > part.clientHeight || part.parentElement.scrollHeight > part.parentElement.clientHeight;
        }"""
        assert not tab.page.locator(f"{LEFT} .phase").evaluate(cut, words)
    finally:
        tab.page.set_viewport_size(before)


CUT = "(parts) => parts.filter((part) => part.scrollWidth > part.clientWidth + 1).map((part) => part.textContent)"


@pytest.mark.parametrize("width", [720, 768, 1024, 1100, 1280])
def test_no_figure_loses_its_unit_however_narrow_the_window(tab, width):
    before = tab.page.viewport_size
    compare(tab)
    tab.page.set_viewport_size({"width": width, "height": 900})
    try:
        assert tab.page.locator(".tiles dd, .lane-head .where").evaluate_all(CUT) == []
    finally:
        tab.page.set_viewport_size(before)


@pytest.fixture(scope="module")
def three_lanes(tmp_path_factory):
    app = FakeApp(tmp_path_factory.mktemp("three") / "script.json", Settings(lanes=("cpu:nf4", "cuda:bf16", "cpu:fp32")))
    yield app
    app.close()


@pytest.mark.parametrize("width", [768, 1024, 1280])
def test_nor_does_it_among_three_lanes_nor_what_each_runs_on(open_tab, three_lanes, width):
    tab = open_tab(three_lanes)
    tab.page.set_viewport_size({"width": width, "height": 900})
    tab.type_and_click("hello")
    tab.page.locator(".board[data-state=done]").wait_for()
    assert tab.page.locator(".tiles dd, .lane-head .where, .lane-head h2").evaluate_all(CUT) == []


def test_paper_has_the_whole_answer_and_the_whole_table_in_dark_letters(open_tab):
    tab = open_tab()
    page = tab.page
    page.goto(f"{tab.app.url}/?__theme=dark")
    page.locator("#send").wait_for()
    tab.app.script(both={"tokens": 40, "say": "a line\n"})
    compare(tab)
    page.locator("#details > button").click()
    page.locator("#table table").wait_for()
    page.set_viewport_size({"width": 720, "height": 900})  # of a page of A4
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    for part in (f"{LEFT} .answer .panel-wrap", "#table", "#table code"):
        assert page.locator(part).first.evaluate("(part) => part.scrollHeight <= part.clientHeight + 1 && part.scrollWidth <= part.clientWidth + 1"), part
    assert page.locator("#table th").last.bounding_box()["x"] + page.locator("#table th").last.bounding_box()["width"] <= 720
    assert page.locator("#intro h1").evaluate("(part) => getComputedStyle(part).color.match(/\\d+/g).every((each) => each < 100)"), "dark"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.body.classList.contains('dark')")


def test_with_high_contrast_what_was_chosen_and_how_far_a_token_was_moved_are_seen(open_tab):
    tab = open_tab()
    tab.page.emulate_media(forced_colors="active")
    scored(tab)
    chosen = tab.page.locator(".fork-text [aria-selected=true]")
    assert "linear-gradient" in chosen.evaluate("(part) => getComputedStyle(part).backgroundImage")
    grounds = "(parts) => parts.map((part) => getComputedStyle(part).backgroundColor)"
    assert len(set(tab.page.locator(".fork-legend .swatch").evaluate_all(grounds))) >= 4
    assert len(set(tab.page.locator(".fork-text .token").evaluate_all(grounds))) >= 4


def test_on_a_phone_a_formatted_answer_has_one_bar_of_its_lane_and_how_far_a_lane_is_stands_under_what_it_is_at(open_tab):
    tab = open_tab()
    tab.page.set_viewport_size({"width": 390, "height": 844})
    compare(tab)
    tab.page.locator("#formatted").click()
    tab.page.locator(f"{LEFT} .formatted-text").wait_for()
    bars = tab.page.locator(f"{LEFT} .pretty").evaluate_all("(parts) => parts.map((part) => getComputedStyle(part).borderLeftWidth)")
    assert [width for width in bars if width != "0px"] == ["4px"]
    at, far = (tab.page.locator(f"{LEFT} .status {part}").bounding_box() for part in (".phase", ".clock"))
    assert abs(at["y"] + at["height"] - far["y"]) <= 2
