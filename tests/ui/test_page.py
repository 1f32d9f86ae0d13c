"""The page in headless Chromium over fake lanes: asking, watching and stopping."""

from __future__ import annotations

import pytest

from tests.support.browser_tab import LEFT, RIGHT, Tab
from tests.support.page_fixtures import FakeApp
from tests.support.until import until

# ---- both lanes


def test_together_both_columns_grow_at_the_same_time(tab, fake_app):
    fake_app.script(both={"hold_at": 4})
    tab.choose("Together")
    tab.send()
    tab.wait(lambda: words(tab, LEFT) == words(tab, RIGHT) == 3, "three words in both")
    fake_app.script(both={"hold_at": 9})
    tab.wait(lambda: words(tab, LEFT) == words(tab, RIGHT) == 8, "both grown")
    assert tab.status(LEFT) == tab.status(RIGHT) == "Writing"
    fake_app.script()
    tab.wait_idle()
    assert tab.status(LEFT) == tab.status(RIGHT) == "Done"
    assert words(tab, LEFT) == words(tab, RIGHT) == 12


def test_in_turn_the_second_column_says_that_it_waits(tab, fake_app):
    fake_app.script(both={"hold_at": 4})
    tab.choose("In turn")
    tab.send()
    tab.wait(lambda: words(tab, LEFT) == 3, "left decodes")
    assert tab.status(RIGHT).startswith("Waiting for its turn")
    assert not tab.answer(RIGHT)
    fake_app.script(cpu_fp32={"hold_at": 4})
    tab.wait(lambda: words(tab, RIGHT) == 3, "right decodes")
    assert tab.status(LEFT) == "Done" and tab.verdict == "", "the verdict waits for both"
    fake_app.script()
    tab.wait(lambda: tab.verdict, "a verdict")
    assert "–" not in tab.page.locator(f"{RIGHT} .tiles").text_content()


def words(tab: Tab, lane: str) -> int:
    return len(tab.answer(lane).split())


@pytest.fixture
def open_scripted(open_tab, tmp_path):
    """Opens a page of its own, whose lanes follow a script from their start on."""
    apps: list[FakeApp] = []

    def open_one(script: str) -> Tab:
        (tmp_path / "script.json").write_text(script)
        apps.append(FakeApp(tmp_path / "script.json"))
        return open_tab(apps[-1])

    yield open_one
    for app in apps:
        app.close()


def test_the_column_names_the_loading_lane(open_scripted):
    tab = open_scripted('{"*": {"hello_s": 1.0, "load_s": 1.6}}')
    where = tab.page.locator(f"{LEFT} .where")
    assert tab.page.locator(f"{LEFT} h2").text_content() == "4-bit (NF4)" and where.text_content() == "starting"
    tab.wait(lambda: tab.status(LEFT) == "Loading: reading weights", "loading shown")
    assert where.text_content() == "CPU"
    assert "No CUDA device" in tab.small_print(LEFT)
    tab.wait(lambda: tab.status(LEFT) == "Ready", "ready shown")


def test_a_lane_that_never_comes_up_can_be_tried_again(open_scripted):
    tab = open_scripted('{"cpu:nf4": {"dies_at_start": true}}')
    again = tab.page.get_by_role("button", name="Try 4-bit NF4 again")
    again.wait_for()
    assert "exit code 3" in tab.sentence(LEFT) and tab.status(LEFT) == "Failed"
    tab.app.script()
    again.click()
    tab.wait(lambda: tab.status(LEFT) == "Ready", "ready after another try")
    assert not again.is_visible()


# ---- sending and stopping


def test_enter_sends_and_shift_enter_makes_a_line(tab, submitted):
    tab.prompt.fill("")
    tab.page.keyboard.type("one")
    tab.page.keyboard.press("Shift+Enter")
    tab.page.keyboard.type("two")
    assert tab.prompt.input_value() == "one\ntwo" and not submitted
    tab.page.keyboard.press("Enter")
    tab.wait(lambda: submitted, "a comparison")
    assert submitted[0].request.prompt == "one\ntwo"


def test_an_example_fills_the_prompt(tab):
    tab.page.get_by_text("ok i want two chicken biryani with couple of drinks").click()
    tab.wait(lambda: tab.prompt.input_value() == "ok i want two chicken biryani with couple of drinks", "the prompt filled")


def test_a_double_submit_makes_one_run_a_lane(tab, fake_app, submitted):
    fake_app.script(both={"hold_at": 4})
    tab.prompt.fill("a hasty prompt")
    tab.page.evaluate("""() => {
        const press = () => document.querySelector('#prompt textarea').dispatchEvent(new KeyboardEvent('keypress', {key: 'Enter', bubbles: true}));
        press(); document.querySelector('#send').click(); press();
    }""")
    tab.wait(lambda: words(tab, LEFT) == 3, "left decodes")
    assert tab.page.locator("#send").text_content().strip() == "Stop"
    tab.prompt.press("Enter")
    tab.wait(lambda: "still running" in tab.hint(), "a hint")
    fake_app.script()
    tab.wait_idle()
    assert len(submitted) == 1
    assert tab.status(LEFT) == tab.status(RIGHT) == "Done"


@pytest.mark.parametrize("prompt", ["", "  \n "])
def test_an_empty_prompt_gives_a_hint_and_no_run(tab, submitted, prompt):
    tab.type_and_click(prompt)
    tab.wait(lambda: "The prompt is empty" in tab.hint(), "a hint")
    assert not submitted and tab.page.locator("#send").text_content().strip() == "Send"
    tab.send()
    assert not tab.hint()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("temperature", "9", "Temperature must be from 0"),
        ("max_new_tokens", "", "must be a number"),
        ("seed", "9007199254740993", "a browser rounds larger ones"),
    ],
)
def test_a_bad_number_gives_a_sentence(tab, submitted, field, value, words):
    tab.choose(**{field: value})
    tab.type_and_click("hello")
    tab.wait(lambda: words in tab.hint(), "a hint")
    assert not submitted


def stopped_both(tab, fake_app, stop) -> None:
    fake_app.script(both={"token_s": 0.1, "tokens": 50})
    tab.choose("Together")
    tab.send()
    tab.wait(lambda: tab.answer(LEFT) and tab.answer(RIGHT), "both decode")
    tab.page.wait_for_timeout(600)  # a click so soon after Send counts as its second
    stop()
    tab.wait(lambda: tab.status(LEFT) == tab.status(RIGHT) == "Stopped", "both stopped", 1.5)
    assert tab.answer(LEFT) and tab.answer(RIGHT), "the text so far is kept"
    tab.wait_idle()


def test_send_is_stop_while_a_comparison_runs(tab, fake_app):
    stopped_both(tab, fake_app, tab.page.locator("#send").click)


def test_escape_stops(tab, fake_app):
    stopped_both(tab, fake_app, lambda: tab.page.keyboard.press("Escape"))


def test_escape_that_closes_a_list_or_ends_a_composition_stops_nothing(tab, fake_app):
    fake_app.script(both={"hold_at": 4})
    tab.send()
    tab.wait(lambda: tab.status(LEFT) == "Writing", "left writes")
    escape = "(field) => field.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true, isComposing: true}))"
    tab.prompt.evaluate(escape)
    tab.page.locator("#model > button").click()
    tab.page.locator("#model-name input").click()
    tab.page.locator("#model-name ul").wait_for()
    tab.page.keyboard.press("Escape")
    tab.page.locator("#model > button").click()
    fake_app.script()
    tab.wait_idle()
    assert tab.status(LEFT) == tab.status(RIGHT) == "Done"


def test_the_second_click_of_a_double_click_on_stop_asks_nothing(tab, fake_app, submitted):
    fake_app.script(both={"hold_at": 4})
    tab.send()
    tab.wait(lambda: tab.status(LEFT) == "Writing", "left writes")
    tab.page.wait_for_timeout(600)
    tab.page.locator("#send").dblclick(delay=50)
    tab.wait_idle()
    tab.page.wait_for_timeout(300)
    assert tab.status(LEFT) == "Stopped" and len(submitted) == 1


def test_a_copy_button_that_is_clicked_twice_gets_its_words_back(tab):
    tab.send()
    tab.wait_idle()
    button = tab.page.locator(".board-copy button").first
    words = button.text_content()
    button.click()
    tab.wait(lambda: button.text_content() != words, "said on the button")
    button.click()
    tab.wait(lambda: button.text_content() == words, "the first again")
    tab.page.wait_for_timeout(1600)
    assert button.text_content() == words == "Copy"


def test_the_second_click_of_a_double_click_stops_nothing(tab, fake_app):
    fake_app.script(both={"hold_at": 4})
    tab.prompt.fill("a double click")
    tab.page.locator("#send").dblclick()
    tab.wait(lambda: tab.status(LEFT) == "Writing", "left writes")
    fake_app.script()
    tab.wait_idle()
    assert tab.status(LEFT) == tab.status(RIGHT) == "Done"


@pytest.mark.parametrize(("name", "stopped", "other"), [("Stop 4-bit NF4", LEFT, RIGHT), ("Stop FP32", RIGHT, LEFT)])
def test_stop_in_one_column_leaves_the_other_alone(tab, fake_app, name, stopped, other):
    fake_app.script(both={"hold_at": 4})
    tab.choose("Together")
    tab.send()
    tab.wait(lambda: tab.answer(LEFT) and tab.answer(RIGHT), "both decode")
    tab.page.get_by_role("button", name=name).click()
    tab.wait(lambda: tab.status(stopped) == "Stopped", "stopped")
    assert tab.status(other) == "Writing"
    fake_app.script()
    tab.wait_idle()
    assert tab.status(other) == "Done"


def test_a_run_that_waits_for_its_turn_can_be_stopped(tab, fake_app):
    fake_app.script(both={"hold_at": 4})
    tab.send()
    tab.wait(lambda: tab.status(LEFT) == "Writing", "left decodes")
    tab.page.get_by_role("button", name="Stop FP32").click()
    tab.wait(lambda: tab.status(RIGHT) == "Stopped before the first token", "stopped")
    fake_app.script()
    tab.wait_idle()
    assert tab.status(LEFT) == "Done"


def test_closing_the_tab_stops_its_runs(open_tab, fake_app):
    fake_app.script(both={"hold_at": 4})
    tab = open_tab()
    tab.send()
    tab.wait(lambda: tab.answer(LEFT), "left decodes")
    tab.page.close()
    until(lambda: not any(lane.state == "busy" or lane.waiting for lane in fake_app.engine.status()), 5, "lanes at rest")


def test_a_second_visitor_is_told_to_wait(tab, open_tab, fake_app):
    fake_app.script(both={"hold_at": 4})
    second = open_tab()
    tab.send()
    tab.wait(lambda: tab.answer(LEFT), "left decodes")
    second.send()
    second.wait(lambda: second.status(LEFT).startswith("Waiting behind"), "the second visitor waits")
    fake_app.script()
    tab.wait_idle()
    second.wait_idle()
    assert second.status(LEFT) == second.status(RIGHT) == "Done" == tab.status(RIGHT)
