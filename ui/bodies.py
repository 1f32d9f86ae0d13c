"""How much may be sent to the page at once, and how much of it is kept: more is refused, and what is older goes, so that it fills neither memory nor disk.

An ASGI middleware around the app. Gradio's own limit (`max_file_size`) is for one file of an upload; this is for all that a request carries, and for all
uploads together.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inference.host import temporary
from inference.series.prompts import MOST_BYTES
from inference.units import size

ENVELOPE_BYTES = 2**20  # what a form adds to its file
HEARD_OUT_BYTES = 2**26
PLACE, PREFIX = "GRADIO_TEMP_DIR", "gpu-vs-cpu-uploads-"
UPLOAD = "/gradio_api/upload"
UPLOADS_AT_ONCE = 8
UPLOAD_S = 120.0  # for all of it: one that trickles in holds its place no longer
KEPT_BYTES, KEPT_FILES = 256 * 2**20, 1000  # of all uploads together
TOO_MANY = "Too many files are being sent to this page at the moment. Try again in a minute."
TOO_SLOW = f"The file did not come within {UPLOAD_S:.0f} s. Send it again."
TOO_LARGE = f"That is larger than {size(MOST_BYTES)}, the most that can be sent to this page. Split it."


class Bodies:
    """Around the app; requests of more than `most` bytes get `TOO_LARGE`. `folder` is where uploads are put."""

    def __init__(self, app: ASGIApp, folder: Path, most: int = MOST_BYTES + ENVELOPE_BYTES) -> None:
        self._app, self._folder, self._most, self._uploads = app, folder, most, 0

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
        if scope["path"].rstrip("/") == UPLOAD:
            await self._upload(scope, receive, send)
        else:
            await self._app(scope, self._counted(receive), send)

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One upload among few, the oldest ones making room for it."""
        if self._uploads >= UPLOADS_AT_ONCE:
            await PlainTextResponse(TOO_MANY, 503)(scope, receive, send)
            return
        self._uploads += 1
        try:
            await asyncio.to_thread(make_room, self._folder)
            async with asyncio.timeout(UPLOAD_S):
                await self._app(scope, self._counted(receive), send)
        except TimeoutError:
            await PlainTextResponse(TOO_SLOW, 408)(scope, receive, send)
        finally:
            self._uploads -= 1

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


@functools.cache
def own_folder() -> Path:
    """A folder for what is uploaded to this process's page, which nobody else can read and which goes with it; Gradio uses it from now on.

    Its own is one for all programs and users of the machine. Raises WrongArguments where none can be made.
    """
    stack = contextlib.ExitStack()
    folder = stack.enter_context(temporary.folder(PREFIX, os.environ.get(PLACE, ""), PLACE))
    atexit.register(stack.close)
    os.environ[PLACE] = str(folder)
    return folder


def make_room(folder: Path, most_bytes: int = KEPT_BYTES, most_files: int = KEPT_FILES) -> None:
    """Remove the oldest files below `folder` until so many are left; whoever chose one is told when he runs it."""
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # Gradio removes some as well
            if path.is_file():
                state = path.stat()
                found.append((state.st_mtime, state.st_size, path))
    found.sort(reverse=True)
    total = 0
    for number, (_, size_bytes, path) in enumerate(found):
        total += size_bytes
        if total > most_bytes or number >= most_files:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # others are in it
                path.parent.rmdir()


def bounded() -> Middleware:
    """What `launch` passes on to the web server for it."""
    return Middleware(Bodies, folder=own_folder())
