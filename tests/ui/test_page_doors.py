"""What a visitor with nothing but HTTP may not do: read files of the machine, have addresses fetched, leave the folder of uploads, fill the disk."""

from __future__ import annotations

import asyncio
import fcntl
import http.client
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
import safehttpx

from inference.host.child import ROOT
from tests.support.false_server import FalseServer
from tests.support.page_fixtures import FakeApp
from ui import bodies
from ui.prompts.tab import SAMPLE

ELSEWHERE = ["/etc/passwd", str(ROOT / "app.py"), "app.py", "../../etc/passwd", "file:///etc/passwd", "~/.bashrc", "/proc/self/environ", str(ROOT / "examples")]


def ask(app: FakeApp, path: str, body: bytes | None = None, kind: str = "application/json") -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection(app.url.removeprefix("http://"), timeout=20)
    connection.request("GET" if body is None else "POST", path, body, {"Content-Type": kind})
    answer = connection.getresponse()
    found = answer.status, answer.read(2**16), {name.lower(): value for name, value in answer.getheaders()}
    connection.close()
    return found


def listener(app: FakeApp, name: str, value: object) -> tuple[int, bytes]:
    """A listener of the page, its first input `value`."""
    found = next(each for each in app.demo.fns.values() if each.api_name == name)
    data = [value, *[None] * (len(found.inputs) - 1)]
    return ask(app, "/gradio_api/run/predict", json.dumps({"data": data, "fn_index": found._id, "session_hash": "doors"}).encode())[:2]


def upload(app: FakeApp, name: bytes, data: bytes = b"abc") -> tuple[int, bytes]:
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="' + name + b'"\r\nContent-Type: text/plain\r\n\r\n'
    return ask(app, "/gradio_api/upload", head + data + b"\r\n--x--\r\n", "multipart/form-data; boundary=x")[:2]


@pytest.mark.parametrize("path", ELSEWHERE)
def test_no_other_file_of_the_machine_is_given(fake_app, path):
    for way in (f"/gradio_api/file={quote(path)}", f"/gradio_api/file/{quote(path)}", f"/static/{quote(path)}", f"/assets/..%2f..%2f{quote(path, safe='')}"):
        status, said, _ = ask(fake_app, way)
        assert status in (403, 404) and b"root:" not in said and b"import" not in said, way


@pytest.mark.parametrize("path", [*ELSEWHERE, str(SAMPLE)])
@pytest.mark.parametrize("name", ["look", "press", "load_model"])
def test_no_other_file_is_taken_for_an_upload(fake_app, path, name):
    status, said = listener(fake_app, name, {"path": path, "meta": {"_type": "gradio.FileData"}})
    assert status == 500 and b"root:" not in said


def test_no_address_that_a_visitor_names_is_fetched(fake_app, monkeypatch):
    monkeypatch.setattr(safehttpx, "is_public_ip", lambda _: True)  # else an address of this machine would be refused for being one
    server = FalseServer()
    try:
        address = f"{server.url}/secret"
        for path in (
            f"/gradio_api/file={address}",
            f"/gradio_api/file={quote(address, safe='')}",
            f"/gradio_api/file=%20{address}",
            f"/gradio_api/proxy={address}",
        ):
            assert ask(fake_app, path)[0] in (400, 403, 404), path
        for name in ("look", "press", "load_model"):
            assert listener(fake_app, name, {"path": address, "url": address, "meta": {"_type": "gradio.FileData"}})[0] == 500
        assert server.seen == []
    finally:
        server.close()
    assert listener(fake_app, "look", {"path": "https://huggingface.co/x", "meta": {"_type": "gradio.FileData"}})[0] == 500, "of no trusted host either"


@pytest.mark.parametrize("door", ["deep_link?session_hash=x", "component_server", "process_recording", "proxy=x", "run-history/buckets", "runs"])
def test_what_the_page_has_no_use_for_is_closed(fake_app, door):
    for body in (None, b"{}"):
        assert ask(fake_app, f"/gradio_api/{door}", body)[0] in (403, 404, 405)


def test_who_asked_what_is_no_visitor_s_business(fake_app):
    assert {ask(fake_app, f"/monitoring{more}")[0] for more in ("", "/summary", "/x")} == {403}


@pytest.mark.parametrize(
    "name",
    [
        b"../../../tmp/evil",
        b"/etc/evil",
        b"..",
        b".",
        b"",
        b"a\0b.txt",
        b"..\\..\\evil",
        b"%2e%2e%2fevil",
        b"x" * 300 + b".txt",
        b"x" * 9000,
        b"state.json",
        b"a\nb",
    ],
)
def test_an_upload_stays_in_its_folder_whatever_it_is_called(fake_app, name):
    status, said = upload(fake_app, name)
    assert status in (200, 400, 413, 500)
    if status == 200:
        path = Path(json.loads(said)[0])
        assert path.resolve().is_relative_to(bodies.own_folder().resolve()) and path.read_bytes() == b"abc" and len(path.name) < 256
    assert not Path("/tmp/evil").exists() and not Path("/etc/evil").exists()


@pytest.mark.parametrize("name", [b"a.html", b"a.svg", b"a.xml", b"a.js"])
def test_an_upload_is_never_opened_as_a_page(fake_app, name):
    path = json.loads(upload(fake_app, name, b"<script>1</script>")[1])[0]
    headers = ask(fake_app, f"/gradio_api/file={path}")[2]
    assert headers["content-disposition"].startswith("attachment") and headers["content-type"] == "application/octet-stream"


def test_the_folder_of_uploads_is_this_page_s_alone(fake_app):
    folder = Path(fake_app.demo.app.uploaded_file_dir)
    assert folder == bodies.own_folder() and stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_uploads_fill_no_disk_the_oldest_go_first(fake_app, monkeypatch):
    monkeypatch.setattr(bodies.make_room, "__defaults__", (2500, 1000))
    paths = []
    for number in range(5):
        paths.append(Path(json.loads(upload(fake_app, b"a.txt", bytes([65 + number]) * 1000)[1])[0]))
        os.utime(paths[-1], (number, number))
    assert [path.exists() for path in paths] == [False, False, True, True, True], "room is made before each, so one more than may be kept"


def test_as_many_small_ones_either(tmp_path):
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "a").write_text("a")
        os.utime(tmp_path / str(number) / "a", (number, number))
    bodies.make_room(tmp_path, 10**6, 5)
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [15, 16, 17, 18, 19]


def test_uploads_at_once_are_few_and_one_that_trickles_in_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(bodies, "UPLOAD_S", 0.1)
    answers: list[int] = []

    async def never(scope, receive, send):
        await asyncio.Event().wait()

    async def heard(message):
        answers.extend([message["status"]] if "status" in message else [])

    async def all_at_once():
        around = bodies.Bodies(never, tmp_path)
        scope = {"type": "http", "path": bodies.UPLOAD, "headers": [], "method": "POST"}
        await asyncio.gather(*(around(scope, never, heard) for _ in range(bodies.UPLOADS_AT_ONCE + 2)))
        await around(scope, never, heard)

    with ThreadPoolExecutor(1) as pool:  # the browser's tests leave a loop running in this thread
        pool.submit(asyncio.run, all_at_once()).result()
    assert answers == [503] * 2 + [408] * (bodies.UPLOADS_AT_ONCE + 1)


def test_what_a_killed_page_left_goes_with_the_next_and_a_living_page_s_stays(tmp_path, monkeypatch):
    monkeypatch.setenv(bodies.PLACE, str(tmp_path))
    killed, living, others = (tmp_path / f"{prefix}x{number}" for number, prefix in enumerate((bodies.PREFIX, bodies.PREFIX, "gradio-")))
    for folder in (killed, living, others):
        folder.mkdir()
        (folder / "a").write_text("a")
    held = os.open(living, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    own = bodies.own_folder.__wrapped__()
    assert not killed.exists() and (living / "a").exists() and (others / "a").exists()
    assert os.environ[bodies.PLACE] == str(own) and own.parent == tmp_path
    os.close(held)
    monkeypatch.setenv(bodies.PLACE, str(tmp_path))
    bodies.own_folder.__wrapped__()
    assert not living.exists() and own.exists(), "one that ended since, and not this one's"
