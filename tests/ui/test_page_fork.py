"""The fork viewer in headless Chromium over fake lanes: colours with values, the fork, hostile text, a phone, and faults."""

from __future__ import annotations

from types import SimpleNamespace

import gradio as gr
import pytest

from inference.errors import InferenceError
from inference.progress import Progress
from tests.support.fakes import Stage
from ui import fork
from ui.fork import ForkViewer
from ui.handlers import Page

BUTTON = "What did 4 bits cost here?"


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


def test_each_token_has_its_value_beside_its_colour(viewer):
    tokens = viewer.locator(".fork-text:not(.continuation) .token")
    assert tokens.count() == 12
    assert [tokens.nth(i).get_attribute("class").split()[1] for i in range(4)] == ["d0", "d1", "d2", "d3"]
    assert "0.5 nat" in tokens.nth(2).get_attribute("title") and "other-choice" in tokens.nth(2).get_attribute("class")
    worst = viewer.locator(".fork-table tbody tr")
    assert worst.count() == 10 and "2 nat" in worst.first.text_content()


def test_the_first_fork_is_marked_with_both_continuations_and_both_lists(viewer):
    assert viewer.locator(".fork-text:not(.continuation) .first-fork").text_content() == "korma "
    sides = viewer.locator(".fork-sides > div")
    assert "and a few" in sides.nth(0).text_content() and "other other" in sides.nth(1).text_content()
    assert viewer.locator(".fork-sides tbody tr").count() == 10
    words = viewer.text_content()
    assert "part at token 6" in words and "0.7 nat before its second" in words and "near tie" not in words


def test_its_figures_go_into_the_table(viewer, tab):
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
    assert "12 positions: under 200 there is no verdict" in words
    assert not [word for word in ("wrong", "worse", "better", "error", "damage", "bad") if word in words]


def test_a_near_tie_is_told_as_such(tab, fake_app):
    viewer = compare_and_look(tab, fake_app, both={"margin": 0.01}, cpu_nf4={"fork_at": 3})
    assert "near tie (under 0.03 nat)" in viewer.text_content()


def test_equal_answers_have_no_fork(tab, fake_app):
    viewer = compare_and_look(tab, fake_app)
    assert "the same, token for token" in viewer.text_content() and not viewer.locator(".first-fork").count()


def test_hostile_text_is_shown_and_does_not_run(tab, fake_app):
    evil = "<img src=x onerror='window.hurt=1'> ${window.hurt=1} $x$ **b** "
    viewer = compare_and_look(tab, fake_app, both={"say": evil, "fork_say": evil}, cpu_nf4={"fork_at": 2})
    assert viewer.locator(".token", has_text="${window.hurt=1}").first.text_content() == evil
    assert not viewer.locator("img, .katex, b").count() and tab.page.evaluate("window.hurt") is None


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


@pytest.mark.parametrize("begins_anew", [False, True])
def test_a_view_never_stands_under_a_comparison_that_began_while_it_was_made(monkeypatch, begins_anew):
    stage = Stage(("cpu:nf4", "cpu:fp32"))
    page = Page(stage.engine, lambda: None)
    visitor = SimpleNamespace(session_hash="tab")
    session = page.sessions.begin("tab", stage.ask)
    session.outcomes |= {key: Progress(0.0) for key in session.comparison.runs}

    def score(*_, **__):
        if begins_anew:
            page.sessions.begin("tab", stage.ask)
        raise InferenceError("It could not be scored.")

    monkeypatch.setattr(fork, "one_answer", score)
    first, last = ForkViewer(page).show(visitor)
    assert "scoring" in str(first[1].value)
    assert last == [gr.skip(), gr.skip()] if begins_anew else "could not be scored" in last[1].value


def test_a_phone_needs_no_sideways_scroll(tab, viewer):
    size = tab.page.viewport_size
    try:
        tab.page.set_viewport_size({"width": 360, "height": 740})
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360
    finally:
        tab.page.set_viewport_size(size)
