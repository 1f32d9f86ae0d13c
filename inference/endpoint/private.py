"""What is taken from huggingface_hub and its HTTP library without a promise: one session for one server, and the sockets under it.

In: an endpoint. Out: a session that sends the endpoint's key and no other, follows no redirect (a hook refuses it first), logs nothing, and whose sockets can be shut
from another thread, which closing a response can't do while it is read.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from typing import Any

from inference.endpoints import Endpoint
from inference.errors import InferenceError
from inference.host import certificates

PROXIES = ("http_proxy", "https_proxy", "all_proxy")
TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")  # the Hub's own, which is no other server's business
LOGGERS = ("httpx", "httpx2", "httpcore", "httpcore2", "huggingface_hub")  # they log addresses
MOST_CONNECT_S = 10.0
NO_KEY = "none"
REDIRECT = "The server answers with a redirect ({}), which is not followed, since the key would go along. Set {} to where it leads."


def prepare(endpoint: Endpoint) -> None:
    """Settle what huggingface_hub reads from the environment when it is imported; this process speaks with one server only."""
    for name in TOKENS:
        os.environ.pop(name, None)
    os.environ.update(HF_TOKEN_PATH=os.devnull, HF_HUB_OFFLINE="0", TRANSFORMERS_OFFLINE="0", HF_DEBUG="0", HF_HUB_DISABLE_TELEMETRY="1")
    if endpoint.on_this_machine:
        for name in PROXIES:
            os.environ.pop(name, None)
            os.environ.pop(name.upper(), None)
    if endpoint.url.startswith("http:"):
        for name in certificates.VARIABLES:  # each client that is made reads them
            os.environ.pop(name, None)
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


class Session:
    """The one HTTP session of this process; every socket that it opened is known."""

    def __init__(self, endpoint: Endpoint, address_variable: str) -> None:
        """Raises InferenceError where this machine's certificates can't be used."""
        if unusable := certificates.fault():
            raise InferenceError(f"The server can't be asked: {unusable}. Correct that variable or unset it, then start again.")
        from huggingface_hub import InferenceClient  # now, and not in the first answer's time
        from huggingface_hub.utils import get_session

        self.client = InferenceClient
        self._streams: list[Any] = []
        self._lock = threading.Lock()
        self._keyless, self._variable = not endpoint.key, address_variable
        self._connect_s = min(MOST_CONNECT_S, float(endpoint.patience_s))
        self.http = get_session()
        self.http.event_hooks = {"request": [self._asks], "response": [self._answered]}

    def _asks(self, request: Any) -> None:
        if self._keyless:
            request.headers.pop("authorization", None)
        request.headers.pop("x-amzn-trace-id", None)
        limits = {**request.extensions.get("timeout", {}), "connect": self._connect_s}
        request.extensions = {**request.extensions, "trace": self._trace, "timeout": limits}

    def _answered(self, response: Any) -> None:
        if 300 <= response.status_code < 400:
            raise InferenceError(REDIRECT.format(response.status_code, self._variable))

    def _trace(self, event: str, found: dict[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete", "http_proxy.start_tls.complete"):
            with self._lock:
                self._streams = [*self._streams[-7:], found["return_value"]]

    def shut(self) -> None:
        """Shut every connection at once, also one that another thread waits on."""
        with self._lock:
            streams, self._streams = self._streams, []
        for stream in streams:
            if found := stream.get_extra_info("socket"):
                with contextlib.suppress(OSError):
                    found.shutdown(socket.SHUT_RDWR)
