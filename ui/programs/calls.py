"""A program's call over plain HTTP, before Gradio takes it: what is left out gets its default, what can't be meant gets a sentence.

An ASGI middleware around the app: looks at what is posted to a named endpoint, and at whether an event that is listened to is there and was not
heard before. Gradio alone wants every value in its place, answers a wrong call with "null" or a bare 500, a listener to nothing with a
broken stream, a trace in the log and a task that is never over, and a second listener with heartbeats for ever.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from urllib.parse import parse_qs

from fastapi.exceptions import RequestValidationError
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inference.errors import WrongArguments
from ui import private

MOST_BYTES = 4 * 2**20  # the longest prompt that is taken, each of its characters escaped
MOST_HEARD = 4000  # Gradio holds the messages of 2,000: whatever is forgotten after twice as many is no longer there to be heard again
_CALL = re.compile(r"/gradio_api/(call|run|api)/(v2/)?([^/]+)/?$")
_EVENT = re.compile(r"/gradio_api/call/(?:v2/)?[^/]+/([^/]+)/?$")
_STREAM = re.compile(r"/gradio_api/queue/data/?$")
NO_EVENT = "There is no such event, or its answer was heard already. Post the call again, and listen to the event that it names."
FULL = "So many calls wait here already that no more are taken. Post it again in a moment."
NO_JSON = "The call's body must be a JSON object: {{\"data\": [...]}}, the values in the order of {name}'s parameters."


class Calls:
    """Around the app; `signatures` are those of the endpoints, by name."""

    def __init__(self, app: ASGIApp, signatures: Mapping[str, inspect.Signature]) -> None:
        self._app, self._signatures = app, signatures
        self._heard: dict[str, None] = {}  # events that somebody listened to, the oldest first: Gradio keeps an answer's place after it was read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass all on, a call of an endpoint with every value in its place, or refuse it with 422 and {"error": sentence}."""
        method = scope["method"] if scope["type"] == "http" else ""
        if method == "GET" and (event := _EVENT.search(scope["path"])):
            await self._listened(event[1], scope, receive, send)
            return
        if method == "GET" and (instead := gone(scope)):
            await instead(scope, receive, send)
            return
        posted = _CALL.search(scope["path"]) if method == "POST" else None
        if posted is None or (posted[1] != "call" and posted[3] not in self._signatures):  # the page's own listeners
            await self._app(scope, receive, send)
            return
        await self._called(posted[3], bool(posted[2]), scope, receive, send)

    async def _listened(self, event: str, scope: Scope, receive: Receive, send: Send) -> None:
        """One reading of an event; whoever comes to it later, or beside that, is told by 404 that it is not there."""
        if event in self._heard or not private.has_messages(scope["app"], event):
            await JSONResponse({"error": NO_EVENT}, 404)(scope, receive, send)
            return
        self._heard[event] = None
        if len(self._heard) > MOST_HEARD:
            del self._heard[next(iter(self._heard))]

        async def answered(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] != 200:
                self._heard.pop(event, None)  # refused, such as without the password: nothing was read
            await send(message)

        await self._app(scope, receive, answered)

    async def _called(self, name: str, by_name: bool, scope: Scope, receive: Receive, send: Send) -> None:
        """A call of an endpoint, put right; a queue that is full is told as every other fault is."""
        if name not in self._signatures:
            told = f"There is no endpoint {name[:80]} here. There are: {', '.join(self._signatures)}."
            await JSONResponse({"error": told}, 404)(scope, receive, send)
            return
        try:
            body = completed(await whole(receive), name, self._signatures[name], by_name)
        except WrongArguments as error:
            await JSONResponse({"error": str(error)}, 422)(scope, receive, send)
            return
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        full = False

        async def passed_on(message: Message) -> None:
            nonlocal full
            if message["type"] == "http.response.start" and message["status"] == 503:
                full = True
                await JSONResponse({"error": FULL}, 503, {"Retry-After": "5"})(scope, receive, send)
            if not full:
                await send(message)

        await self._app({**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}, replayed(body, receive), passed_on)


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
        call = json.loads(body, parse_constant=_no_number)
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
    if nested := [key for key, value in found.arguments.items() if isinstance(value, (list, dict))]:
        raise WrongArguments(f"/{name} takes texts, numbers, true and false, and {nested[0]} is a list or an object. Give one value.")
    found.apply_defaults()
    return dict(found.arguments)


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def gone(scope: Scope) -> Response | None:
    """Gradio's own word for a session that is gone, for the page that listens to one; None for any other request."""
    if not _STREAM.search(scope["path"]):
        return None
    session = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get("session_hash", [None])[0]
    if session is None or private.has_messages(scope["app"], session):
        return None
    told = {"msg": "unexpected_error", "event_id": None, "message": "404: Not Found", "session_not_found": True, "success": False}
    return Response(f"data: {json.dumps(told)}\n\n", media_type="text/event-stream")


async def unreadable(request: Request, error: Exception) -> Response:
    """What the web server answers for a body whose parts are of the wrong kind, without the body in it."""
    found = error.errors() if isinstance(error, RequestValidationError) else []
    places = {".".join(map(str, each["loc"]))[:80]: each["msg"] for each in found[:3]}
    return JSONResponse({"error": "The call can't be read. " + "; ".join(f"{place}: {words}" for place, words in places.items())}, 422)


def calls(signatures: Mapping[str, inspect.Signature]) -> Middleware:
    """What the web server puts around the app for the endpoints of these names and parameters."""
    return Middleware(Calls, signatures=signatures)
