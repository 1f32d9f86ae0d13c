"""A Hub on loopback that makes Spaces as huggingface_hub's client asks for them: files by commit, LFS included, variables, secrets, hardware, stages.

`does` says for (method, part of a path) what is answered instead. With `runs`, a Space that comes to RUNNING is what was uploaded, started as a page
of its own over fake lanes.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from inference.host.child import ROOT
from inference.host.hardware import Hardware, from_file
from tests.support.false_hub import point_at

TOKEN = "hf_right"
LFS = (".png", ".safetensors")
DRIVER = """
import runpy, sys
sys.path[:0] = [{space!r}]
sys.path.append({root!r})
from inference.engine import process
assert process.__file__.startswith({space!r}), process.__file__
from tests.support.page_fixtures import start_fake_lane
process.start_worker = start_fake_lane
sys.argv = ["app.py"]
runpy.run_path({space!r} + "/app.py", run_name="__main__")
"""


@dataclass
class Space:
    """What the Hub holds of one; `stages` are gone through after each commit, one at every question, the last for ever."""

    sdk: str = "gradio"
    private: bool = False
    files: dict[str, bytes] = field(default_factory=lambda: {".gitattributes": b"", "README.md": b"---\nsdk: gradio\n---\n"})
    variables: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    hardware: str = "cpu-basic"
    commits: int = 0
    stages: list[str] = field(default_factory=lambda: ["NO_APP_FILE"])
    host: str = ""

    @property
    def sha(self) -> str:
        return hashlib.sha1(str(self.commits).encode()).hexdigest()


class SpaceHub:
    """The server; `asked` lists (method, path) of every request, `after` the stages of a Space once a commit has come."""

    def __init__(self, folder: Path) -> None:
        self.spaces: dict[str, Space] = {}
        self.models: dict[str, dict[str, Any]] = {}
        self.role, self.orgs = "write", [{"name": "team", "roleInOrg": "admin"}, {"name": "readers", "roleInOrg": "read"}]
        self.fine_grained: dict[str, Any] | None = None
        self.after = ["BUILDING", "APP_STARTING", "RUNNING"]
        self.message, self.log = "", ["step 1\n", "it broke\n"]
        self.does: dict[tuple[str, str], Callable[[Handler], None]] = {}
        self.asked: list[tuple[str, str]] = []
        self.lfs: dict[str, bytes] = {}
        self.runs = False
        self.closing = threading.Event()
        self._folder, self._pages = folder, list[subprocess.Popen[bytes]]()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def start(self, name: str, space: Space) -> None:
        """Write what was uploaded to a folder of its own and run it there, with the Space's variables and secrets."""
        folder = self._folder / name.replace("/", "--")
        for path, content in space.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        space.host = f"http://127.0.0.1:{port}"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "GRADIO_")) and key != "PYTHONPATH"}
        env = {**kept, "GRADIO_SERVER_PORT": str(port), "NO_PROXY": "127.0.0.1", **space.variables, **space.secrets}
        code = DRIVER.format(space=str(folder), root=str(ROOT))
        self._pages.append(subprocess.Popen([sys.executable, "-c", code], cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def up(self, space: Space) -> bool:
        """Whether its page listens."""
        host, _, port = space.host.removeprefix("http://").partition(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 0.2):
            return True
        return False

    def close(self) -> None:
        self.closing.set()
        for page in self._pages:
            page.terminate()
            page.wait(20)
        self._server.shutdown()
        self._server.server_close()


class Handler(BaseHTTPRequestHandler):
    """One connection to the Hub."""

    hub: SpaceHub
    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.asked.append((self.command, path))
        if told := next((what for (method, part), what in self.hub.does.items() if method == self.command and part in path), None):
            return told(self)
        if not path.startswith("/lfs/") and path != "/api/spaces/hardware" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer({"error": "Invalid user token."}, 401)
        return self._serve(path)

    do_GET = do_POST = do_PUT = handle_any

    def _serve(self, path: str) -> None:
        if path == "/api/whoami-v2":
            token = {"displayName": "mine", "role": self.hub.role, **({"fineGrained": self.hub.fine_grained} if self.hub.fine_grained else {})}
            return self.answer({"name": "you", "type": "user", "orgs": self.hub.orgs, "auth": {"type": "access_token", "accessToken": token}})
        if path == "/api/validate-yaml":
            return self.answer({"warnings": [], "errors": []})
        if path == "/api/repos/create":
            return self._create(json.loads(self.body))
        if path.startswith("/lfs/"):
            self.hub.lfs[path.removeprefix("/lfs/")] = self.body
            return self.answer({})
        if path.startswith("/api/models/"):
            found = self.hub.models.get(path.removeprefix("/api/models/").partition("/revision/")[0])
            return self.answer(found) if found else self.missing()
        if path == "/api/spaces/hardware":
            return self.answer(list(map(_price, from_file().hardware)))
        parts = path.removeprefix("/api").removeprefix("/spaces/").split("/")
        name, rest = f"{parts[0]}/{parts[1].removesuffix('.git')}", parts[2:]
        space = self.hub.spaces.get(name)
        return self._space(name, space, rest) if space else self.missing()

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.hub.spaces:
            return self.answer({"error": "You already created this space repo", "url": f"{self.hub.url}/spaces/{name}"}, 409)
        made = Space(asked["sdk"], asked.get("visibility") == "private", hardware=asked.get("hardware", "cpu-basic"))
        made.variables = {one["key"]: one["value"] for one in asked.get("variables") or ()}
        made.secrets = {one["key"]: one["value"] for one in asked.get("secrets") or ()}
        self.hub.spaces[name] = made
        return self.answer({"url": f"{self.hub.url}/spaces/{name}", "name": name, "id": "1"})

    def _space(self, name: str, space: Space, rest: list[str]) -> None:
        given = json.loads(self.body) if self.body and rest[:1] not in (["commit"],) else {}
        match (self.command, *rest[:2]):
            case ("GET",) | ("GET", "revision", _):
                siblings = [{"rfilename": path} for path in space.files]
                info = {"id": name, "sha": space.sha, "sdk": space.sdk, "private": space.private, "siblings": siblings, "host": space.host}
                return self.answer(info)
            case ("GET", "runtime"):
                return self.answer(self._runtime(name, space))
            case ("GET", "secrets"):
                return self.answer({key: {} for key in space.secrets})
            case ("GET", "logs", _):
                events = "".join(f"data: {json.dumps({'data': line, 'timestamp': '2026-01-01T00:00:00Z'})}\n\n" for line in self.hub.log)
                return self.answer(events.encode())
            case ("POST", "variables" | "secrets" as kind):
                getattr(space, kind)[given["key"]] = given["value"]
                return self.answer({})
            case ("PUT", "settings"):
                space.private = given.get("visibility") == "private" or bool(given.get("private"))
                return self.answer({})
            case ("POST", "hardware"):
                space.hardware = given["flavor"]
                return self.answer(self._runtime(name, space))
            case ("POST", "restart"):
                space.stages = ["APP_STARTING", "RUNNING"]
                return self.answer(self._runtime(name, space))
            case ("POST", "preupload", _):
                modes = [
                    {"path": one["path"], "uploadMode": "lfs" if one["path"].endswith(LFS) else "regular", "shouldIgnore": False} for one in given["files"]
                ]
                return self.answer({"files": modes})
            case ("POST", "info", "lfs"):
                objects = [
                    {"oid": one["oid"], "size": one["size"], "actions": {"upload": {"href": f"{self.hub.url}/lfs/{one['oid']}"}}} for one in given["objects"]
                ]
                return self.answer({"transfer": "basic", "objects": objects})
            case ("POST", "commit", _):
                return self._commit(name, space)
        return self.missing()

    def _commit(self, name: str, space: Space) -> None:
        for line in map(json.loads, self.body.splitlines()):
            value = line["value"]
            if line["key"] == "header" and value.get("parentCommit") not in (None, space.sha):
                return self.answer({"error": "A commit has happened since."}, 412)
            if line["key"] == "file":
                space.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                space.files[value["path"]] = self.hub.lfs[value["oid"]]
            elif line["key"] == "deletedFile":
                del space.files[value["path"]]
        space.commits += 1
        if space.stages[0] != "PAUSED":
            space.stages = list(self.hub.after)
        return self.answer({"commitUrl": f"{self.hub.url}/spaces/{name}/commit/{space.sha}", "commitOid": space.sha, "success": True})

    def _runtime(self, name: str, space: Space) -> dict[str, Any]:
        stage = space.stages.pop(0) if len(space.stages) > 1 else space.stages[0]
        if self.hub.runs and stage == "RUNNING":
            if not space.host:
                self.hub.start(name, space)
            stage = stage if self.hub.up(space) else "APP_STARTING"
        message = {"errorMessage": self.hub.message} if self.hub.message else {}
        return {"stage": stage, "hardware": {"current": space.hardware, "requested": space.hardware}, "gcTimeout": None, "sha": space.sha, **message}

    def missing(self) -> None:
        self.answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})

    def answer(self, body: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


def _price(hardware: Hardware) -> dict[str, Any]:
    """As the Hub tells it: by the minute; the smallest T4 has become dearer."""
    dollars = 0.42 if hardware.name == "t4-small" else hardware.dollars_per_hour or 0
    cost = {"unitCostMicroUSD": round(dollars / 60 * 1e6), "unitCostUSD": dollars / 60, "unitLabel": "minute"}
    return {"name": hardware.flavor, "prettyName": hardware.title, "cpu": "? vCPU", "ram": "? GB", **cost}


def refuses(status: int, words: str = "", **headers: str) -> Callable[[Handler], None]:
    """Always that answer."""
    return lambda handler: handler.answer({"error": words} if words else {}, status, headers)


def silent(handler: Handler) -> None:
    """Accept, and say nothing."""
    handler.hub.closing.wait()
    handler.close_connection = True


@pytest.fixture
def space_hub(monkeypatch, tmp_path) -> Iterator[SpaceHub]:
    """A Hub for Spaces that the library asks, with a token that may write."""
    hub = SpaceHub(tmp_path)
    point_at(monkeypatch, hub.url, tmp_path / "hub")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    yield hub
    hub.close()
