"""A visitor's tab on the page over fake lanes, driven in headless Chromium; fixtures for the tests of the page."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.support.page_fixtures import FakeApp

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
        """What the scoreboard says once all lanes have ended."""
        shown = self.page.locator(".board[data-state=done]")
        return shown.inner_text() if shown.count() else ""

    def status(self, lane: str) -> str:
        return self.page.locator(f"{lane} .phase").text_content()

    def sentence(self, lane: str) -> str:
        """What went wrong, under a lane's answer."""
        shown = self.page.locator(f"{lane} .foot .sentence")
        return shown.text_content() if shown.count() else ""

    def small_print(self, lane: str) -> str:
        return " ".join(self.page.locator(f"{lane} .foot .small").all_text_contents())

    def answer(self, lane: str) -> str:
        shown = self.page.locator(f"{lane} [data-testid=bot] .message-content")
        return shown.text_content() if shown.count() else ""

    def hint(self) -> str:
        shown = self.page.locator("#hint [role=alert]")
        return shown.text_content() if shown.count() else ""

    def choose(self, *names: str, **numbers: str) -> None:
        self.changed = True
        self.page.locator("#settings-open").click()
        self.page.wait_for_timeout(200)  # Gradio puts an edit back that is made while an update of other parts is under way
        for name in names:
            self.page.locator("#settings").get_by_label(name, exact=True).check()
        for label, value in numbers.items():
            field = self.page.locator("#settings").get_by_label(label.replace("_", " ").capitalize())
            field.fill(value)
            field.press("Tab")
            self.page.wait_for_timeout(100)
            assert field.input_value() == value
        self.page.keyboard.press("Escape")

    def type_and_click(self, prompt: str) -> None:
        self.prompt.fill(prompt)
        self.page.locator("#send").click()

    def send(self, prompt: str = "") -> None:
        """Send a prompt that is accepted; returns when both cards are at it, so that nothing seen is of an earlier one."""
        prompt = prompt or f"hello good morning {next(self.numbers)}"
        self.page.evaluate("document.querySelectorAll('.lane .status').forEach((shown) => { shown.dataset.old = 1; })")
        self.type_and_click(prompt)
        self.wait(lambda: not self.page.locator(".lane .status[data-old]").count(), "both cards at the new prompt")

    def wait(self, condition: Callable[[], object], what: str = "", timeout_s: float = 10.0) -> None:
        for _ in range(int(timeout_s / 0.03)):
            if condition():
                return
            self.page.wait_for_timeout(30)
        raise AssertionError(f"not within {timeout_s} s: {what}; left {self.status(LEFT)!r}, right {self.status(RIGHT)!r}, hint {self.hint()!r}")

    def wait_idle(self) -> None:
        self.wait(lambda: self.page.locator("#send").text_content().strip() == "Send", "Send again")


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
