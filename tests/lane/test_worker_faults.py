"""The worker's end of a fault: its trace is in the log, and a process whose device or settings are past use says so and ends."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from inference.errors import DEVICE_LOST_CODE
from inference.host.child import ROOT, environment

PROGRAM = """
from types import SimpleNamespace
from inference.lane import worker
from inference.errors import DeviceLost, InferenceError
from inference.events import Hello

def fail(*_):
    try:
        raise ValueError("the cause of it")
    except ValueError as error:
        raise FAULT from error

source = SimpleNamespace(read=fail if WHERE == "read" else lambda _: None, encode=lambda _: None)
lane = SimpleNamespace(name="cpu:fp32", model=None, source=source, loaded=WHERE in ("generate", "between"), load=fail, generate=fail, hold=lambda _: None,
                       between_runs=fail if WHERE == "between" else lambda: None, now=lambda: None)
worker.Worker._device_lost = lambda self: LOST  # asking the device itself would import torch
worker.Worker.emit = (lambda own: lambda self, event: own(self, event) if event else None)(worker.Worker.emit)
worker.serve("cpu:fp32", lambda name, settings: (lane, Hello(name, "cpu", {}, {})))
"""
ASK = json.dumps({"do": "generate", "run_id": "r", "request": {"prompt": "hi"}})


def serve(fault: str, where: str, lost: bool = False) -> tuple[int, str]:
    """The worker over a lane that raises `fault` in one place, asked one prompt, closed once it has told the fault: its exit code and log."""
    program = f"WHERE, LOST = {where!r}, {lost}\n" + PROGRAM.replace("FAULT", fault)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=environment(), text=True, **pipes) as process:
        process.stdin.write(f"{ASK}\n")
        process.stdin.flush()
        next((line for line in process.stdout if json.loads(line)["event"] == "failed"), None)
        process.stdin.close()
        return process.wait(60), process.stderr.read()


@pytest.mark.parametrize("where", ["generate", "load", "between"])
@pytest.mark.parametrize(("fault", "lost"), [("DeviceLost('gone')", False), ("RuntimeError('an illegal memory access')", True)])
def test_a_lost_device_ends_the_process_with_its_code_and_the_trace(where, fault, lost):
    code, log = serve(fault, where, lost)
    assert code == DEVICE_LOST_CODE and "the cause of it" in log


@pytest.mark.parametrize("where", ["generate", "load", "read"])
@pytest.mark.parametrize("fault", ["InferenceError('A sentence. Do this.')", "RuntimeError('odd')"])
def test_the_cause_of_a_fault_is_in_the_log_and_the_process_lives(where, fault):
    code, log = serve(fault, where)
    assert code == 0 and "Traceback" in log and "the cause of it" in log


def test_a_panic_of_a_library_in_rust_is_a_fault_like_any_other():
    """tokenizers' are no Exception: at a prompt its process ended, and so did the next ones."""
    code, log = serve("type('PanicException', (BaseException,), {})('no entry found for key')", "generate")
    assert code == 0 and "PanicException: no entry found for key" in log


def hello(**env: str) -> dict:
    """What a lane's process says first, started with these variables; it lives until its input closes."""
    command, given = [sys.executable, "-m", "inference.lane.worker", "cpu:fp32"], environment(**env)
    with subprocess.Popen(command, cwd=ROOT, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        said = next(event for event in map(json.loads, process.stdout) if event["event"] == "hello")
        process.stdin.close()
        assert process.wait(60) == 0
    return said


def test_settings_that_a_lane_can_not_start_with_are_its_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    said = hello(CACHE_DIR=str(tmp_path / "file"))
    assert not said["available"] and "Set CACHE_DIR" in said["reason"]


def test_libraries_that_can_not_be_imported_are_told_at_once_with_what_is_wrong():
    said = hello(TORCH_LOGS="nonsense")
    assert not said["available"] and said["reason"].startswith("The libraries can't be used here (ValueError: Invalid log settings: nonsense")
