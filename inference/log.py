"""The log: a process's stderr, in which control characters are shown, not obeyed, and secrets stand nowhere, whoever writes there.

In: the environment. Out: a stream in the place of `sys.stderr`. Standard library only; what a C library writes past Python is not seen here.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO, cast

from inference import terminal

SECRET = re.compile(r"(TOKEN|KEY|SECRET|PASSWORD)$", re.I)
IN_ADDRESS = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
CLIENTS = ("httpx", "httpx2")  # each logs every address that it asks
SHORTEST = 6  # a shorter value would blank out words that mean something else


class Log:
    """`stream`, with what is written to it made plain; all else of it as it is."""

    def __init__(self, stream: TextIO, secrets: Iterable[str]) -> None:
        self._stream, self._secrets = stream, sorted((secret for secret in secrets if len(secret) >= SHORTEST), key=len, reverse=True)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write `text` without secrets, its control characters as escapes."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        self._stream.write(terminal.printable(text))
        return len(text)


def hush_clients(level: int) -> None:
    """Let the network's clients log from `level` on only."""
    for client in CLIENTS:
        logging.getLogger(client).setLevel(level)


def secrets_of(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The values of variables that are called a token, key, secret or password, the password of AUTH, and those in addresses (of a proxy, of a mirror)."""
    called = [value for name, value in environ.items() if SECRET.search(name)]
    return [
        *called,
        environ.get("AUTH", "").strip(" \r\n\"'").partition(":")[2],
        *(found[1] for value in environ.values() if (found := IN_ADDRESS.search(value))),
    ]


def of_stderr(*secrets: str) -> TextIO:
    """Stderr as a log, for those who are told to write there; `secrets` don't reach it either."""
    return cast(TextIO, Log(sys.stderr, [*secrets_of(), *secrets]))


def begin(*secrets: str) -> None:
    """Let all that this process writes to stderr go through one."""
    if sys.stderr is not None and not isinstance(sys.stderr, Log):
        sys.stderr = of_stderr(*secrets)
