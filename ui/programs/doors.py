"""What of Gradio's web server this page has no use for is closed: no door fetches an address, writes a file or keeps what is on the page for a visitor who asks.

An ASGI middleware around the app, which answers 404 there; and Gradio's own ways to fetch an address that a visitor names, which refuse.
"""

from __future__ import annotations

import re

from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

# a link that keeps what is typed as a file, a component's own functions, a video to be worked on, other pages fetched through this one
_CLOSED = re.compile(r"/gradio_api/(deep_link|component_server|process_recording|proxy=|file=\s*https?:)", re.I)
CLOSED = "This page has no such door."


class Doors:
    """Around the app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass all on but what is closed."""
        if scope["type"] == "http" and _CLOSED.search(scope["path"]):
            await PlainTextResponse(CLOSED, 404)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def closed() -> Middleware:
    """What `launch` passes on to the web server for it."""
    return Middleware(Doors)
