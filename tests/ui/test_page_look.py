"""What a visitor sees of the first tab in headless Chromium over fake lanes: places and sizes, scrolling, keys, copying, directions, and what a reload would lose."""

from __future__ import annotations

import pytest

from tests.support.browser_tab import LEFT, RIGHT, Tab

DESKTOP, WIDE, PHONE = (1280, 900), (1920, 1000), (390, 844)
DONE = ".board[data-state=done]"


@pytest.fixture
def sized(tab):
    """Gives the shared tab another size, and its own back."""
    before = tab.page.viewport_size

    def size(width: int, height: int) -> None:
        tab.page.set_viewport_size({"width": width, "height": height})
        tab.page.evaluate("scrollTo(0, 0)")

    yield size
    tab.page.set_viewport_size(before)


def box(tab: Tab, selector: str) -> dict[str, float]:
    return tab.page.locator(selector).first.bounding_box()


def style(tab: Tab, selector: str, name: str) -> str:
    return tab.page.locator(selector).first.evaluate("(part, name) => getComputedStyle(part)[name]", name)


def focused(tab: Tab, selector: str) -> bool:
    return tab.page.evaluate("(selector) => !!document.activeElement?.closest(selector)", selector)


def finish(tab: Tab, prompt: str = "") -> None:
    tab.send(prompt)
    tab.wait(lambda: tab.page.locator(DONE).count() and tab.wait_idle() is None, "the end")


# ---- places and sizes


def test_who_won_stands_in_the_first_screen(tab, sized):
    sized(*DESKTOP)
    finish(tab)
    place = box(tab, ".board")
    assert place["y"] >= 0 and place["y"] + place["height"] < DESKTOP[1]


def test_on_a_phone_both_lanes_figures_are_in_view_after_send(tab, sized, fake_app):
    sized(*PHONE)
    fake_app.script(both={"hold_at": 4})
    tab.send()
    tab.wait(lambda: tab.answer(LEFT), "left writes")

    def in_view() -> bool:
        tops = [box(tab, f"{lane} .block.top") for lane in (LEFT, RIGHT)]
        return all(top["y"] >= 0 and top["y"] + top["height"] <= PHONE[1] for top in tops)

    tab.wait(in_view, "both lanes' figures in view")
    fake_app.script()


def test_the_page_is_centred_on_a_wide_screen(tab, sized):
    sized(*WIDE)
    main = box(tab, "main")
    assert abs(main["x"] - (tab.page.evaluate("document.documentElement.clientWidth") - main["x"] - main["width"])) < 2 and main["width"] > 1200


def test_no_letter_is_smaller_than_12_pixels_and_a_field_is_16(tab):
    finish(tab)
    smallest = """() => Math.min(...[...document.querySelectorAll('main *')].filter((part) => part.offsetParent && [...part.childNodes].some(
        (child) => child.nodeType === 3 && child.textContent.trim())).map((part) => parseFloat(getComputedStyle(part).fontSize)))"""
    assert tab.page.evaluate(smallest) >= 12 and style(tab, "#prompt textarea", "fontSize") == "16px"


def test_in_the_first_comparison_no_empty_results_are_shown(open_tab, fake_app):
    fake_app.script(both={"hold_at": 4})
    tab = open_tab()
    tab.send()
    tab.wait(lambda: tab.answer(LEFT), "left writes")
    assert not tab.page.locator("#details").is_visible() and not tab.page.locator("#measured table").count()
    fake_app.script()
    tab.page.locator("#measured table").wait_for()
    tab.page.locator("#details").wait_for()


def test_figures_fill_while_an_answer_is_written(tab, fake_app):
    fake_app.script(both={"hold_at": 4})
    tab.send()
    figures = tab.page.locator(f"{LEFT} .tiles dd")
    tab.wait(lambda: "tok/s" in figures.nth(1).text_content(), "the speed so far")
    assert tab.status(LEFT) == "Writing" and "s" in figures.nth(0).text_content()
    fake_app.script()
    tab.wait_idle()


# ---- an answer


SCROLLER = f"""() => {{
    const found = [...document.querySelectorAll('{LEFT} .answer *')].find((part) => part.scrollHeight > part.clientHeight + 1 && getComputedStyle(part).overflowY === 'auto');
    const box = found?.getBoundingClientRect(), text = document.querySelector('{LEFT} .message-content').getBoundingClientRect();
    return found && {{x: box.x + box.width / 2, y: box.y + box.height / 2, above: box.top - text.top, below: text.bottom - box.bottom, high: text.height, top: found.scrollTop}};
}}"""


def test_an_answer_follows_its_last_line_and_stays_where_a_reader_scrolled_to(tab, fake_app):
    long = {"tokens": 1200, "token_s": 0.001, "chunk": 5}
    fake_app.script(both={**long, "hold_at": 400})
    tab.choose("Together", max_new_tokens="1200")
    tab.send()
    tab.wait(lambda: len(tab.answer(LEFT).split()) >= 390, "a long answer")
    tab.page.locator(f"{LEFT} .answer").scroll_into_view_if_needed()
    seen = tab.page.evaluate(SCROLLER)
    assert seen["below"] < 20 < seen["above"], "at the last line"
    tab.page.mouse.move(seen["x"], seen["y"])
    tab.page.mouse.wheel(0, -120)
    tab.wait(lambda: tab.page.evaluate(SCROLLER)["below"] > 60, "scrolled up")
    before = tab.page.evaluate(SCROLLER)
    fake_app.script(both={**long, "hold_at": 800})
    tab.wait(lambda: len(tab.answer(LEFT).split()) >= 790, "a longer one")
    after = tab.page.evaluate(SCROLLER)
    assert after["high"] > before["high"] + 100 and abs(after["above"] - before["above"]) < 3, (before, after)
    tab.page.mouse.wheel(0, 10_000)
    tab.wait(lambda: abs(tab.page.evaluate(SCROLLER)["top"]) < 1, "back at the last line")
    fake_app.script(both=long)
    tab.wait_idle()
    assert tab.page.evaluate(SCROLLER)["below"] < 20


def test_a_right_to_left_answer_begins_at_the_right(tab, fake_app):
    fake_app.script(both={"say": "שלום עולם. ", "tokens": 2})
    finish(tab, "مرحبا")
    edges = """(part) => { const range = document.createRange(); range.selectNodeContents(part);
        const text = range.getClientRects()[0], box = part.getBoundingClientRect(); return [text.left - box.left, box.right - text.right]; }"""
    left, right = tab.page.locator(f"{LEFT} .message-content").evaluate(edges)
    assert right < 20 < left
    assert tab.page.locator(".board .asked bdi").evaluate("(part) => part.matches(':dir(rtl)')")


def test_a_bar_keeps_its_colour_with_high_contrast(tab):
    finish(tab)
    bar = tab.page.locator(".race .bar").first
    colour = "(part) => getComputedStyle(part).backgroundColor"
    before = bar.evaluate(colour)
    tab.page.emulate_media(forced_colors="active")
    high_contrast = bar.evaluate(colour)
    tab.page.emulate_media(forced_colors="none")
    assert high_contrast == before


def test_print_leaves_out_what_is_to_be_pressed(tab):
    tab.page.emulate_media(media="print")
    seen = [part for part in ("#ask", ".lane-buttons", "#fork-button", "footer") if tab.page.locator(part).first.is_visible()]
    tab.page.emulate_media(media="screen")
    assert seen == []


def test_a_formatted_answer_is_gone_when_the_next_prompt_is_sent(tab, fake_app):
    tab.send()
    tab.wait_idle()
    tab.page.locator("#formatted").click()
    tab.page.locator(f"{LEFT} .formatted-text").wait_for()
    fake_app.script(both={"hold_at": 3})
    tab.send()
    tab.wait(lambda: tab.status(LEFT) == "Writing", "left writes")
    assert tab.page.locator(".formatted-text").count() == 0 and tab.page.locator(f"{LEFT} .answer").is_visible()
    fake_app.script()
    tab.wait_idle()
    tab.page.locator(f"{LEFT} .formatted-text").wait_for()
    tab.page.locator("#formatted").click()


def test_answers_are_raw_until_formatted_is_pressed_and_then_code_is_in_monospace(tab, fake_app):
    fake_app.script(both={"say": "Use **this**:\n```python\ndef f():\n    return 1\n```\n", "tokens": 1})
    finish(tab)
    assert tab.answer(LEFT).startswith("Use **this**:\n```") and not tab.page.locator(f"{LEFT} .block.pretty").is_visible()
    tab.page.locator("#formatted").click()
    code = f"{LEFT} .pretty pre code"
    assert tab.page.locator(code).is_visible() and not tab.page.locator(f"{LEFT} .answer").is_visible()
    assert tab.page.locator(code).text_content() == "def f():\n    return 1\n" and "mono" in style(tab, code, "fontFamily")
    assert tab.page.locator(f"{LEFT} .pretty strong").text_content() == "this"
    tab.page.locator("#formatted").click()
    assert tab.page.locator(f"{LEFT} .answer").is_visible()


def test_an_answer_and_the_scoreboard_are_copied(tab):
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    finish(tab, 'copied with "quotes" & ${signs}')
    pasted = "navigator.clipboard.readText()"
    tab.page.locator(f"{RIGHT} [data-copy-answer]").click()
    tab.wait(lambda: tab.page.evaluate(pasted) == tab.answer(RIGHT), "the answer")
    tab.page.get_by_role("button", name="Copy", exact=True).click()
    tab.wait(lambda: 'Asked: copied with "quotes" & ${signs}\n' in tab.page.evaluate(pasted), "the scoreboard")
    tab.page.get_by_role("button", name="Copy as Markdown").click()
    tab.wait(lambda: "| **Writing speed** |" in tab.page.evaluate(pasted), "the scoreboard as Markdown")


# ---- keys


def test_the_drawer_opens_takes_the_focus_and_gives_it_back(tab):
    tab.page.locator("#settings-open").focus()
    tab.page.keyboard.press("Enter")
    tab.wait(lambda: focused(tab, "#settings"), "focus in the drawer")
    opener = tab.page.locator("#settings-open")
    assert opener.get_attribute("aria-expanded") == "true"
    tab.page.keyboard.press("Escape")
    tab.wait(lambda: focused(tab, "#settings-open") and not tab.page.locator("#settings").is_visible(), "closed, focus on its button")
    assert opener.get_attribute("aria-expanded") == "false"
    for _ in range(12):
        tab.page.keyboard.press("Tab")
        assert not focused(tab, "#settings"), "a closed drawer is in nobody's way"


def press_tab_to(tab: Tab, selector: str, most: int = 60) -> None:
    for _ in range(most):
        if focused(tab, selector):
            return
        tab.page.keyboard.press("Tab")
    raise AssertionError(f"{selector} is not reached by Tab")


def test_a_whole_comparison_by_keyboard_alone(open_tab, fake_app, submitted):
    fake_app.script(both={"hold_at": 4})
    tab = open_tab()
    tab.page.evaluate("document.activeElement?.blur()")
    press_tab_to(tab, "#prompt textarea")
    tab.page.keyboard.type("by hand")
    tab.page.keyboard.press("Enter")
    tab.wait(lambda: tab.answer(LEFT), "left writes")
    tab.page.keyboard.press("Escape")
    tab.wait_idle()
    assert tab.status(LEFT) == "Stopped"
    fake_app.script()
    tab.wait(lambda: tab.page.locator("#again").is_enabled(), "Run again")
    press_tab_to(tab, "#again")
    tab.page.keyboard.press("Enter")
    tab.wait(lambda: tab.status(LEFT) == tab.status(RIGHT) == "Done", "the second run")
    assert [comparison.request.prompt for comparison in submitted] == ["by hand", "by hand"]


def test_a_chosen_radio_keeps_its_dot_under_the_pointer(tab):
    tab.page.locator("#settings-open").click()
    radio = tab.page.locator("#settings input[type=radio]:checked").first
    tab.wait(radio.is_visible, "the drawer")
    colour = "(part) => getComputedStyle(part).backgroundColor"
    before = radio.evaluate(colour)
    radio.hover()
    tab.page.wait_for_timeout(200)
    assert radio.evaluate(colour) == before != "rgb(255, 255, 255)"
    tab.page.keyboard.press("Escape")


# ---- what is kept


def test_the_prompt_is_kept_after_a_refusal_and_after_an_error(tab, fake_app):
    fake_app.script(both={"fails_on": "doomed"})
    finish(tab, "doomed prompt")
    assert tab.status(LEFT) == tab.status(RIGHT) == "Failed" and tab.prompt.input_value() == "doomed prompt"
    tab.choose(temperature="9")
    tab.type_and_click("refused prompt")
    tab.wait(tab.hint, "a hint")
    assert tab.prompt.input_value() == "refused prompt"


def test_a_reload_asks_first_where_it_would_lose_a_run_or_the_history(open_tab, fake_app):
    asked: list[str] = []
    tab = open_tab()
    tab.page.on("dialog", lambda dialog: asked.append(dialog.type) or dialog.accept())
    tab.prompt.click()
    tab.open()
    assert asked == [], "nothing to lose"
    fake_app.script(both={"hold_at": 4})
    tab.send()
    tab.wait(lambda: tab.answer(LEFT), "left writes")
    tab.open()
    assert asked == ["beforeunload"], "a run"
    fake_app.script()
    finish(tab)
    tab.open()
    assert asked == ["beforeunload"] * 2, "the history"
    tab.errors.clear()  # of requests that the page which was left had under way
