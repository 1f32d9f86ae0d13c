"""The launched app from outside: the endpoint `/compare` by gradio_client, start and end as a program."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from inference.child import ROOT
from tests.support.page_fixtures import FakeApp
from tests.support.until import until


@pytest.fixture(scope="session")
def client(shared_app: FakeApp) -> Client:
    return Client(shared_app.url, verbose=False)


# ---- the endpoint


def test_compare_returns_the_record(fake_app, client):
    record = client.predict("hello good morning", api_name="/compare")
    assert record["schema"] == "gpu-vs-cpu/2"
    assert record["request"]["prompt"] == "hello good morning" and record["request"]["max_new_tokens"] == 50
    assert set(record["lanes"]) == {"cpu:nf4", "cpu:fp32"}
    for lane in record["lanes"].values():
        (run,) = lane["runs"]
        assert run["text"].startswith("We have chicken biryani") and run["finish_reason"] == "stop"
        assert run["decode_path"] == "eager", "under this name: gradio_client would fetch a text `path` as a file"
    json.dumps(record)


def test_compare_takes_settings_by_name(fake_app, client):
    record = client.predict("hello", max_new_tokens=3, seed=7, format="raw", mode="together", api_name="/compare")
    assert record["request"] | {"max_new_tokens": 3, "seed": 7, "mode": "together"} == record["request"]
    assert all(lane["runs"][0]["finish_reason"] == "length" for lane in record["lanes"].values())


def test_two_visitors_at_once_get_their_own_records(fake_app, client, shared_app):
    clients = [client, Client(shared_app.url, verbose=False)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = [pool.submit(one.predict, f"hello {number}", api_name="/compare") for number, one in enumerate(clients)]
        records = [one.result(timeout=20) for one in asked]
    assert [record["request"]["prompt"] for record in records] == ["hello 0", "hello 1"]
    assert all(len(lane["runs"]) == 1 for record in records for lane in record["lanes"].values())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"prompt": " "}, "The prompt is empty"),
        ({"prompt": "x", "max_new_tokens": 0}, "Max new tokens must be from 1"),
        ({"prompt": "x", "temperature": 3}, "Temperature must be"),
        ({"prompt": "x", "temperature": "hot"}, "must be a number"),
        ({"prompt": "x", "seed": 1.5}, "must be a whole number"),
        ({"prompt": "x", "format": "poem"}, "Unknown prompt format 'poem'"),
        ({"prompt": "x", "mode": "fast"}, "Unknown mode 'fast'"),
    ],
)
def test_a_bad_value_gives_a_sentence(fake_app, client, settings, words):
    with pytest.raises(AppError, match=words):
        client.predict(**settings, api_name="/compare")


def test_only_compare_is_offered(client):
    assert set(client.view_api(return_format="dict")["named_endpoints"]) == {"/compare"}


def test_text_outputs_have_no_overlay_and_no_listener_is_public(shared_app):
    config = json.loads(urllib.request.urlopen(f"{shared_app.url}/config").read())
    listeners = [listener for listener in config["dependencies"] if listener["api_name"] != "compare"]
    assert listeners and all(listener["api_visibility"] != "public" for listener in listeners)
    streams = [listener for listener in listeners if listener["queue"]]
    assert all(listener["show_progress"] == "hidden" for listener in streams if listener["outputs"] and listener["types"]["generator"])


# ---- start and end


@pytest.mark.parametrize(
    ("flags", "env", "words"),
    [
        (["--port", "x"], {}, "GRADIO_SERVER_PORT must be a whole number"),
        (["--port", "70000"], {}, "The port must be from 1 to 65535"),
        (["--lanes", "gpu:int8"], {}, "Unknown lane 'gpu:int8'"),
        (["--auth", "user"], {}, "AUTH must look like user:password"),
        (["--speed", "9"], {}, "Unrecognized arguments: --speed"),
        (["--host", "203.0.113.7"], {}, "Can't listen on 203.0.113.7"),
        ([], {"GRADIO_SERVER_PORT": "x"}, "GRADIO_SERVER_PORT must be a whole number"),
    ],
)
def test_a_bad_flag_or_setting_ends_with_one_sentence(flags, env, words):
    done = subprocess.run([sys.executable, "app.py", *flags], cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and done.stdout == ""
    assert words in done.stderr and done.stderr.count("\n") == 1


def test_a_taken_port_ends_with_one_sentence(start):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, errors = start("--port", str(taken.getsockname()[1]), program="app.py").output()
    assert code == 2 and errors.count("\n") == 1
    assert errors.startswith("Can't listen on 127.0.0.1, port ") and "--port" in errors


def test_importing_the_app_starts_nothing_and_needs_no_torch():
    look = (
        "import app, sys, threading, psutil; print('torch' in sys.modules, 'transformers' in sys.modules, "
        "threading.active_count(), len(psutil.Process().children()), type(app.demo).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "False", "1", "0", "Blocks"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_page_and_its_lanes_in_mid_answer_and_the_password_is_kept(start, number):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    slow = '{"*": {"token_s": 0.1, "tokens": 50}}'
    program = start("--host", "127.0.0.1", "--auth", "someone:opensesame", GRADIO_SERVER_PORT=str(port), FAKE_LANE=slow)
    url = program.url()
    assert url == f"http://127.0.0.1:{port}/", "GRADIO_SERVER_PORT keeps working"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{url}config")
    asker = Client(url, auth=("someone", "opensesame"), verbose=False).submit("hello", api_name="/compare")
    until(lambda: program.lanes() and not asker.done(), what="a lane")
    lanes = program.lanes()
    program.process.send_signal(number)
    code, errors = program.output(timeout_s=8)
    assert code == 0 and "Traceback" not in errors and "opensesame" not in errors, errors
    until(lambda: not any(lane.is_running() for lane in lanes), 3, "no lane left")


def test_killed_outright_the_page_leaves_no_lane_behind(start):
    program = start()
    program.url()
    until(program.lanes, what="a lane")
    lanes = program.lanes()
    program.process.kill()
    until(lambda: not any(lane.is_running() for lane in lanes), 3, "no lane left")
