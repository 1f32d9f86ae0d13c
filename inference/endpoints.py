"""A server elsewhere that is a lane: where it is, what it is called, and its key, read from the environment and nowhere else.

In: an environment. Out: `Endpoint`s, whose address and key stand in no text made of them. Standard library only; asks nothing of a server.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from inference.errors import WrongArguments
from inference.lanes import ENDPOINT_NAME

URL = "_URL"
USUAL_PATIENCE_S, LONGEST_PATIENCE_S = 60, 3600


@dataclass(frozen=True)
class Endpoint:
    """One server. `patience_s`: how long it may be silent; what may not be shown is left out of its text."""

    name: str
    url: str = field(repr=False)
    model: str = ""
    title: str = ""
    key: str = field(default="", repr=False)
    patience_s: int = USUAL_PATIENCE_S

    @property
    def on_this_machine(self) -> bool:
        """Whether its address is this machine's own, so that it is never asked by a proxy, and shares the processor with the lanes here."""
        host = (urlsplit(self.url).hostname or "").rstrip(".")
        try:
            address = ipaddress.ip_address(host)
            return address.is_loopback or address.is_unspecified  # 0.0.0.0, as a server that starts prints it
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")

    def check(self) -> None:
        """Raise WrongArguments, naming the variable and not its value, where a server can't be asked by these."""
        variable = variable_of(self.name, "URL")
        if not self.url:
            raise WrongArguments(f"The lane endpoint:{self.name} needs {variable}: the address of an OpenAI-compatible server.")
        try:
            parts = urlsplit(self.url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            good = False
        if not good or not self.url.isprintable() or " " in self.url:
            raise WrongArguments(f"{variable} must be a whole address, such as http://127.0.0.1:8000/v1.")
        if parts.username or parts.password:
            raise WrongArguments(f"{variable} holds a user or a password. Put the key into {variable_of(self.name, 'KEY')}.")
        if not self.key.isascii() or not self.key.isprintable():
            raise WrongArguments(f"{variable_of(self.name, 'KEY')} holds signs that no key has. Copy it again.")
        if not 1 <= self.patience_s <= LONGEST_PATIENCE_S:
            raise WrongArguments(f"{variable_of(self.name, 'TIMEOUT')} must be from 1 to {LONGEST_PATIENCE_S} whole seconds.")

    def to_env(self) -> dict[str, str]:
        """The variables that `endpoints_of` reads this from."""
        values = {"URL": self.url, "MODEL": self.model, "TITLE": self.title, "KEY": self.key, "TIMEOUT": str(self.patience_s)}
        return {variable_of(self.name, part): value for part, value in values.items()}

    def without_secrets(self, text: str) -> str:
        """`text` with neither the address nor the key in it, whatever wrote it."""
        parts = urlsplit(self.url)
        for secret in filter(None, (self.key, self.url, self.url.rstrip("/"), parts.netloc, parts.query, parts.hostname)):
            text = text.replace(secret, "***")
        return text


def variable_of(name: str, part: str) -> str:
    """The environment variable of an endpoint: ("my-server", "URL") -> "ENDPOINT_MY_SERVER_URL"."""
    return f"ENDPOINT_{name.upper().replace('-', '_')}_{part}"


def endpoints_of(environ: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Those that the environment names an address for, in the order of their names; checked only where a lane uses one (`check`)."""
    variables = sorted(name for name, value in environ.items() if name.startswith("ENDPOINT_") and name.endswith(URL) and value.strip())
    names = (name.removeprefix("ENDPOINT_").removesuffix(URL).lower().replace("_", "-") for name in variables)
    return tuple(_endpoint(name, environ) for name in names if ENDPOINT_NAME.fullmatch(name))


def _endpoint(name: str, environ: Mapping[str, str]) -> Endpoint:
    url, model, title, key, patience = (environ.get(variable_of(name, part), "").strip() for part in ("URL", "MODEL", "TITLE", "KEY", "TIMEOUT"))
    return Endpoint(name, url, model, title, key, USUAL_PATIENCE_S if not patience else int(patience) if patience.isdecimal() and len(patience) < 9 else 0)
