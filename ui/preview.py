"""What a shared link shows before it is opened: our title, sentence and picture, in the place of Gradio's own, which its page has fixed.

An ASGI middleware around the app: changes the page's HTML and nothing else. The picture is the README's, served under PICTURE.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PICTURE = "/preview.png"
_THEIRS = re.compile(rb'\s*<meta\s+(?:property="og:|name="twitter:)[^>]*>', re.S)


class Preview:
    """Around the app; `picture` is a PNG file."""

    def __init__(self, app: ASGIApp, title: str, words: str, picture: Path) -> None:
        self._app, self._title, self._words, self._picture = app, title, words, picture

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the picture; pass all else on, the page itself with our tags in it."""
        path = scope.get("path", "")
        if scope["type"] != "http" or path not in ("/", PICTURE):
            await self._app(scope, receive, send)
        elif path == PICTURE and self._picture.is_file():
            await FileResponse(self._picture)(scope, receive, send)
        else:
            await self._app(scope, receive, self._changed(scope, send))

    def _changed(self, scope: Scope, send: Send) -> Send:
        """A `send` that holds the page back until it is whole, and then gives it with our tags; anything that is no HTML as it is."""
        start: list[Message] = []
        body = bytearray()

        async def send_changed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = dict(message["headers"])
                if not headers.get(b"content-type", b"").startswith(b"text/html") or b"content-encoding" in headers:
                    await send(message)
                else:
                    start.append(message)
                return
            if not start:
                await send(message)
                return
            body.extend(message.get("body", b""))
            if not message.get("more_body"):
                page = self._tagged(bytes(body), scope)
                rest = [(name, value) for name, value in start[0]["headers"] if name != b"content-length"]
                await send({**start[0], "headers": [*rest, (b"content-length", str(len(page)).encode())]})
                await send({"type": "http.response.body", "body": page})

        return send_changed

    def _tagged(self, page: bytes, scope: Scope) -> bytes:
        request = Request(scope)
        scheme = request.headers.get("x-forwarded-proto", request.url.scheme).split(",")[0]
        picture = f"{scheme}://{request.url.netloc}{scope.get('root_path', '')}{PICTURE}"
        tags = {"og:title": self._title, "og:description": self._words, "og:type": "website", "og:image": picture, "twitter:card": "summary_large_image"}
        ours = "".join(f'<meta property="{name}" content="{html.escape(words)}" />' for name, words in tags.items())
        ours += f'<meta name="description" content="{html.escape(self._words)}" />'
        return _THEIRS.sub(b"", page).replace(b"<head>", b"<head>" + ours.encode(), 1)


def preview(title: str, words: str, picture: Path) -> Middleware:
    """What the web server puts around the app for it."""
    return Middleware(Preview, title=title, words=words, picture=picture)
