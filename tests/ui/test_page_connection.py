"""A visitor's connection that is lost for a while, and a reload while a file of prompts runs, in headless Chromium over fake lanes: nothing is gone without a word."""

from __future__ import annotations

import pytest

from tests.support.browser_tab import LEFT, Tab
from tests.support.page_fixtures import CHROMIUM, CHROMIUM_FLAGS
from tests.support.tab_pages import compare, open_page, start_file


@pytest.fixture
def tab(open_tab):
    tab = open_tab()
    tab.page.context.set_offline(False)
    yield tab
    tab.page.context.set_offline(False)
    tab.errors.clear()  # of the calls that found no server


def lose(tab: Tab) -> None:
    """Until the page has seen it, at its next look at the lanes."""
    tab.page.context.set_offline(True)
    tab.wait(lambda: "No connection" in (tab.page.locator("#connection").text_content() or ""), "it is said")


def test_nothing_is_gone_when_a_lost_connection_is_back_and_what_was_pressed_meanwhile_is_sent(tab, submitted):
    compare(tab, "before")
    open_page(tab, "History")  # a tab's scripts come when it is first opened, and a browser asks once for a script
    tab.page.locator("#history label").first.wait_for()
    open_page(tab, "One prompt")
    tab.page.evaluate("window.same = true")
    tab.prompt.fill("meanwhile")
    lose(tab)
    tab.page.locator("#send").click()
    tab.page.wait_for_timeout(300)
    tab.page.context.set_offline(False)
    tab.wait(lambda: len(submitted) == 2, "it is sent")
    tab.wait_idle()
    tab.wait(lambda: "meanwhile" in tab.verdict, "its end")
    assert [comparison.request.prompt for comparison in submitted] == ["before", "meanwhile"]
    assert tab.page.evaluate("window.same")
    tab.wait(lambda: not tab.page.locator("#connection").text_content(), "nothing is said any more")  # a call may have failed just before
    lose(tab)
    assert "meanwhile" in tab.verdict and tab.prompt.input_value() == "meanwhile", "and a second time"
    tab.page.context.set_offline(False)
    tab.wait(lambda: not tab.page.locator("#connection").text_content(), "it is back")
    open_page(tab, "History")
    tab.page.locator("#history label").nth(1).wait_for()


def test_a_server_that_was_started_anew_makes_the_page_load_anew(tab):
    tab.page.evaluate("window.gradio_config.app_id = 'of another'")
    lose(tab)
    with tab.page.expect_event("load"):
        tab.page.context.set_offline(False)
    tab.page.locator("#send").wait_for()


def test_a_reload_asks_first_where_it_would_lose_the_rows_of_a_prompts_file(tab, fake_app, tmp_path):
    asked: list[str] = []
    tab.page.on("dialog", lambda dialog: asked.append(dialog.type) or dialog.accept())
    fake_app.script(both={"hold_at": 2})
    start_file(tab, tmp_path / "p.txt", "one\ntwo\n")
    tab.wait(tab.page.locator("#series-stop").is_enabled, "it runs")
    tab.open()
    assert asked == ["beforeunload"], "while it runs"
    fake_app.script()
    start_file(tab, tmp_path / "p.txt", "one\ntwo\n")
    tab.page.locator("#series-view").wait_for()
    tab.open()
    assert asked == ["beforeunload"] * 2, "once it is over"


def test_a_visitor_who_is_logged_out_is_told(tab):
    tab.page.route("**/run/predict*", lambda route: route.fulfill(status=401, body="{}"))
    said = tab.page.locator("#connection")
    tab.wait(lambda: "You are logged out" in (said.text_content() or ""), "it is said")
    tab.page.unroute("**/run/predict*")
    tab.wait(lambda: not said.text_content(), "logged in again, in another tab")


def pressed(route) -> bool:
    """Whether a call is that of Send with this prompt."""
    return '"data":["meanwhile"' in (route.request.post_data or "")


def test_a_send_that_came_and_whose_answer_is_lost_runs_once_and_is_no_stop(tab, submitted, fake_app):
    fake_app.script(both={"hold_at": 2})
    made: list[str] = []

    def lost(route):
        if not pressed(route):
            route.continue_()
            return
        made.append(route.request.headers["x-once"])
        if len(made) == 1:
            route.fetch()
            tab.page.wait_for_timeout(700)  # past a double click
            route.abort("connectionreset")
        else:
            route.continue_()

    tab.page.route("**/run/predict*", lost)
    tab.type_and_click("meanwhile")
    tab.wait(lambda: len(made) == 2, "it is made again")
    tab.wait(lambda: tab.page.locator("#send").text_content().strip() == "Stop", "it runs")
    tab.wait(lambda: "We" in tab.answer(LEFT), "it is shown")
    assert len(submitted) == 1 and made[0] == made[1]
    tab.page.locator("#send").click()
    tab.wait_idle()
    fake_app.script()


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_whose_server_is_away_is_a_lost_connection(tab, submitted, status):
    def away(route):
        route.fulfill(status=status, body="<html>Bad Gateway</html>", content_type="text/html")

    for address in ("**/run/predict*", "**/app_id*"):
        tab.page.route(address, away)
    tab.type_and_click("meanwhile")
    tab.wait(lambda: "No connection" in (tab.page.locator("#connection").text_content() or ""), "it is said")
    tab.page.unroute_all()
    tab.wait(lambda: "meanwhile" in tab.verdict, "it is sent")
    assert len(submitted) == 1


def test_a_call_that_alone_does_not_get_through_is_told_and_keeps_the_page(tab):
    tab.page.evaluate("window.same = true")
    made: list[str] = []
    tab.page.route("**/run/predict*", lambda route: made.append(route.request.url) or route.abort() if pressed(route) else route.continue_())
    tab.type_and_click("meanwhile")
    tab.page.get_by_text("did not get through").wait_for(timeout=20_000)
    assert len(made) == 5 and tab.page.evaluate("window.same") and tab.prompt.input_value() == "meanwhile"


@pytest.fixture
def kept_pages(browser, fake_app):
    """A tab in a browser that keeps pages that are left, as people's do and those of tests don't."""
    chromium = browser.browser.browser_type.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS, ignore_default_args=["--disable-back-forward-cache"])
    tab = Tab(chromium.new_page(), fake_app)
    tab.page.on("dialog", lambda dialog: dialog.accept())
    yield tab
    chromium.close()


def leave_and_come_back(tab: Tab) -> None:
    tab.page.evaluate("window.same = true")
    tab.page.goto(f"{tab.app.url}/theme.css")
    tab.page.go_back(wait_until="commit")
    tab.page.locator("#send").wait_for()


def test_a_page_that_the_browser_kept_has_all_that_it_shows_and_one_left_in_mid_answer_is_loaded_anew(kept_pages, fake_app):
    tab = kept_pages
    compare(tab, "before")
    leave_and_come_back(tab)
    assert tab.page.evaluate("window.same") and "before" in tab.verdict
    compare(tab, "after")
    open_page(tab, "History")
    tab.wait(lambda: tab.page.locator("#history label").count() == 2, "both are kept")
    open_page(tab, "One prompt")
    fake_app.script(both={"hold_at": 2})
    tab.send("in the middle")
    leave_and_come_back(tab)
    tab.wait(lambda: not tab.page.evaluate("window.same") and tab.page.locator(".board[data-state=empty]").count(), "an empty page")
    tab.wait(lambda: not any(lane.state == "busy" for lane in fake_app.engine.status()), "its runs have ended")
    fake_app.script()
