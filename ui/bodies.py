"""How much may be sent to the page at once: more is refused, and kept nowhere, so that it fills neither memory nor disk.

An ASGI middleware around the app. Gradio's own limit (`max_file_size`) is for one file of an upload; this is for all that a request carries.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inference.series.prompts import MOST_BYTES
from inference.units import size

ENVELOPE_BYTES = 2**20  # what a form adds to its file
HEARD_OUT_BYTES = 2**26
TOO_LARGE = f"That is larger than {size(MOST_BYTES)}, the most that can be sent to this page. Split it."


class Bodies:
    """Around the app; requests of more than `most` bytes get `TOO_LARGE`."""

    def __init__(self, app: ASGIApp, most: int = MOST_BYTES + ENVELOPE_BYTES) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse by the length that is told, and by the bytes that come where none is."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = dict(scope["headers"]).get(b"content-length", b"")
        if told.isdigit() and int(told) > self._most:
            if int(told) <= HEARD_OUT_BYTES:
                await _hear_out(receive)
            await PlainTextResponse(TOO_LARGE, 413)(scope, receive, send)
            return
        await self._app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        came = 0

        async def receive_counted() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > self._most:
                await _hear_out(receive, came, message.get("more_body", False))
                raise HTTPException(413, TOO_LARGE)
            return message

        return receive_counted


async def _hear_out(receive: Receive, came: int = 0, more: bool = True) -> None:
    """Let the rest of a body come and go, kept nowhere: most clients read no answer before they have sent all, and see a broken pipe."""
    while more and came <= HEARD_OUT_BYTES:
        message = await receive()
        came += len(message.get("body", b""))
        more = message.get("more_body", False)


def bounded() -> Middleware:
    """What `launch` passes on to the web server for it."""
    return Middleware(Bodies)
