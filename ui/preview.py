"""What a shared link shows before it is opened: our title, sentence and picture, in the place of Gradio's own, which its page has fixed.

An ASGI middleware around the app: changes the page's HTML and nothing else. The picture is served under PICTURE.
"""

from __future__ import annotations

import html
import re
import struct
from pathlib import Path

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PICTURE = "/preview.png"
_HOST = re.compile(r"[\w.-]+(:\d+)?", re.A)
_THEIRS = re.compile(rb'\s*<meta\s+(?:property="og:|name="twitter:)[^>]*>', re.S)


class Preview:
    """Around the app; `picture` is a PNG file."""

    def __init__(self, app: ASGIApp, title: str, words: str, picture: Path) -> None:
        self._app, self._title, self._words, self._picture, self._size = app, title, words, picture, size_of(picture)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the picture; pass all else on, the page itself with our tags in it."""
        path = scope.get("path", "")
        if scope["type"] != "http" or path not in ("/", PICTURE):
            await self._app(scope, receive, send)
        elif path == PICTURE:
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
        address = visited(Request(scope)) + scope.get("root_path", "")
        tags = {
            "og:title": self._title, "og:description": self._words, "og:type": "website", "og:url": f"{address}/", "og:image": address + PICTURE,
            "og:image:width": str(self._size[0]), "og:image:height": str(self._size[1]), "og:image:alt": "The page: who won, and both answers with their figures",
        }  # fmt: skip
        ours = "".join(f'<meta property="{name}" content="{html.escape(words)}" />' for name, words in tags.items())
        named = {"twitter:card": "summary_large_image", "description": self._words}
        ours += "".join(f'<meta name="{name}" content="{html.escape(words)}" />' for name, words in named.items())
        return _THEIRS.sub(b"", page).replace(b"<head>", b"<head>" + ours.encode(), 1)


def visited(request: Request) -> str:
    """The address that the visitor sees, as the proxy before us says it; a host or scheme that can be none is not believed."""
    scheme, host = (request.headers.get(f"x-forwarded-{name}", "").split(",")[0].strip() for name in ("proto", "host"))
    return f"{scheme if scheme in ('http', 'https') else request.url.scheme}://{host if _HOST.fullmatch(host) else request.url.netloc}"


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG file in pixels."""
    with picture.open("rb") as file:
        return struct.unpack(">II", file.read(24)[16:])


def preview(title: str, words: str, picture: Path) -> Middleware:
    """What `launch` passes on to the web server for it."""
    return Middleware(Preview, title=title, words=words, picture=picture)
