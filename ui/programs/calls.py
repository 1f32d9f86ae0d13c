"""A program's call over plain HTTP, before Gradio takes it: what is left out gets its default, what can't be meant gets a sentence.

An ASGI middleware around the app: looks only at what is posted to a named endpoint. Gradio alone wants every value in its place, and
answers a wrong call with "null" or a bare 500.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inference.errors import WrongArguments

MOST_BYTES = 4 * 2**20  # the longest prompt that is taken, each of its characters escaped
_CALL = re.compile(r"/gradio_api/(?:call|run|api)/(v2/)?(\w+)/?$")
NO_JSON = "The call's body must be a JSON object: {{\"data\": [...]}}, the values in the order of {name}'s parameters."


class Calls:
    """Around the app; `signatures` are those of the endpoints, by name."""

    def __init__(self, app: ASGIApp, signatures: Mapping[str, inspect.Signature]) -> None:
        self._app, self._signatures = app, signatures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass all on, a call of an endpoint with every value in its place, or refuse it with 422 and {"error": sentence}."""
        posted = _CALL.search(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if posted is None or posted[2] not in self._signatures:
            await self._app(scope, receive, send)
            return
        try:
            body = completed(await whole(receive), posted[2], self._signatures[posted[2]], by_name=bool(posted[1]))
        except WrongArguments as error:
            await JSONResponse({"error": str(error)}, 422)(scope, receive, send)
            return
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        await self._app({**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}, replayed(body, receive), send)


async def whole(receive: Receive) -> bytes:
    """A request's body; raises WrongArguments for one past MOST_BYTES, and where the client leaves."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MOST_BYTES:
            raise WrongArguments(f"The call has more than {MOST_BYTES // 2**20} MiB. Shorten the prompt.")
        if not message.get("more_body"):
            return bytes(body)


def replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives `body` at once and then what else comes."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return first.pop() if first else await receive()

    return receive_again


def completed(body: bytes, name: str, signature: inspect.Signature, by_name: bool) -> bytes:
    """The body of a call with defaults where values were left out; raises WrongArguments."""
    try:
        call = json.loads(body)
    except (ValueError, RecursionError):
        call = None
    if not isinstance(call, dict):
        raise WrongArguments(NO_JSON.format(name=name))
    if by_name:
        values = {key: value for key, value in call.items() if key != "oauth_token"}
        return json.dumps(bound(name, signature, lambda: signature.bind(**values))).encode()
    placed = call.get("data")
    if not isinstance(placed, list):
        raise WrongArguments(NO_JSON.format(name=name))
    return json.dumps({**call, "data": [*bound(name, signature, lambda: signature.bind(*placed)).values()]}).encode()


def bound(name: str, signature: inspect.Signature, bind: Callable[[], inspect.BoundArguments]) -> dict[str, Any]:
    """All values by name, the defaults too; raises WrongArguments where they don't fit the parameters."""
    try:
        found = bind()
    except TypeError as error:
        raise WrongArguments(
            f"/{name} can't take these values: {error}. It takes: {', '.join(signature.parameters)}; all but the prompt may be left out."
        ) from None
    found.apply_defaults()
    return dict(found.arguments)


def calls(signatures: Mapping[str, inspect.Signature]) -> Middleware:
    """What the web server puts around the app for the endpoints of these names and parameters."""
    return Middleware(Calls, signatures=signatures)
