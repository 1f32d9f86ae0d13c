"""Who may ask, and how often: where strangers come, each has one run at a time, so many a minute, a prompt and an answer so long.

In: Gradio's request, and what is asked. Out: a `Visit`, to be ended, or a sentence that says when to try again. A visitor is an address (of IPv6
a /64, which is one household's): the peer's, or the one that a trusted proxy forwards, which the web server has put in its place
(`private.believe`). Keeps addresses in memory alone, for a minute and while a run goes on.
"""

from __future__ import annotations

import ipaddress
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import gradio as gr

from inference.errors import InferenceError
from inference.events import Request
from inference.settings import Settings
from inference.units import count

MINUTE_S = 60.0
MOST_VISITORS = 10_000
PRIVATE = ("127.0.0.0/8", "::1", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
LOOPBACK = ("127.0.0.0/8", "::1")
ONE_AT_A_TIME = "One prompt at a time: an answer for you is still on its way here. Try again when it has ended, or stop it."
OWN_PAGE = "On a page of your own there is no such limit."


def strangers_come(settings: Settings, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether anyone at all can open the page: on a Space and behind a share link."""
    return settings.share or bool(environ.get("SPACE_ID"))


def trusted_proxies(settings: Settings, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The addresses whose X-Forwarded-For is believed: those that are set, else what a Space or a share link brings along.

    A Space's own proxies have private addresses. A share link's tunnel ends on this machine; where others could connect from a private address, only that end is believed.
    """
    if settings.trusted_proxies or not strangers_come(settings, environ):
        return settings.trusted_proxies
    return PRIVATE if environ.get("SPACE_ID") or settings.host in ("127.0.0.1", "localhost", "::1") else LOOPBACK


@dataclass(eq=False)
class Visit:
    """One run of a visitor; `over` says whether it has ended."""

    over: Callable[[], bool] = lambda: False

    def end(self) -> None:
        """It has ended, or never began."""
        self.over = lambda: True


@dataclass(eq=False)
class Visitor:
    """When its runs of the last minute were let in, and the last of them."""

    times: deque[float] = field(default_factory=deque)
    visit: Visit | None = None

    @property
    def busy(self) -> bool:
        """Whether a run of this visitor goes on."""
        return self.visit is not None and not self.visit.over()


class Visitors:
    """The visitors of one page."""

    def __init__(self, settings: Settings, environ: Mapping[str, str] = os.environ, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock, self._lock = settings, clock, threading.Lock()
        self.limited = settings.limits == "on" or (settings.limits == "auto" and strangers_come(settings, environ))
        self._known: dict[str, Visitor] = {}  # the one let in last stands last

    def enter(self, request: gr.Request, asked: Request | None = None, rows: int = 1) -> Visit:
        """Let a visitor begin a run (`asked`, for so many rows of a prompts file); raises InferenceError with what to do instead."""
        visit = Visit()
        if not self.limited:
            return visit
        if asked:
            self._check(asked, rows)
        with self._lock:
            now, name = self._clock(), address(request)
            self._forget(now)
            visitor = self._known.get(name) or Visitor()
            if visitor.busy:
                raise InferenceError(ONE_AT_A_TIME)
            self._check_pace(visitor, now)
            visitor.times.append(now)
            visitor.visit = visit
            self._known.pop(name, None)
            self._known[name] = visitor
        return visit

    @contextmanager
    def visiting(self, request: gr.Request, asked: Request | None = None, rows: int = 1) -> Iterator[Visit]:
        """`enter` for a run that ends with the block."""
        visit = self.enter(request, asked, rows)
        try:
            yield visit
        finally:
            visit.end()

    def most_new_tokens(self, otherwise: int) -> int:
        """The longest answer that may be asked for, in tokens."""
        return min(otherwise, self._settings.limit_new_tokens or otherwise) if self.limited else otherwise

    def __len__(self) -> int:
        return len(self._known)

    def _check(self, asked: Request, rows: int) -> None:
        """Raise InferenceError where a request is longer than may be asked here."""
        settings, characters = self._settings, len(asked.prompt) + len(asked.system)
        if settings.limit_characters and characters > settings.limit_characters:
            words = (
                f"The prompt has {characters:,} characters, system prompt included; {settings.limit_characters:,} are the most here. Shorten it and send again."
            )
            raise InferenceError(f"{words} {OWN_PAGE}")
        if settings.limit_new_tokens and asked.max_new_tokens > settings.limit_new_tokens:
            words = (
                f"{asked.max_new_tokens:,} new tokens are more than may be asked for here, which is {settings.limit_new_tokens:,}. Set fewer and send again."
            )
            raise InferenceError(f"{words} {OWN_PAGE}")
        if settings.limit_rows and rows > settings.limit_rows:
            raise InferenceError(f"The file has {count(rows, 'prompt')}; {settings.limit_rows:,} are the most here. Split it. {OWN_PAGE}")

    def _check_pace(self, visitor: Visitor, now: float) -> None:
        """Raise InferenceError where a visitor has had all of its runs of this minute."""
        most = self._settings.limit_a_minute
        while visitor.times and visitor.times[0] <= now - MINUTE_S:
            visitor.times.popleft()
        if most and len(visitor.times) >= most:
            wait_s = max(1, math.ceil(visitor.times[0] + MINUTE_S - now))
            raise InferenceError(f"{count(most, 'prompt')} a minute {'is' if most == 1 else 'are'} the most here. Try again in {wait_s} s.")

    def _forget(self, now: float) -> None:
        """Drop those of whom nothing counts any more, and the oldest where there are too many."""
        for name, visitor in list(self._known.items()):
            expired = not visitor.times or visitor.times[-1] <= now - MINUTE_S
            if not expired and len(self._known) < MOST_VISITORS:
                return  # all that follow came later
            if not visitor.busy:
                del self._known[name]


def address(request: gr.Request) -> str:
    """Whose request it is: an address, of IPv6 its /64 network; one word for all that have none."""
    client = getattr(request, "client", None)
    try:
        found = ipaddress.ip_address((client.host if client else "").partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
