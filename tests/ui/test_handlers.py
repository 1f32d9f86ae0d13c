"""What a press asks of the engine, and what a tab that looks on is shown; the real engine on fake lanes, no browser."""

from __future__ import annotations

from types import SimpleNamespace

import gradio as gr
import pytest

from inference.events import MAX_NEW_TOKENS_LIMIT, Loading
from inference.settings import Settings
from tests.support.fakes import Stage
from ui.comparison.columns import LOOK_S
from ui.comparison.handlers import DOUBLE_CLICK_S, GO_ON, IDLE_LOOK_S, Page

VISITOR = SimpleNamespace(session_hash="tab", query_params={})
STRANGER = SimpleNamespace(session_hash="other", query_params={})
HINT, BOARD, SEND, AGAIN, GO_ON_BUTTON, TIMER = range(6)
FIELDS = {"prompt": "hi", "system": "", "format": "chat", "max_new_tokens": 5, "temperature": 0, "seed": 0, "mode": "together"}


@pytest.fixture
def stage():
    stage = Stage(Settings())
    stage.lanes["auto:nf4"].ready()
    yield stage
    stage.engine.close()


@pytest.fixture
def page(stage):
    return Page(stage.engine, lambda: None, stage.clock)


def press(page: Page, button: str = "send", request=VISITOR, **fields) -> list:
    return page.press(*{**FIELDS, **fields}.values(), request, gr.EventData(SimpleNamespace(elem_id=button), None))


def show_runs(stage, page: Page, reason: str = "stop") -> list:
    """Let both lanes answer the tab's comparison, streamed to their ends; what is shown when the last one ended."""
    if not page.statuses()["cpu:fp32"].facts:
        stage.lanes["cpu:fp32"].ready()
    for lane in stage.lanes.values():
        lane.begin()
        lane.finish(reason=reason)
    for lane in page.lanes:
        list(lane.stream(VISITOR))
    return page.lanes[-1].finish(VISITOR)


def nothing_but_the_hint(outputs: list) -> bool:
    return all(each == gr.skip() for each in outputs[1:])


def asked_of(page: Page):
    return page.sessions.get("tab").comparison.request


# ---- one button that sends and stops


def test_send_begins_a_run_a_lane_and_turns_into_stop(stage, page):
    outputs = press(page)
    assert not outputs[HINT].value and 'data-state="running"' in outputs[BOARD]
    assert (outputs[SEND].value, outputs[AGAIN].interactive, outputs[GO_ON_BUTTON].visible, outputs[TIMER].active) == ("Stop", False, False, False)
    assert len(outputs) == 6 + 3 * len(page.lanes) and outputs[-2:] == ["", ""] and stage.lanes["auto:nf4"].asked


def test_the_second_click_of_a_double_click_neither_stops_nor_asks_again(stage, page, monkeypatch):
    press(page)
    stops = []
    monkeypatch.setattr(stage.engine, "stop", stops.append)
    stage.clock.now += DOUBLE_CLICK_S / 2
    outputs = press(page)
    assert outputs[HINT] == gr.skip() and nothing_but_the_hint(outputs) and not stops and len(stage.lanes["auto:nf4"].asked) == 1


def test_the_second_click_of_one_on_stop_asks_nothing(stage, page):
    press(page)
    stage.clock.now += 2 * DOUBLE_CLICK_S
    press(page)
    show_runs(stage, page, "stopped")
    stage.clock.now += DOUBLE_CLICK_S / 2
    before = page.sessions.get("tab")
    assert nothing_but_the_hint(press(page)) and page.sessions.get("tab") is before
    stage.clock.now += DOUBLE_CLICK_S
    press(page)
    assert page.sessions.get("tab") is not before


def test_send_stops_every_run_of_its_own_tab_and_of_no_other(stage, page, monkeypatch):
    press(page, request=STRANGER)
    press(page)
    stops = []
    monkeypatch.setattr(stage.engine, "stop", stops.append)
    stage.clock.now += 2 * DOUBLE_CLICK_S
    assert nothing_but_the_hint(press(page))
    assert sorted(stops) == sorted(run.id for run in page.sessions.get("tab").comparison.runs.values())


def test_enter_while_a_comparison_runs_is_refused_and_does_not_stop_it(stage, page, monkeypatch):
    press(page)
    monkeypatch.setattr(stage.engine, "stop", lambda _: pytest.fail("stopped"))
    stage.clock.now += 2 * DOUBLE_CLICK_S
    outputs = press(page, "prompt", prompt="another")
    assert "still running" in outputs[HINT].value and nothing_but_the_hint(outputs)


@pytest.mark.parametrize("fields", [{"prompt": " "}, {"temperature": 9}, {"max_new_tokens": None}, {"format": "poem"}])
def test_a_refused_request_changes_nothing_but_the_hint(stage, page, fields):
    outputs = press(page, **fields)
    assert 'role="alert"' in outputs[HINT].value and nothing_but_the_hint(outputs) and page.sessions.get("tab") is None


def test_a_request_without_a_trigger_is_a_send(page):
    page.press(*FIELDS.values(), VISITOR, gr.EventData(None, None))
    assert asked_of(page).prompt == "hi"


# ---- run again, go on


def test_run_again_asks_what_was_asked_last_whatever_stands_in_the_fields_now(stage, page):
    press(page, prompt="first", max_new_tokens=7, seed=3, format="raw")
    show_runs(stage, page)
    press(page, "again", prompt="something else", max_new_tokens=99, seed=8)
    asked = asked_of(page)
    assert (asked.prompt, asked.max_new_tokens, asked.seed, asked.format) == ("first", 7, 3, "raw")
    assert len(stage.lanes["auto:nf4"].asked) == 2


@pytest.mark.parametrize("button", ["again", "go-on"])
def test_where_nothing_was_asked_before_the_fields_are_asked(page, button):
    press(page, button, prompt="typed")
    assert asked_of(page).prompt == "typed"


def test_go_on_is_offered_where_an_answer_was_cut_and_asks_for_more_tokens_up_to_the_limit(stage, page):
    press(page, max_new_tokens=MAX_NEW_TOKENS_LIMIT // GO_ON - 1)
    offered = show_runs(stage, page, "length")[3]
    more = GO_ON * (MAX_NEW_TOKENS_LIMIT // GO_ON - 1)
    assert offered.visible and offered.value == f"Go on to {more} tokens"
    press(page, "go-on")
    assert asked_of(page).max_new_tokens == more
    offered = show_runs(stage, page, "length")[3]
    assert offered.value == f"Go on to {MAX_NEW_TOKENS_LIMIT} tokens"
    press(page, "go-on")
    assert asked_of(page).max_new_tokens == MAX_NEW_TOKENS_LIMIT
    assert not show_runs(stage, page, "length")[3].visible, "no further"


def test_an_answer_that_ended_by_itself_is_not_gone_on_with(stage, page):
    press(page)
    board, send, again, go_on, *_ = show_runs(stage, page)
    assert not go_on.visible and send.value == "Send" and again.interactive and 'data-state="done"' in board


def test_a_record_that_can_not_be_made_is_a_sentence_and_send_is_back(stage, page, monkeypatch):
    monkeypatch.setattr(page, "latest", lambda _: 1 / 0)
    press(page)
    board, send, *_ = show_runs(stage, page)
    assert 'role="alert"' in board and send.value == "Send"


# ---- a prompt in the address


def test_a_link_fills_the_composer_and_asks_nothing(page):
    linked = SimpleNamespace(session_hash="tab", query_params={"prompt": "from a link", "seed": "3", "mode": "fast"})
    prompt, system, format, tokens, temperature, seed, mode, said = page.linked(linked)
    assert (prompt, seed) == ("from a link", 3) and system == format == tokens == temperature == mode == gr.skip()
    assert "mode in the link must be" in said.value and "sets the seed too" in said.value and page.sessions.get("tab") is None
    assert page.linked(VISITOR) == page.linked(SimpleNamespace(session_hash="tab", query_params={"prompt": ""})) == [gr.skip()] * 8


# ---- a tab that looks on


def shown_of(page: Page, number: int = 0, request=VISITOR) -> list:
    """A lane's top, small print and Try again in what a look gives."""
    return page.watch(request)[3 * number : 3 * number + 3]


def test_a_tab_goes_on_looking_while_a_lane_answers_another_and_then_rests(stage, page):
    press(page)
    stage.lanes["cpu:fp32"].ready()
    for lane in stage.lanes.values():
        lane.begin()
    assert "Answering another prompt" in shown_of(page, request=STRANGER)[0]
    assert page.watch(STRANGER)[-1].value == LOOK_S, "no lane loads, and yet it has something to see"
    for lane in stage.lanes.values():
        lane.finish()
    assert "Ready" in shown_of(page, request=STRANGER)[0] and page.watch(STRANGER)[-1].value == IDLE_LOOK_S


def test_after_try_again_a_tab_that_shows_a_run_follows_the_lane_to_ready(stage, page, monkeypatch):
    press(page)
    show_runs(stage, page)
    assert shown_of(page)[:2] == [gr.skip(), gr.skip()], "its answer stays"
    for _ in range(4):
        stage.lanes["auto:nf4"].exit(3)
    failed = page.statuses()["auto:nf4"]
    assert failed.state == "failed" and shown_of(page)[2].visible
    top, foot, button, timer = page.lanes[0].retry(VISITOR)
    assert "Starting" in top and not button.visible and timer.value == LOOK_S
    stage.lanes["auto:nf4"].hello()
    stage.lanes["auto:nf4"].emit(Loading("reading weights", 3, 5, "weights"))
    assert "3 of 5 weights" in shown_of(page)[0] and page.watch(VISITOR)[-1].value == LOOK_S
    stage.lanes["auto:nf4"].loaded()
    assert "Ready" in shown_of(page)[0]
    assert shown_of(page, 1)[:2] == [gr.skip(), gr.skip()], "the other card keeps its answer's figures"


def test_the_answers_of_a_model_that_was_changed_are_marked_with_its_name(stage, page):
    press(page)
    show_runs(stage, page)
    stage.engine.change_model("you/next")
    for number in range(2):
        top, foot, _ = shown_of(page, number)
        assert "Of the model before" in top and "Answered by fake/model, before the model was changed." in foot
        assert "100 ms" in top, "its figures stay"
