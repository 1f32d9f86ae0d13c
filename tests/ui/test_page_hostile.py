"""Hostile text in headless Chromium, in every place that shows a text of a model, a checkpoint, a file or a visitor: it is read, and runs, loads and restyles nothing."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from inference.settings import Settings
from tests.support.browser_tab import Tab
from tests.support.page_fixtures import FakeApp
from tests.support.tab_pages import choose_file, compare, decide, open_page, save
from ui.fork.box import BUTTON

AWAY = "http://127.0.0.1:9"
EVIL = (
    "</style></textarea></script><script>window.ran=1</script><style>body{display:none}</style><img src=" + AWAY + "/x onerror=window.ran=2>"
    "<a href=javascript:window.ran=3>a</a>${window.ran=4}{{window.ran=5}} ![i](" + AWAY + "/i.png) [l](javascript:window.ran=6) **b** $$x$$ `c` | d"
)
NAMED = "<img src=x onerror=window.ran=7>${window.ran=8}"  # what a file may be called as well
ADDED = "img[src*=':9/'], img[src='x'], a[href^='javascript:'], .katex, body > style:not([class])"


@pytest.fixture(scope="module")
def evil_app(tmp_path_factory):
    app = FakeApp(tmp_path_factory.mktemp("evil") / "script.json", Settings(model_id=f"you/{NAMED}", models=(f"me/{NAMED}",)))
    yield app
    app.close()


class Watched(Tab):
    """A tab that notes every dialog, and every request that goes elsewhere."""

    def __init__(self, page, app: FakeApp) -> None:
        self.dialogs, self.asked = [], []
        page.on("dialog", lambda dialog: self.dialogs.append(dialog.message) or dialog.accept())
        page.on("request", lambda request: self.asked.append(request.url) if not request.url.startswith((app.url, "data:", "blob:")) else None)
        super().__init__(page, app)

    def nothing_happened(self, where: str, *shown: str) -> None:
        """Nothing of it ran, loaded or restyled anything; each selector of `shown` holds it as text."""
        assert self.page.evaluate("window.ran ?? null") is None and not self.asked and not self.dialogs, where
        assert self.page.locator(ADDED).count() == 0 and self.page.evaluate("getComputedStyle(document.body).display") != "none", where
        for selector in shown:
            self.wait(lambda selector=selector: "window.ran=" in " ".join(self.page.locator(selector).all_text_contents()), f"{where}: {selector}")


@pytest.fixture
def watched(browser, evil_app):
    tab = Watched(browser.new_page(), evil_app)
    yield tab
    tab.page.close()
    assert tab.errors == []


def test_answers_board_details_and_forks(watched, evil_app):
    evil_app.script(both={"say": EVIL, "fork_say": EVIL, "tokens": 3}, cpu_nf4={"say": EVIL, "fork_say": EVIL, "tokens": 3, "fork_at": 2})
    compare(watched, EVIL)
    watched.page.locator("#details button").first.click()
    watched.page.locator("#formatted").click()
    watched.nothing_happened("formatted", ".lane", ".board .asked", "#model", "#table", "#code")
    button = watched.page.get_by_role("button", name=BUTTON)
    watched.wait(button.is_enabled, "the button enabled")
    button.click()
    watched.page.locator("#fork section.fork").get_by_role("option").nth(1).click()
    watched.nothing_happened("forks", "#fork .fork-panel")


def test_history_and_what_is_downloaded(watched, evil_app):
    evil_app.script(both={"say": EVIL, "tokens": 2})
    compare(watched, EVIL)
    open_page(watched, "History")
    watched.page.locator("#history input[type=checkbox]").first.check()
    watched.page.locator("#pair .winners").wait_for()
    watched.nothing_happened("history", "#history label", "#pair .question", "#pair .side")
    for name, begins in (("CSV", "created"), ("Markdown", "#")):
        watched.page.get_by_role("radio", name=name).first.check()
        watched.wait(lambda begins=begins: watched.page.locator("#export textarea").input_value().startswith(begins), name)
    watched.page.get_by_role("radio", name="Report").first.check()
    watched.wait(lambda: not watched.page.locator("#export textarea").count(), "a report is not shown, only saved")
    _, report = save(watched, "#download")
    assert "<script" not in report and "<img" not in report and "window.ran=1" in report
    watched.nothing_happened("exported")


def test_a_prompts_file_and_the_decision(watched, evil_app, tmp_path):
    evil_app.script(both={"say": EVIL, "tokens": 2, "token_s": 0.001, "first_s": 0.001})
    told = EVIL.replace('"', "'")
    choose_file(watched, tmp_path / f"{NAMED}.csv", f'prompt,expected\n"{told}","{told}"\n"{told} b","{told}"\n')
    watched.nothing_happened("chosen", "#series-progress")
    watched.wait(watched.page.locator("#series-run").is_enabled, "Run enabled")
    watched.page.locator("#series-run").click()
    watched.page.locator("#series-view").wait_for()
    watched.nothing_happened("run", "#series-rows .said", "#series-rows")
    decide(watched, "0.8", "0.1")
    watched.nothing_happened("decided")


def test_faults_and_a_link_that_fills_the_page_in(watched, evil_app):
    evil_app.script(both={"load_fails": EVIL, "fails_on": "hello", "say": EVIL})
    watched.page.goto(f"{evil_app.url}/?prompt={quote(EVIL)}&system={quote(EVIL)}&mode={quote(EVIL)}&seed={quote(EVIL)}")
    watched.wait(lambda: watched.prompt.input_value() == EVIL, "the link's prompt")
    assert "in the link must be" in watched.hint()
    watched.nothing_happened("linked")
    evil_app.engine.change_model(f"me/{NAMED}")
    watched.wait(lambda: "window.ran=" in watched.page.locator("#lanes").text_content(), "the fault")
    watched.nothing_happened("failed", "#lanes", "#model")
