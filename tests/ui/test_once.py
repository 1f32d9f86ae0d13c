"""A call that the page makes again is answered as the first one was, and done once."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.support.until import in_a_loop
from ui.programs.once import MOST_CALLS, Once

CALL = "/gradio_api/run/predict"


class App:
    """Counts what comes; answers what it is told to, once it may."""

    def __init__(self) -> None:
        self.done, self.status, self.may = 0, 200, asyncio.Event()
        self.may.set()
        self.once = Once(self)

    async def __call__(self, scope, receive, send) -> None:
        await self.may.wait()
        self.done += 1
        if self.status == 0:
            raise RuntimeError
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % self.done})

    async def ask(self, name: bytes = b"", path: str = CALL, away: bool = False) -> bytes:
        """What a client gets; nothing where it is away when the answer comes."""
        got: list[bytes] = []

        async def send(message) -> None:
            if away:
                raise OSError
            got.append(message.get("body", b""))

        headers = [(b"x-once", name)] if name else []
        await self.once({"type": "http", "method": "POST", "path": path, "headers": headers}, None, send)
        return b"".join(got)


def test_a_call_whose_answer_was_lost_is_answered_and_not_done_again():
    async def test():
        app = App()
        await app.ask(b"tab/1", away=True)
        return [await app.ask(b"tab/1"), await app.ask(b"tab/2"), await app.ask(b"other/1"), await app.ask(), await app.ask()]

    assert in_a_loop(test()) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_call_that_comes_again_while_it_is_worked_on_waits_for_that():
    async def test():
        app = App()
        app.may.clear()
        both = [asyncio.ensure_future(app.ask(b"tab/1")) for _ in range(2)]
        await asyncio.sleep(0)
        app.may.set()
        return await asyncio.gather(*both)

    assert in_a_loop(test()) == [b"1", b"1"]


@pytest.mark.parametrize("status", [0, 400, 500])
def test_a_call_that_was_refused_perhaps_since_it_came_in_part_is_done_when_it_comes_again(status):
    async def test():
        app = App()
        app.status = status
        with contextlib.suppress(RuntimeError):
            await app.ask(b"tab/1")
        app.status = 200
        return await app.ask(b"tab/1")

    assert in_a_loop(test()) == b"2"


def test_a_tab_s_answers_go_with_its_connection_and_the_oldest_before_that():
    async def test():
        app = App()
        for number in range(MOST_CALLS + 1):
            await app.ask(b"tab/%d" % number)
        assert await app.ask(b"tab/1") == b"2" and await app.ask(b"tab/0") == b"10"
        await app.ask(path="/gradio_api/heartbeat/tab")
        assert app.once._tabs.get("tab") is None

    in_a_loop(test())
