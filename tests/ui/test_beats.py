"""A page's connection that breaks closes no tab: that is let go of once it says so, or nothing was heard of it for a while."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.browser_tab import Tab
from tests.support.cut import Between
from tests.support.tab_pages import compare, open_page
from tests.support.until import in_a_loop, until
from ui.histories import Histories
from ui.programs.beats import Beats

HEART, CALL, CLOSED = "/gradio_api/heartbeat/tab", "/gradio_api/run/predict", "/gradio_api/closed/tab"


class Server:
    """An app whose heartbeats go on until they are told of their end, and a client of it."""

    def __init__(self, away_s: float = 60.0) -> None:
        self.beats, self.left = Beats(self, away_s), asyncio.Event()
        self.break_off = asyncio.Event()

    async def __call__(self, scope, receive, send) -> None:
        if scope["path"] == HEART:
            while (await receive())["type"] != "http.disconnect":
                pass

    async def listen(self) -> asyncio.Task[None]:
        async def receive():
            await self.break_off.wait()
            return {"type": "http.disconnect"}

        heart = asyncio.ensure_future(self.ask(HEART, receive=receive))
        await asyncio.sleep(0)
        return heart

    async def ask(self, path: str, name: bytes = b"", receive=None, query: bytes = b"") -> None:
        async def send(_) -> None:
            pass

        headers = [(b"x-once", name)] if name else []
        await self.beats({"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": query}, receive, send)


async def ended(heart: asyncio.Task[None]) -> bool:
    return bool((await asyncio.wait([heart], timeout=0.05))[0])


def test_a_program_s_end_is_told_at_once():
    async def test():
        server = Server()
        heart = await server.listen()
        await server.ask("/gradio_api/queue/data", query=b"session_hash=tab")
        server.break_off.set()
        return await ended(heart)

    assert in_a_loop(test())


def test_a_page_s_end_is_told_once_it_is_closed_or_has_been_away():
    async def test(away_s: float, *paths: str):
        server = Server(away_s)
        heart = await server.listen()
        await server.ask(CALL, b"tab/1")
        server.break_off.set()
        told = [await ended(heart)]
        for path in paths:
            await server.ask(path, b"tab/2")
        told.append(await ended(heart))
        server.beats._tabs and server.beats._tabs["tab"].gone.set()
        await heart
        return told

    assert in_a_loop(test(60.0)) == [False, False]
    assert in_a_loop(test(60.0, CALL)) == [False, False], "it is there"
    assert in_a_loop(test(60.0, CLOSED)) == [False, True]
    assert in_a_loop(test(0.0)) == [True, True]


@pytest.fixture
def forgotten(monkeypatch) -> list[list[str]]:
    """The prompts of each tab that was let go of; an earlier test's may be among them, whose tab is only now seen to be closed."""
    found, forget = [], Histories.forget
    monkeypatch.setattr(Histories, "forget", lambda self, tab: found.append([each.request.prompt for each in self.choose(tab, [])]) or forget(self, tab))
    return found


def test_what_a_tab_has_is_there_after_all_its_connections_broke_and_goes_when_it_is_closed(browser, fake_app, forgotten):
    between = Between(fake_app.url)
    tab = Tab(browser.new_page(), between)  # type: ignore[arg-type]
    compare(tab, "before")
    open_page(tab, "History")  # a tab's script that is lost with the connection never comes again
    tab.page.locator("#history label").first.wait_for()
    open_page(tab, "One prompt")
    between.cut()
    tab.wait(lambda: "No connection" in (tab.page.locator("#connection").text_content() or ""), "it is said")
    tab.type_and_click("meanwhile")
    between.mend()
    tab.wait(lambda: "meanwhile" in tab.verdict, "its end")
    open_page(tab, "History")
    tab.page.locator("#history label").nth(1).wait_for()
    ours = ["before", "meanwhile"]
    assert ours not in forgotten
    tab.page.goto("about:blank")
    until(lambda: ours in forgotten, 5, "it is let go of")
    tab.page.close()
