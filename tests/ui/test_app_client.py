"""The launched app from outside: its listeners, start and end as a program."""

from __future__ import annotations

import contextlib
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

from inference.host.child import ROOT
from tests.support.program import FAKE_PROGRAM
from tests.support.until import until


def test_text_outputs_have_no_overlay(shared_app):
    config = json.loads(urllib.request.urlopen(f"{shared_app.url}/config").read())
    streams = [listener for listener in config["dependencies"] if listener["queue"] and listener["api_visibility"] == "private"]
    assert streams and all(listener["show_progress"] == "hidden" for listener in streams if listener["outputs"] and listener["types"]["generator"])


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
        (["--host", "my..host"], {}, "Can't listen on my..host"),
        ([], {"GRADIO_SERVER_PORT": "x"}, "GRADIO_SERVER_PORT must be a whole number"),
        ([], {"GRADIO_NUM_PORTS": "0"}, "GRADIO_NUM_PORTS, a variable of Gradio's, must be a whole number above 0"),
        ([], {"GRADIO_TEMP_DIR": "/dev/null/x"}, "Set GRADIO_TEMP_DIR to a folder that can be written"),
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


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]", "::"])
def test_the_page_comes_up_on_every_kind_of_address_and_ends_whatever_gradio_is_told(start, host):
    """An address of IPv6 ended in a trace; with GRADIO_DEBUG no lane ever started, and Ctrl+C ended nothing."""
    if ":" in host:
        try:
            socket.socket(socket.AF_INET6).bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
    program = start("--host", host, GRADIO_DEBUG="1", GRADIO_SSR_MODE="True")
    assert json.load(urllib.request.urlopen(f"{program.url()}config"))["components"]
    program.process.send_signal(signal.SIGINT)
    code, errors = program.output(timeout_s=8)
    assert code == 0 and "Traceback" not in errors, errors


def test_importing_the_app_starts_nothing_and_needs_no_torch():
    look = (
        "import app, sys, threading, psutil; print('torch' in sys.modules, 'transformers' in sys.modules, "
        "threading.active_count(), len(psutil.Process().children()), type(app.demo).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "False", "1", "0", "Blocks"]


@pytest.mark.parametrize(("number", "script"), [(signal.SIGTERM, {"token_s": 0.1, "tokens": 50}), (signal.SIGINT, {"stands": 1})])
def test_a_signal_ends_the_page_and_its_lanes_in_mid_answer_and_the_password_is_kept(start, number, script):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = start("--host", "127.0.0.1", "--auth", "someone:opensesame", GRADIO_SERVER_PORT=str(port), FAKE_LANE=json.dumps({"*": script}))
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
    program = start(FAKE_LANE='{"*": {"stands": "load"}}', GRADIO_NUM_WORKERS="2")
    program.url()
    until(program.lanes, what="a lane")
    lanes = program.lanes()
    assert all("fake_lane" in " ".join(lane.cmdline()) for lane in lanes), "no process of Gradio's, which would know no bounds"
    program.process.kill()
    until(lambda: not any(lane.is_running() for lane in lanes), 3, "no lane left")


def test_a_page_that_can_print_nothing_serves_and_ends_all_the_same():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with open("/dev/full", "w") as full:
        process = subprocess.Popen([sys.executable, FAKE_PROGRAM, "--port", port], cwd=ROOT, stdout=full, stderr=full)

    def serves() -> bool:
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/config").status == 200
        assert process.poll() is None, "it ended"
        return False

    try:
        until(serves, 60, "the page")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
