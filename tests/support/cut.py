"""What stands between a browser and the page, and can be cut: all its connections break, and no new one is made until it is mended."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlparse


class Between:
    """Passes all on to `target`, an address, from an address of its own."""

    def __init__(self, target: str) -> None:
        self._target, self._port = urlparse(target).port, 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.mend()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    def mend(self) -> None:
        """Take connections, at the same address as before."""
        self._server = self._do(asyncio.start_server(self._passed, "127.0.0.1", self._port))
        self._port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        self._do(self._broken())

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(5)

    async def _broken(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _passed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, there_writer}
        await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    writer.close()
