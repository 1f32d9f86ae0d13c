"""A tab whose connection breaks is not closed: it is let go of when it says so, or when nothing was heard of it for a while.

An ASGI middleware around the app. Gradio runs the `unload` listeners at the end of a tab's one stream of heartbeats, whatever ended it, and its page
opens no other. So that end is told later: once the page has said that it is closed (`looks/connection.js`), or AWAY_S after its last call or stream.
A program's stream, which names no call, ends as ever.
"""

from __future__ import annotations

import asyncio
import re
from urllib.parse import parse_qs

from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.programs.once import BEAT, HEADER
from ui.tabs import MOST_TABS

AWAY_S = 600.0
_CLOSED = re.compile(r"/gradio_api/closed/([^/]+)/?$")
_STREAM = re.compile(r"/gradio_api/queue/data/?$")


class Beats:
    """Around the app."""

    def __init__(self, app: ASGIApp, away_s: float = AWAY_S) -> None:
        self._app, self._away_s = app, away_s
        self._tabs: dict[str, _Tab] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass all on but the word that a tab is closed."""
        path = scope["path"] if scope["type"] == "http" else ""
        if closed := _CLOSED.search(path):
            if tab := self._tabs.get(closed[1]):
                tab.gone.set()
            await Response(status_code=204)(scope, receive, send)
        elif (beat := BEAT.search(path)) and beat[1] not in self._tabs and len(self._tabs) < MOST_TABS:
            await self._beat(beat[1], scope, receive, send)
        elif tab := self._tabs.get(_tab_of(scope) if path else ""):
            tab.come(not _STREAM.search(path))
            try:
                await self._app(scope, receive, send)
            finally:
                tab.go()
        else:
            await self._app(scope, receive, send)

    async def _beat(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        tab = self._tabs[name] = _Tab(self._away_s)
        try:
            await self._app(scope, tab.lasting(receive), send)
        finally:
            del self._tabs[name]


def _tab_of(scope: Scope) -> str:
    """The tab that a page's call or stream is of; empty for all else."""
    if _STREAM.search(scope["path"]):
        return parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [""])[0]
    return dict(scope["headers"]).get(HEADER, b"").decode("latin-1").partition("/")[0]


class _Tab:
    """One tab: what goes on of it, and whether it was let go of."""

    def __init__(self, away_s: float) -> None:
        self.gone = asyncio.Event()
        self._away_s, self._open, self._of_a_page = away_s, 0, False
        self._timer: asyncio.TimerHandle | None = None

    def come(self, named: bool) -> None:
        """A call or a stream begins; a page's calls have names."""
        self._of_a_page |= named
        self._begun()

    def _begun(self) -> None:
        self._open += 1
        if self._timer:
            self._timer.cancel()

    def go(self) -> None:
        """One has ended."""
        self._open -= 1
        if not self._open:
            self._timer = asyncio.get_running_loop().call_later(self._away_s if self._of_a_page else 0, self.gone.set)

    def lasting(self, receive: Receive) -> Receive:
        """A `receive` of the heartbeats, which tells of their end once the tab is let go of."""
        self._begun()

        async def receive_lasting() -> Message:
            message = asyncio.ensure_future(receive())
            gone = asyncio.ensure_future(self.gone.wait())
            try:
                await asyncio.wait([message, gone], return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return {"type": "http.disconnect"}
                if message.result()["type"] == "http.disconnect":
                    self.go()
                    await gone
                return message.result()
            finally:
                message.cancel()
                gone.cancel()

        return receive_lasting


def lasting() -> Middleware:
    """What `launch` passes on to the web server for it."""
    return Middleware(Beats)
