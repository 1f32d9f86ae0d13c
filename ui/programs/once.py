"""A call that the page makes again, since it can't see whether the first one came, is answered as that was: nothing is done twice.

An ASGI middleware around the app, for what `looks/connection.js` has given a name. A Send that came twice would be a Stop. Each tab's last few answers
are kept, until its connection ends: with that Gradio lets go of the tab itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import re

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.tabs import CONTAINER, Tabs

HEADER = b"x-once"
MOST_CALLS = 8  # of a tab: while it has no connection it makes no more than wait already
MOST_BYTES = 32 * 2**20
_NAMED = re.compile(rb"([\w-]{1,64})/([\w-]{1,64})")
BEAT = re.compile(r"/gradio_api/heartbeat/([^/]+)/?$")
Answers = dict[bytes, "asyncio.Future[list[Message]]"]  # of a tab, by the call's name


class Once:
    """Around the app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tabs: Tabs[Answers] = Tabs(most_bytes=MOST_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass all on but what was answered before, or is being answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif beat := BEAT.search(scope["path"]):
            try:
                await self._app(scope, receive, send)
            finally:
                self._tabs.drop(beat[1])
        elif named := _NAMED.fullmatch(dict(scope["headers"]).get(HEADER, b"")):
            await self._named(named[1].decode(), named[2], scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _named(self, tab: str, call: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        answers = self._tabs.get(tab) or {}
        first = answers.get(call)
        for message in await asyncio.shield(first) if first else ():
            await send(message)
        if first and first.result():
            return
        answer: asyncio.Future[list[Message]] = asyncio.get_running_loop().create_future()
        answers[call] = answer
        for old in list(answers)[:-MOST_CALLS]:
            del answers[old]
        self._tabs.put(tab, answers, size_of(answers))
        answer.set_result(await self._answered(scope, receive, send, answer))
        self._tabs.resize(tab, answers, size_of(answers))

    async def _answered(self, scope: Scope, receive: Receive, send: Send, answer: asyncio.Future[list[Message]]) -> list[Message]:
        """What the app answers; nothing where it refused, since a call that came in part is refused, too."""
        said: list[Message] = []

        async def kept(message: Message) -> None:
            said.append(message)
            with contextlib.suppress(OSError):  # whoever asked is away, and will ask again
                await send(message)

        try:
            await self._app(scope, receive, kept)
        except BaseException:
            answer.set_result([])
            raise
        return said if said and said[0].get("status") == 200 else []


def size_of(answers: Answers) -> int:
    """About how many bytes a tab's answers take."""
    given = [answer.result() for answer in answers.values() if answer.done()]
    return CONTAINER * len(answers) + sum(len(message.get("body", b"")) for messages in given for message in messages)


def once() -> Middleware:
    """What `launch` passes on to the web server for it."""
    return Middleware(Once)
