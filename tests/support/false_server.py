"""An OpenAI-compatible server that misbehaves as it is told, on loopback; it keeps what it was sent."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-very-secret-0123456789"
Script = Callable[["Handler"], None]


def piece(text: str | None = None, reason: str | None = None, **more: Any) -> str:
    """One object of the stream."""
    delta = {} if text is None else {"content": text}
    return json.dumps({"id": "x", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **more})


def usage(prompt: int, written: int) -> str:
    """The last object, with the counts."""
    counts = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
    return json.dumps({"id": "x", "created": 1, "model": "m", "choices": [], "usage": counts})


class Handler(BaseHTTPRequestHandler):
    """Answers by its server's script; HTTP/1.1, in chunks, as the real ones do."""

    protocol_version = "HTTP/1.1"
    server: FalseServer

    def do_GET(self) -> None:
        self.server.seen.append((self.path, dict(self.headers), None))
        self.server.listing(self)

    def do_POST(self) -> None:
        self.body = body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((self.path, dict(self.headers), body))
        try:
            self.server.script(self)
        except OSError:
            self.server.went_away.set()

    def status(self, status: int, body: Any = None, **headers: str) -> None:
        """A whole answer; a body that is no text is JSON."""
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in {"content-length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def begin(self) -> None:
        """The head of a stream."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def say(self, *data: str) -> None:
        """Objects of a stream, each a chunk of its own."""
        for each in data:
            line = f"data: {each}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()

    def end(self) -> None:
        """The end of a stream, as HTTP has it."""
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def break_off(self) -> None:
        """The connection is gone, as of a process that was killed."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def stay(self) -> None:
        """Say nothing more until the other side has gone."""
        self.connection.settimeout(10)
        assert not self.connection.recv(1)
        self.server.went_away.set()
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Tests need no access log."""


def good(handler: Handler) -> None:
    """A whole answer of three tokens, one a piece, and the end mark."""
    handler.begin()
    handler.say(piece(""), piece("Two "), piece("biryanis"), piece("."), piece(reason="stop"), usage(7, 4), "[DONE]")
    handler.end()


class FalseServer(ThreadingHTTPServer):
    """`script` is what the next question meets, `seen` what came: path, headers, body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: Script = good
        self.listing: Script = lambda handler: handler.status(200, {"object": "list", "data": [{"id": "menu-4bit"}]})
        self.seen: list[tuple[str, dict[str, str], Any]] = []
        self.went_away = threading.Event()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        """Its address, as the settings have it."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, *_: Any) -> None:
        """A connection that a test broke is no error."""

    def close(self) -> None:
        self.shutdown()
        self.server_close()
