"""A Hub on loopback that serves small repositories as the real one does, and misbehaves as it is told to.

`FalseHub.repositories` is what it has; `does` says for a part of a path (`/api/`, `model.safetensors`) what happens instead.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Behaviour = Callable[["Handler"], bool]  # True: it has answered; False: the request is served as if there were no such behaviour


@dataclass
class Repository:
    """Files by name; `gated`: its files want a token that is known, its list does not."""

    files: dict[str, bytes]
    gated: bool = False
    revisions: dict[str, str] = field(default_factory=lambda: {"main": COMMIT})

    @classmethod
    def of(cls, folder: Path, **more: bytes) -> Repository:
        return cls({path.name: path.read_bytes() for path in sorted(folder.iterdir())} | more)

    def commit(self, revision: str) -> str | None:
        return self.revisions.get(revision) or (revision if revision in self.revisions.values() else None)


class FalseHub:
    """The server; `asked` lists (method, path) of every request, `ranges` the bytes that were asked for of each file."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.does: dict[str, Behaviour] = {}
        self.tokens = {"hf_right"}
        self.asked: list[tuple[str, str]] = []
        self.ranges: dict[str, str] = {}
        self.closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def downloaded(self) -> set[str]:
        """The files whose content was asked for."""
        return {path.rpartition("/")[2] for method, path in self.asked if method == "GET" and "/resolve/" in path}

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


class Handler(BaseHTTPRequestHandler):
    """One connection to the Hub."""

    hub: FalseHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append((self.command, path))
        behaviour = next((what for part, what in self.hub.does.items() if part in path), None)
        if not (behaviour and behaviour(self)):
            self._serve(path)

    do_HEAD = do_GET

    def _serve(self, path: str) -> None:
        api, found = path.startswith("/api/models/"), path.removeprefix("/api/models/").strip("/").split("/")
        name, verb, rest = "/".join(found[:2]), (found[2:] or ["revision"])[0], found[3:]
        if self._token() and self._token() not in self.hub.tokens:
            return self.answer(401, {"X-Error-Message": "Invalid credentials in Authorization header"})
        repository = self.hub.repositories.get(name)
        if repository is None:
            return self.answer(404 if self._token() else 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        if (commit := repository.commit((rest or ["main"])[0])) is None:
            return self.answer(404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
        if api:
            return self._listing(name, repository, commit, verb)
        if repository.gated and not self._token():
            return self.answer(401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to this model is restricted."})
        if (content := repository.files.get("/".join(rest[1:]))) is None:
            return self.answer(404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
        return self._file(content, commit, rest[-1])

    def _listing(self, name: str, repository: Repository, commit: str, verb: str) -> None:
        if verb == "tree":
            entries = [
                {"type": "file", "path": file, "size": len(data), "oid": etag(data), **_lfs(file, "oid", data)} for file, data in repository.files.items()
            ]
            return self.answer(200, body=json.dumps(entries).encode())
        siblings = [{"rfilename": file, "size": len(data), "blobId": etag(data), **_lfs(file, "sha256", data)} for file, data in repository.files.items()]
        gated = "manual" if repository.gated else False
        return self.answer(200, body=json.dumps({"id": name, "sha": commit, "siblings": siblings, "gated": gated}).encode())

    def _file(self, content: bytes, commit: str, file: str) -> None:
        headers, status = {"X-Repo-Commit": commit, "ETag": f'"{etag(content)}"', "Accept-Ranges": "bytes"}, 200
        if asked := self.headers.get("Range", "").removeprefix("bytes="):
            self.hub.ranges[file] = asked
            first, _, last = asked.partition("-")
            headers["Content-Range"] = f"bytes {first}-{min(int(last or len(content)), len(content) - 1)}/{len(content)}"
            content, status = content[int(first) : int(last) + 1 if last else None], 206
        self.answer(status, headers, content)

    def _token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def answer(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"", promised: int | None = None) -> None:
        """Send it; `promised`: the length that is said, where it is not the body's."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if promised is None else promised))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


def etag(content: bytes) -> str:
    """What names a file's content."""
    return hashlib.sha256(content).hexdigest()


def _lfs(file: str, key: str, data: bytes) -> dict[str, object]:
    """What a list says more of weights, which are kept apart from what is text."""
    return {"lfs": {key: etag(data), "size": len(data), "pointerSize": 100}} if file.endswith((".safetensors", ".bin", ".gguf")) else {}


def answers(status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> Behaviour:
    """Always the same answer."""
    return lambda handler: (handler.answer(status, headers, body), True)[1]


def silent(handler: Handler) -> bool:
    """Accept, and say nothing."""
    handler.hub.closing.wait()
    handler.close_connection = True
    return True


def only(method: str, behaviour: Behaviour) -> Behaviour:
    """A behaviour for one method."""
    return lambda handler: handler.command == method and behaviour(handler)


def redirects(to: str) -> Behaviour:
    """Send to another address."""
    return answers(307, {"Location": to})


def breaks_off(content: bytes, after: int, times: int) -> Behaviour:
    """Give the first `after` bytes of a file and close the connection, so many times."""
    left = [times]

    def broken(handler: Handler) -> bool:
        if handler.command == "HEAD" or not left[0]:
            return False
        left[0] -= 1
        handler.answer(200, {"X-Repo-Commit": COMMIT, "ETag": f'"{etag(content)}"'}, content[:after], promised=len(content))
        handler.close_connection = True
        return True

    return broken


def stalls(content: bytes, after: int) -> Behaviour:
    """Give the first `after` bytes of a file, then nothing, and keep the connection."""

    def stalled(handler: Handler) -> bool:
        if handler.command == "HEAD":
            return False
        handler.answer(200, {"X-Repo-Commit": COMMIT, "ETag": f'"{etag(content)}"'}, content[:after], promised=len(content))
        handler.wfile.flush()
        return silent(handler)

    return stalled


def impatient(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.3) -> None:
    """Let the library wait for an answer only so long."""
    from huggingface_hub import constants

    for name in ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"):
        monkeypatch.setattr(constants, name, seconds)


@contextmanager
def serving() -> Iterator[FalseHub]:
    """A false Hub for as long as the block runs."""
    hub = FalseHub()
    try:
        yield hub
    finally:
        hub.close()


def point_at(monkeypatch: pytest.MonkeyPatch, url: str, cache: Path) -> None:
    """Make the Hub's library ask `url`, keep its files in `cache`, and not wait before it asks again; child processes do the first two."""
    from huggingface_hub import constants

    for name, value in {"HF_ENDPOINT": url, "HF_HUB_CACHE": str(cache), "NO_PROXY": "127.0.0.1", "HF_TOKEN_PATH": str(cache / "no-token")}.items():
        monkeypatch.setenv(name, value)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    replaced = {
        "ENDPOINT": url, "HUGGINGFACE_CO_URL_TEMPLATE": url + "/{repo_id}/resolve/{revision}/{filename}", "HF_HUB_CACHE": str(cache),
        "HF_HUB_OFFLINE": False, "HF_TOKEN_PATH": str(cache / "no-token"), "HF_HUB_ETAG_TIMEOUT": 5, "HF_HUB_DOWNLOAD_TIMEOUT": 5,
    }  # fmt: skip
    for name, value in replaced.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr("huggingface_hub.utils._http.time", SimpleNamespace(sleep=lambda _: time.sleep(0.01)))
    monkeypatch.setattr("huggingface_hub.file_download.time", SimpleNamespace(sleep=lambda _: time.sleep(0.01), time=time.time))


@pytest.fixture
def false_hub(monkeypatch, tmp_path) -> Iterator[FalseHub]:
    """A false Hub that the library asks."""
    with serving() as hub:
        point_at(monkeypatch, hub.url, tmp_path / "hub")
        yield hub
        hub.close()
        for thread in threading.enumerate():
            if thread.name == "hub":  # one that was given up shares its client with the next test's
                thread.join(5)
