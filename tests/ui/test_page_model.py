"""The model box in headless Chromium over fake lanes: another model, in every tab; refused while one is used; cancelled; failed; listed."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from inference.settings import Settings
from tests.support.browser_tab import LEFT, RIGHT, Tab
from tests.support.page_fixtures import FakeApp
from tests.support.until import until
from ui.comparison import handlers

FIRST, NEXT = Settings().model_id, "you/next"
LISTED = Settings(models=("you/listed", NEXT))


def ready(app: FakeApp, name: str) -> None:
    until(lambda: app.engine.model().phase not in ("ending", "loading") and app.engine.model().name == name, what=f"{name} loaded")


@pytest.fixture(scope="module")
def module_app(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handlers, "IDLE_LOOK_S", 0.5)
        app = FakeApp(tmp_path_factory.mktemp("model") / "script.json")
        yield app
        app.close()


@pytest.fixture
def app(module_app):
    """A page whose model may be changed, with the first one loaded."""
    module_app.script()
    if module_app.engine.model().name != FIRST:
        module_app.engine.change_model(FIRST)
    ready(module_app, FIRST)
    return module_app


@pytest.fixture
def space(tmp_path, monkeypatch):
    """Makes a page as on a Space."""
    apps: list[FakeApp] = []

    def make(settings: Settings) -> FakeApp:
        monkeypatch.setenv("SPACE_ID", "you/space")
        apps.append(FakeApp(tmp_path / "script.json", settings))
        return apps[-1]

    yield make
    for app in apps:
        app.close()


def line(tab: Tab) -> str:
    return tab.page.locator("#model > button").text_content().removesuffix("▼").strip()


def open_box(tab: Tab):
    tab.page.locator("#model > button").click()
    field = tab.page.locator("#model-name input")
    field.wait_for()
    return field


def load(tab: Tab, name: str) -> None:
    """Open the box, type a model's name and press Load."""
    open_box(tab).fill(name)
    press(tab, "Load")


def press(tab: Tab, button: str) -> None:
    tab.page.locator("#model-row").get_by_role("button", name=button).click()


def said(tab: Tab) -> str:
    shown = tab.page.locator("#model-said p, #model-said .status")
    return shown.first.text_content() if shown.count() else ""


def refusal(tab: Tab) -> str:
    shown = tab.page.locator("#model-refusal [role=alert]")
    return shown.text_content() if shown.count() else ""


def model_line(name: str, words: str, hardware: str = "Fake processor, 2 threads") -> str:
    return " · ".join(filter(None, [f"Model: {name}", hardware, words]))


def test_another_model_is_loaded_and_a_tab_that_is_only_open_follows(app, open_tab):
    tab, other = open_tab(app), open_tab(app)
    other.wait(lambda: line(other) == model_line(FIRST, "change"), "the first model")
    load(tab, NEXT)
    for each in (tab, other):
        each.wait(lambda each=each: line(each) == model_line(NEXT, "change") and each.status(LEFT) == "Ready", "the next model, ready")
    tab.send()
    tab.wait(lambda: tab.verdict, "a verdict")
    tab.page.locator("#details button").first.click()
    tab.wait(lambda: NEXT in tab.page.locator("#code").text_content(), "its name in the code to reproduce it")


def test_a_tab_with_an_answer_keeps_it_and_its_model_and_says_so_and_two_models_are_not_compared_in_silence(app, open_tab):
    tab, other = open_tab(app), open_tab(app)
    other.send()
    other.wait(lambda: other.verdict, "a verdict")
    load(tab, NEXT)
    for lane in (LEFT, RIGHT):
        other.wait(lambda lane=lane: f"Answered by {FIRST}, before the model was changed." in other.small_print(lane), "what is said of the answer")
        assert "chicken" in other.answer(lane) and other.status(lane) == "Of the model before"
    other.page.get_by_role("button", name="Compare the answers token by token").click()
    other.wait(lambda: "The model was changed after this comparison" in (other.page.locator("#fork").text_content() or ""), "no scoring by the next model")
    ready(app, NEXT)
    other.send()
    other.wait(lambda: other.verdict and other.status(RIGHT) == "Done", "the next model's verdict")
    other.page.get_by_role("tab", name="History").click()
    boxes = other.page.locator("#history input")
    other.wait(lambda: boxes.count() == 2, "both in the history")
    labels = other.page.locator("#history label")
    assert NEXT in labels.nth(0).text_content() and FIRST in labels.nth(1).text_content()
    for box in (boxes.nth(0), boxes.nth(1)):
        box.check()
    pair = other.page.locator("#pair")
    other.wait(lambda: "A and B are of different models" in pair.text_content(), "both side by side")
    assert FIRST in pair.text_content() and NEXT in pair.text_content()


def test_it_is_refused_while_a_visitor_s_run_is_under_way(app, open_tab):
    tab, other = open_tab(app), open_tab(app)
    app.script(both={"hold_at": 3})
    other.send()
    other.wait(lambda: other.answer(LEFT), "left decodes")
    load(tab, NEXT)
    tab.wait(lambda: "in use (2 runs under way or waiting)" in refusal(tab), "the refusal")
    assert line(tab) == model_line(FIRST, "change") and app.engine.model().name == FIRST
    app.script()
    other.wait_idle()
    press(tab, "Load")
    tab.wait(lambda: line(tab) == model_line(NEXT, "change") and not refusal(tab), "the next model")


def test_a_load_shows_its_bytes_in_every_tab_and_is_cancelled_in_one(app, open_tab):
    tab, other = open_tab(app), open_tab(app)
    app.script(**{NEXT: {"load_holds": True}})
    load(tab, NEXT)
    tab.wait(lambda: "512 MiB of 2.00 GiB" in said(tab), "the bytes")
    assert tab.page.locator("#model-said progress").get_attribute("value") == str(2**29) and line(tab) == model_line(NEXT, "loading", "Fake processor")
    other.wait(lambda: other.status(LEFT) == "Loading: downloading", "the load in the other tab")
    loading = app.engine.pids()["auto:nf4"]
    press(tab, "Cancel")
    tab.wait(lambda: f"The load of {NEXT} was cancelled; {FIRST} is used again" in said(tab), "the sentence")
    for each in (tab, other):
        each.wait(lambda each=each: line(each) == model_line(FIRST, "change") and each.status(LEFT) == "Ready", "the first model")
    assert app.engine.pids()["auto:nf4"] != loading
    assert tab.page.locator("#model-name input").input_value() == FIRST and not tab.page.locator("#model-cancel").is_visible()


def test_a_model_that_can_not_be_loaded_says_why_on_its_card_and_the_one_before_is_chosen_again(app, open_tab):
    tab = open_tab(app)
    app.script(**{NEXT: {"load_fails": "It needs 30.68 GiB, and 20 GiB are free."}})
    load(tab, NEXT)
    tab.wait(lambda: tab.sentence(LEFT) == "It needs 30.68 GiB, and 20 GiB are free.", "the reason")
    tab.wait(lambda: f"Choose another, or {FIRST} again" in said(tab), "what to do")
    assert line(tab) == model_line(NEXT, "could not be loaded", "Fake processor")
    tab.page.locator("#model-name input").click()
    tab.page.locator("#model-name [role=option]", has_text=FIRST).click()
    press(tab, "Load")
    tab.wait(lambda: line(tab) == model_line(FIRST, "change") and tab.status(LEFT) == "Ready", "the first model")


def test_a_name_that_is_none_gives_a_sentence(app, open_tab):
    tab, before = open_tab(app), app.engine.model()
    load(tab, "  ")
    tab.wait(lambda: "Name a model first" in refusal(tab), "the refusal")
    assert app.engine.model() == before and line(tab) == model_line(FIRST, "change")


# ---- where strangers come


def test_on_a_space_those_listed_are_chosen_and_no_other(space, open_tab):
    app = space(LISTED)
    tab = open_tab(app)
    field = open_box(tab)
    field.click()
    options = tab.page.locator("#model-name [role=option]")
    assert [text.removeprefix("✓").strip() for text in options.all_text_contents()] == ["you/listed", NEXT, FIRST]
    options.nth(1).click()
    press(tab, "Load")
    tab.wait(lambda: line(tab) == model_line(NEXT, "change"), "the one chosen")
    assert _post_load(app, "you/typed") != 200 and app.engine.model().name == NEXT


def _post_load(app: FakeApp, name: str) -> int:
    """What a client of its own gets that asks for a model, past the widget."""
    (listener,) = (each["id"] for each in app.demo.config["dependencies"] if each["api_name"] == "load_model")
    body = json.dumps({"data": [name], "fn_index": listener, "session_hash": "stranger"}).encode()
    request = urllib.request.Request(f"{app.url}/gradio_api/run/predict", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_on_a_space_with_no_list_the_model_is_only_shown_and_an_idle_tab_asks_for_nothing(space, open_tab):
    app = space(Settings())
    tab = open_tab(app)
    tab.wait(lambda: tab.status(LEFT) == "Ready", "ready")
    assert tab.page.locator("#model").text_content().strip() == f"Model: {FIRST}" and not tab.page.locator("#model button").count()
    assert not [each for each in app.demo.config["dependencies"] if each["api_name"] in ("load_model", "cancel_model")]
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    tab.page.wait_for_timeout(1500)
    asked.clear()
    tab.page.wait_for_timeout(1500)
    assert asked == []
