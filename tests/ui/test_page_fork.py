"""The fork viewer in headless Chromium over fake lanes: colours, values by click and key, how far it is and its stop, why not, hostile text, faults."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import gradio as gr
import pytest

from inference.errors import InferenceError
from inference.events import Request
from inference.progress import Progress
from tests.support.fakes import Stage
from tests.support.records import ended
from ui.comparison.handlers import Page
from ui.fork import viewer as fork
from ui.fork.box import BUTTON, STOP
from ui.fork.viewer import AFTER, NO_PAIR, ForkViewer, Scoring


def compare_and_press(tab, fake_app, **script):
    """A comparison with these words from the lanes, then the button, which is returned."""
    fake_app.script(**script)
    tab.send()
    tab.wait(lambda: tab.verdict, "a verdict")
    button = tab.page.get_by_role("button", name=BUTTON)
    tab.wait(button.is_enabled, "the button enabled")
    button.click()
    return button


def compare_and_look(tab, fake_app, **script):
    """The same; returns the viewer."""
    compare_and_press(tab, fake_app, **script)
    viewer = tab.page.locator("#fork section.fork")
    viewer.wait_for()
    return viewer


def alert(tab):
    """The sentence in the viewer's place."""
    shown = tab.page.locator("#fork [role=alert]")
    shown.wait_for()
    return shown.text_content()


@pytest.fixture
def viewer(tab, fake_app):
    return compare_and_look(tab, fake_app, cpu_nf4={"fork_at": 6})


def options(viewer):
    return viewer.get_by_role("option")


def panel(viewer):
    """What the panel says, without the marks that keep a direction."""
    return viewer.locator(".fork-panel").inner_text().replace("\u2068", "").replace("\u2069", "")


def test_each_token_has_its_colour_and_the_fork_both(viewer):
    found = options(viewer)
    assert found.count() == 12
    assert [found.nth(i).get_attribute("class").split()[1] for i in range(4)] == ["d0", "d1", "d2", "d3"]
    assert "other-choice" in found.nth(2).get_attribute("class")
    assert found.nth(5).get_attribute("class") == "token d1 other-choice first-fork" and found.nth(5).text_content() == "korma "
    shade = "([from, to]) => [from, to].map((each) => getComputedStyle(each).backgroundColor)"
    elements = [found.nth(1).element_handle(), found.nth(5).element_handle()]
    assert len(set(viewer.page.evaluate(shade, elements))) == 1, "the fork has its shade as well"


def test_a_token_is_chosen_by_click_and_by_key_and_its_values_stand_under_the_text(viewer):
    found, page = options(viewer), viewer.page
    found.nth(2).click()
    assert "“chicken ” token 3 of 12" in panel(viewer) and "clearly here (0.5 nat)" in panel(viewer)
    page.keyboard.press("ArrowRight")
    assert "“chicken ”" in panel(viewer), "moving is not choosing"
    page.keyboard.press("Enter")
    assert "“biryani, ” token 4 of 12" in panel(viewer) and "far here (2 nat)" in panel(viewer)
    for key, place in (("End", 12), ("ArrowRight", 12), ("ArrowLeft", 11), ("Home", 1), ("ArrowLeft", 1)):
        page.keyboard.press(key)
        page.keyboard.press("Space")
        assert f"token {place} of 12" in panel(viewer)
    assert viewer.locator('[role=option][aria-selected="true"]').count() == viewer.locator('[role=option][tabindex="0"]').count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY", "the text is one stop"


def test_the_panel_stays_in_view_beside_a_long_text_and_keys_go_from_line_to_line(tab, fake_app):
    viewer = compare_and_look(tab, fake_app, both={"say": "word\n", "kld": [0.02]})
    options(viewer).first.click()
    tab.page.set_viewport_size({"width": 1280, "height": 420})
    try:
        viewer.locator(".fork-text").evaluate("(text) => text.scrollIntoView()")
        box = viewer.locator(".fork-panel").bounding_box()
        assert box["y"] + box["height"] <= 421
        tab.page.keyboard.press("ArrowDown")
        tab.page.keyboard.press("ArrowDown")
        tab.page.keyboard.press("ArrowUp")
        tab.page.keyboard.press("Enter")
        assert "token 2 of 12" in panel(viewer)
    finally:
        tab.page.set_viewport_size({"width": 1280, "height": 720})


def test_the_first_fork_has_both_continuations_and_both_lists_in_the_order_of_the_lanes(viewer):
    sides = viewer.locator(".fork-sides > div")
    assert [sides.nth(i).locator("h4").text_content() for i in range(2)] == ["4-bit", "FP32"]
    assert "other other" in sides.nth(0).text_content() and "and a few" in sides.nth(1).text_content()
    assert viewer.locator(".fork-sides tbody tr").count() == 10


def test_its_figures_go_into_the_table(viewer, tab):
    tab.page.locator("#details > button").click()
    cell = tab.page.locator("#table tr", has_text="Quality").locator("td").nth(1)
    tab.wait(lambda: "divergence, mean" in (cell.text_content() or ""), "the figures in the table")
    assert "on 12 positions of the answer (too few for a verdict)" in cell.text_content()


def test_its_figures_go_into_the_export_that_the_history_shows(open_tab, fake_app):
    tab = open_tab()
    compare_and_look(tab, fake_app)
    tab.page.get_by_role("tab", name="History").click()
    export = tab.page.locator("#export textarea")
    tab.wait(lambda: "on 12 positions of the answer" in export.input_value(), "the figures in the export")


def test_few_positions_get_no_verdict_and_the_words_are_neutral(viewer):
    words = viewer.text_content().lower()
    assert "too short for a verdict: 12 of 200 positions." in words
    assert not [word for word in ("wrong", "worse", "better", "error", "damage", "bad") if word in words]


def test_hostile_text_is_shown_and_does_not_run(tab, fake_app):
    evil = "<img src=x onerror='window.hurt=1'> ${window.hurt=1} $x$ **b** "
    viewer = compare_and_look(tab, fake_app, both={"say": evil, "fork_say": evil}, cpu_nf4={"fork_at": 2})
    assert options(viewer).first.text_content() == evil
    options(viewer).nth(1).click()
    assert evil.strip() in panel(viewer)
    assert not viewer.locator("img, .katex, strong").count() and tab.page.evaluate("window.hurt") is None


def test_a_lane_that_can_not_score_tells_its_sentence(tab, fake_app):
    button = compare_and_press(tab, fake_app, both={"score_fails": "The logits are not finite at position 3."})
    assert "not finite at position 3" in alert(tab)
    tab.wait(button.is_enabled, "the button enabled again")


def test_a_zero_divergence_of_a_4_bit_lane_is_a_fault(tab, fake_app):
    compare_and_press(tab, fake_app, both={"kld": [0.0]})
    assert "4-bit did not take hold" in alert(tab)


def test_a_new_comparison_empties_the_viewer(tab, viewer):
    tab.send()
    tab.wait(lambda: not viewer.count() or not viewer.is_visible(), "the viewer gone")


def test_a_scoring_says_how_far_it_is_and_stops_and_all_can_be_used_again(tab, fake_app):
    button = compare_and_press(tab, fake_app, both={"score_holds": True})
    shown = tab.page.locator("#fork .fork-note")
    tab.wait(lambda: shown.count() and "Step 1 of 2: the FP32 lane reads the FP32 answer" in shown.text_content(), "how far it is")
    assert not button.is_enabled()
    fake_app.script(cpu_nf4={"score_holds": True})
    tab.wait(lambda: "Step 2 of 2: the 4-bit lane reads the FP32 answer" in shown.text_content(), "the second lane")
    stop = tab.page.get_by_role("button", name=STOP)
    stop.click()
    tab.wait(lambda: shown.text_content().strip() == "Stopped.", "stopped")
    fake_app.script()
    tab.wait(lambda: button.is_enabled() and not stop.is_visible(), "the button enabled again")
    button.click()
    tab.page.locator("#fork section.fork").wait_for()


def test_a_tab_that_is_closed_ends_its_scoring_and_another_s_prompt_is_answered(open_tab, fake_app):
    gone, other = open_tab(), open_tab()
    compare_and_press(gone, fake_app, both={"score_holds": True})  # until it is stopped
    shown = gone.page.locator("#fork .fork-note")
    gone.wait(lambda: shown.count() and "Step 1 of 2" in shown.text_content(), "a scoring under way")
    gone.page.close()
    other.send()
    other.wait(lambda: other.verdict, "a verdict")


def test_the_button_says_why_it_can_not_be_used(open_tab, fake_app):
    tab = open_tab()
    why = tab.page.locator("#fork-why")
    tab.wait(lambda: why.text_content().strip() == AFTER, "why not yet")
    fake_app.script(cpu_nf4={"say": "\n"})
    tab.send()
    tab.wait(lambda: why.text_content().strip() == "Not possible: the 4-bit lane gave no text.", "why not at all")
    assert not tab.page.get_by_role("button", name=BUTTON).is_enabled()
    fake_app.script()
    tab.wait_idle()
    tab.send()
    tab.wait(tab.page.get_by_role("button", name=BUTTON).is_enabled, "the button enabled")
    tab.wait(lambda: not why.text_content().strip(), "no reason left")


# ---- the listeners alone


VISITOR = SimpleNamespace(session_hash="tab")
ANSWERED = replace(ended(5), prompt_ids=(1, 2), text="hello")


def begun(*lanes: str, **outcomes) -> Page:
    """A page whose visitor has a comparison that ended so."""
    stage = Stage(lanes or ("cpu:nf4", "cpu:fp32"))
    page = Page(stage.engine, lambda: None)
    session = page.sessions.begin("tab", stage.ask)
    session.outcomes |= {key: outcomes.get(key.replace(":", "_"), ANSWERED) for key in session.comparison.runs}
    return page


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (begun(), ""),
        (begun("cpu:fp32"), NO_PAIR),
        (begun("cuda:bf16", "cpu:fp32"), NO_PAIR),
        (begun(cpu_fp32=Progress(0.0)), "Not possible: the FP32 lane gave no text."),
        (begun(cpu_fp32=Progress(0.0), cpu_nf4=Progress(0.0)), "Not possible: the FP32 lane gave no text and the 4-bit lane gave no text."),
        (begun(cpu_nf4=replace(ANSWERED, phase="failed", done=None)), "Not possible: the 4-bit lane failed."),
        (begun("cuda:nf4", "cpu:nf4", "cpu:fp32", cuda_nf4=Progress(0.0)), ""),
    ],
)
def test_why_not_is_a_sentence_and_one_4_bit_answer_is_enough(page, why):
    viewer = ForkViewer(page)
    assert viewer.why_not(page.sessions.get("tab")) == why
    assert viewer.why_not(None) == (NO_PAIR if why == NO_PAIR else AFTER)


@pytest.mark.parametrize("begins_anew", [False, True])
def test_a_view_never_stands_under_a_comparison_that_began_while_it_was_made(monkeypatch, begins_anew):
    page = begun()

    def score(*_, **__):
        if begins_anew:
            page.sessions.begin("tab", lambda: page.engine.submit(Request("again")))
        raise InferenceError("It could not be scored.")

    monkeypatch.setattr(fork, "one_answer", score)
    first, *_, last = ForkViewer(page).show(VISITOR)
    assert "Step 1 of 2" in str(first[3].value)
    assert last == [gr.skip()] * 4 if begins_anew else "could not be scored" in last[3].value


def test_a_second_click_begins_no_second_scoring(monkeypatch):
    page, begun_twice = begun(), []

    def score(*_, watch, **__):
        begun_twice.append(watch)
        while True:
            watch("cpu:fp32")
            time.sleep(0.01)

    monkeypatch.setattr(fork, "one_answer", score)
    viewer = ForkViewer(page)
    first = viewer.show(VISITOR)
    next(first)
    next(first)
    assert list(viewer.show(VISITOR)) == [[gr.skip()] * 4]
    viewer.stop(VISITOR)
    *_, last = first
    assert "Stopped." in last[3].value and len(begun_twice) == 1


def test_a_new_comparison_ends_the_scoring_of_the_one_before():
    page = begun()
    viewer = ForkViewer(page)
    scoring = viewer._scorings["tab"] = Scoring(page.sessions.get("tab"), "cpu:fp32")
    viewer.ready(VISITOR)
    assert not scoring.stop.is_set(), "its own"
    page.sessions.begin("tab", lambda: page.engine.submit(Request("again")))
    viewer.ready(VISITOR)
    assert scoring.stop.is_set()


def test_who_waits_is_told_so_and_who_is_waited_for_is_not():
    page = begun()
    scoring, status = Scoring(page.sessions.get("tab"), "cpu:fp32"), replace(page.statuses()["cpu:fp32"], state="busy", waiting=1)
    scoring("cpu:fp32", True)
    assert "waits for its turn" in scoring.note(status)
    scoring("cpu:fp32", False)
    assert "waits" not in scoring.note(status) and "reads the FP32 answer" in scoring.note(status)


def test_a_phone_needs_no_sideways_scroll(tab, viewer):
    size = tab.page.viewport_size
    try:
        tab.page.set_viewport_size({"width": 360, "height": 740})
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360
    finally:
        tab.page.set_viewport_size(size)
