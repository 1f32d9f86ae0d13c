"""The page in headless Chromium over fake lanes: what a person sees and can do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from page_fixtures import FakeApp, until

LEFT, RIGHT = "#lane-auto-nf4", "#lane-cpu-fp32"


class Tab:
    """A tab on the page, driven by what a person does there."""

    def __init__(self, page, app: FakeApp) -> None:
        self.page, self.app, self.errors = page, app, []
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.numbers, self.changed = itertools.count(1), False
        page.set_default_timeout(8000)
        self.open()

    def open(self) -> None:
        with self.page.expect_response("**/run/predict*"):  # the load event
            self.page.goto(self.app.url)
        self.page.locator("#send").wait_for()

    @property
    def prompt(self):
        return self.page.locator("#prompt textarea")

    @property
    def verdict(self) -> str:
        return (self.page.locator("#verdict").text_content() or "").strip()

    def status(self, lane: str) -> str:
        return self.page.locator(f"{lane} .phase").text_content()

    def answer(self, lane: str) -> str:
        shown = self.page.locator(f"{lane} [data-testid=bot] .message-content")
        return shown.text_content() if shown.count() else ""

    def hint(self) -> str:
        shown = self.page.locator("#hint [role=alert]")
        return shown.text_content() if shown.count() else ""

    def choose(self, *names: str, **numbers: str) -> None:
        self.changed = True
        self.page.get_by_role("button", name="Settings").click()
        for name in names:
            self.page.get_by_label(name, exact=True).check()
        for label, value in numbers.items():
            self.page.get_by_label(label.replace("_", " ").capitalize()).fill(value)

    def type_and_click(self, prompt: str) -> None:
        self.prompt.fill(prompt)
        self.page.get_by_role("button", name="Send").click()

    def send(self, prompt: str = "") -> None:
        """Send a prompt that is accepted; returns when both columns show it, so that nothing seen is of an earlier one."""
        prompt = prompt or f"hello good morning {next(self.numbers)}"
        self.type_and_click(prompt)
        asked = [self.page.locator(f"{lane} [data-testid=user]") for lane in (LEFT, RIGHT)]
        self.wait(lambda: all(shown.count() and shown.text_content() == prompt for shown in asked), "the prompt in both columns")

    def wait(self, condition: Callable[[], object], what: str = "", timeout_s: float = 10.0) -> None:
        for _ in range(int(timeout_s / 0.03)):
            if condition():
                return
            self.page.wait_for_timeout(30)
        raise AssertionError(f"not within {timeout_s} s: {what}; left {self.status(LEFT)!r}, right {self.status(RIGHT)!r}, hint {self.hint()!r}")

    def wait_idle(self) -> None:
        self.wait(self.page.locator("#send").is_enabled, "Send enabled again")


@pytest.fixture(scope="session")
def shared_tab(browser, shared_app) -> Tab:
    return Tab(browser.new_page(), shared_app)


@pytest.fixture
def tab(shared_tab, fake_app) -> Iterator[Tab]:
    """One visitor's tab, kept from test to test, opened anew where its settings were changed; it may log no error."""
    if shared_tab.changed:
        shared_tab.changed = False
        shared_tab.open()
    shared_tab.wait_idle()
    shared_tab.errors.clear()
    yield shared_tab
    assert shared_tab.errors == []


@pytest.fixture
def open_tab(browser, fake_app) -> Iterator[Callable[..., Tab]]:
    """Opens tabs, each a visitor of its own, which may log no error either."""
    tabs: list[Tab] = []

    def open_one(app: FakeApp = fake_app) -> Tab:
        tabs.append(Tab(browser.new_page(), app))
        return tabs[-1]

    yield open_one
    for tab in tabs:
        tab.page.close()
    assert [error for tab in tabs for error in tab.errors] == []


@pytest.fixture
def submitted(fake_app, monkeypatch) -> list:
    """The comparisons that reach the engine."""
    found, submit = [], fake_app.engine.submit
    monkeypatch.setattr(fake_app.engine, "submit", lambda *args, **more: found.append(submit(*args, **more)) or found[-1])
    return found


# ---- both lanes


def test_together_both_columns_grow_at_the_same_time(tab, fake_app):
    fake_app.script(both={"hold_at": 4})
    tab.choose("Together")
    tab.send()
    tab.wait(lambda: words(tab, LEFT) == words(tab, RIGHT) == 3, "three words in both")
    fake_app.script(both={"hold_at": 9})
    tab.wait(lambda: words(tab, LEFT) == words(tab, RIGHT) == 8, "both grown")
    assert tab.status(LEFT) == tab.status(RIGHT) == "Decoding"
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
    assert "n/a" not in tab.page.locator(f"{RIGHT} .tiles").text_content()


def words(tab: Tab, lane: str) -> int:
    return len(tab.answer(lane).split())


def test_the_column_names_the_loading_lane(open_tab, tmp_path):
    script = tmp_path / "script.json"
    script.write_text('{"*": {"hello_s": 1.0, "load_s": 1.6}}')
    app = FakeApp(script)
    try:
        tab = open_tab(app)
        title = tab.page.locator(f"{LEFT} h2")
        assert title.text_content() == "4-bit NF4 · starting"
        tab.wait(lambda: tab.status(LEFT) == "Loading: reading weights", "loading shown")
        assert title.text_content() == "4-bit NF4 · CPU"
        assert "No CUDA device" in tab.page.locator(f"{LEFT} .lane-notes").text_content()
        tab.wait(lambda: tab.status(LEFT) == "Ready.", "ready shown")
    finally:
        app.close()


def test_a_lane_that_never_comes_up_can_be_tried_again(open_tab, tmp_path):
    script = tmp_path / "script.json"
    script.write_text('{"cpu:nf4": {"dies_at_start": true}}')
    app = FakeApp(script)
    try:
        tab = open_tab(app)
        again = tab.page.get_by_role("button", name="Try 4-bit NF4 again")
        again.wait_for()
        assert "exit code 3" in tab.status(LEFT)
        app.script()
        again.click()
        tab.wait(lambda: tab.status(LEFT) == "Ready.", "ready after another try")
        assert not again.is_visible()
    finally:
        app.close()


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
    assert tab.page.locator("#send").is_disabled()
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
    assert not submitted and tab.page.locator("#send").is_enabled()
    tab.send()
    assert not tab.hint()


@pytest.mark.parametrize(("field", "value", "words"), [("temperature", "9", "Temperature must be from 0"), ("max_new_tokens", "", "must be a number")])
def test_a_bad_number_gives_a_sentence(tab, submitted, field, value, words):
    tab.choose(**{field: value})
    tab.type_and_click("hello")
    tab.wait(lambda: words in tab.hint(), "a hint")
    assert not submitted


def test_stop_both_ends_both_runs_soon(tab, fake_app):
    fake_app.script(both={"token_s": 0.1, "tokens": 50})
    tab.choose("Together")
    tab.send()
    tab.wait(lambda: tab.answer(LEFT) and tab.answer(RIGHT), "both decode")
    tab.page.get_by_role("button", name="Stop both").click()
    tab.wait(lambda: tab.status(LEFT) == tab.status(RIGHT) == "Stopped", "both stopped", 1.5)
    assert tab.answer(LEFT) and tab.answer(RIGHT), "the text so far is kept"
    tab.wait_idle()
    assert tab.page.get_by_role("button", name="Stop both").is_disabled()


@pytest.mark.parametrize(("name", "stopped", "other"), [("Stop 4-bit NF4", LEFT, RIGHT), ("Stop FP32", RIGHT, LEFT)])
def test_stop_in_one_column_leaves_the_other_alone(tab, fake_app, name, stopped, other):
    fake_app.script(both={"hold_at": 4})
    tab.choose("Together")
    tab.send()
    tab.wait(lambda: tab.answer(LEFT) and tab.answer(RIGHT), "both decode")
    tab.page.get_by_role("button", name=name).click()
    tab.wait(lambda: tab.status(stopped) == "Stopped", "stopped")
    assert tab.status(other) == "Decoding"
    fake_app.script()
    tab.wait_idle()
    assert tab.status(other) == "Done"


def test_a_run_that_waits_for_its_turn_can_be_stopped(tab, fake_app):
    fake_app.script(both={"hold_at": 4})
    tab.send()
    tab.wait(lambda: tab.status(LEFT) == "Decoding", "left decodes")
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


# ---- faults


def test_a_failing_lane_tells_its_sentence_and_the_other_completes(tab, fake_app):
    fake_app.script(cpu_nf4={"fail_at": 4}, cpu_fp32={"tokens": 12})
    tab.send()
    tab.wait_idle()
    assert tab.status(LEFT) == "The scripted lane failed here. Ask again."
    assert tab.answer(LEFT).startswith("We have chicken"), "the text so far is kept"
    assert tab.status(RIGHT) == "Done"
    tab.wait(lambda: tab.verdict, "a verdict")
    fake_app.script()
    tab.send()
    tab.wait(lambda: tab.status(LEFT) == tab.status(RIGHT) == "Done", "the next prompt works")


@pytest.mark.parametrize(("lane", "column", "other"), [("cpu_nf4", LEFT, RIGHT), ("cpu_fp32", RIGHT, LEFT)])
def test_a_killed_lane_is_told_and_the_next_prompt_works(tab, fake_app, lane, column, other):
    fake_app.script(**{lane: {"die_at": 4}})
    tab.send()
    tab.wait_idle()
    assert "was killed (signal 9)" in tab.status(column)
    assert tab.answer(column).startswith("We have chicken")
    assert tab.status(other) == "Done"
    fake_app.script()
    tab.send()
    tab.wait(lambda: tab.status(LEFT) == tab.status(RIGHT) == "Done", "the next prompt works")


@pytest.mark.parametrize("said", ["<pad>", "  \n"])
def test_an_answer_without_text_is_a_fault_and_no_blank_box(tab, fake_app, said):
    fake_app.script(cpu_nf4={"say": said, "tokens": 5})
    tab.send()
    tab.wait_idle()
    assert tab.status(LEFT) == "No text produced."
    assert tab.answer(LEFT).startswith("No text produced.")
    assert "failed: no text produced" in tab.page.locator(f"{LEFT} .chips").text_content()
    assert tab.status(RIGHT) == "Done"


# ---- text and looks


HOSTILE = '${alert(1)}${window.ran=1} <script>window.ran=1</script><img src=x onerror="window.ran=1"> $$x^2$$ &amp; **b** {{value}}'


def test_hostile_text_is_shown_and_does_not_run(tab, fake_app):
    dialogs = []
    tab.page.on("dialog", lambda dialog: dialogs.append(dialog.message) or dialog.dismiss())
    fake_app.script(both={"say": HOSTILE, "tokens": 1})
    tab.send(HOSTILE)
    tab.wait_idle()
    assert tab.answer(LEFT) == tab.answer(RIGHT) == HOSTILE
    assert tab.page.locator(f"{LEFT} [data-testid=user]").text_content() == HOSTILE
    assert tab.page.evaluate("window.ran") is None and dialogs == []


def test_white_space_and_emoji_arrive_whole(tab, fake_app):
    text = "    indented\n\n\tdef f():\n        return 1  \n👨‍👩‍👧 한국어  "
    fake_app.script(both={"say": text, "tokens": 1})
    tab.send()
    tab.wait_idle()
    assert tab.answer(LEFT) == text
    style = "getComputedStyle(document.querySelector('[data-testid=bot] .message-content span')).whiteSpace"
    assert tab.page.evaluate(style).startswith("pre-wrap")


def test_the_style_sheet_reaches_the_page(tab):
    assert tab.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--gpu-vs-cpu-style').trim()") == "1"


def test_no_column_of_a_cpu_lane_speaks_of_a_gpu(tab):
    tab.send()
    tab.wait_idle()
    for lane, title in ((LEFT, "4-bit NF4 · CPU"), (RIGHT, "FP32 · CPU")):
        words = tab.page.locator(lane).inner_text()
        assert title in words and "GPU" not in words
        assert "device CPU" in words and "precision" in words


def test_a_phone_needs_no_sideways_scroll(tab):
    tab.page.set_viewport_size({"width": 390, "height": 844})
    tab.choose()
    tab.send("a" * 300)
    tab.wait_idle()
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
    left, right = (tab.page.locator(lane).bounding_box() for lane in (LEFT, RIGHT))
    tab.page.set_viewport_size({"width": 1280, "height": 900})
    assert right["y"] > left["y"] + left["height"], "stacked"


def test_every_button_has_a_name_and_the_status_is_announced(tab):
    unnamed = "[...document.querySelectorAll('button')].filter(b => b.offsetParent && !(b.innerText.trim() || b.ariaLabel || b.title)).map(b => b.outerHTML)"
    assert tab.page.evaluate(unnamed) == []
    assert tab.page.locator(".lane .phase[aria-live=polite]").count() == 2


def test_an_idle_page_asks_nothing_of_the_server(open_tab):
    tab = open_tab()
    tab.wait(lambda: tab.status(LEFT) == "Ready.", "ready")
    asked: list[str] = []
    tab.wait(lambda: asked.clear() or not _requests_during(tab, asked), "the timer to stop")


def _requests_during(tab: Tab, asked: list[str]) -> list[str]:
    listener = lambda request: asked.append(request.url)  # noqa: E731
    tab.page.on("request", listener)
    for _ in range(15):
        tab.page.wait_for_timeout(100)
    tab.page.remove_listener("request", listener)
    return asked


def test_prompts_do_not_go_to_local_storage(tab):
    tab.send("a secret prompt")
    tab.wait_idle()
    assert "a secret prompt" not in tab.page.evaluate("JSON.stringify(localStorage)")


def test_the_default_examples_begin_with_the_two_seed_prompts():
    import json

    prompts = json.loads((Path(__file__).parent.parent / "examples" / "prompts.json").read_text("utf-8"))
    assert prompts[:2] == ["hello good morning may i see the menu", "ok i want two chicken biryani with couple of drinks"]
