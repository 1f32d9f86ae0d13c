"""Where lanes can't run, that is one sentence before anything starts; nothing of the page or the command line needs more than Windows has to say so."""

from __future__ import annotations

import subprocess
import sys

import pytest

import app
from inference.cli import main as command_line
from inference.host import machine
from inference.host.child import ROOT

# what Python has not on Windows; taken away once the standard library is imported, which looks at the platform itself
ON_WINDOWS = """
import argparse, asyncio, ctypes, runpy, socket, subprocess, tempfile, threading, multiprocessing, psutil, os, signal, sys
sys.platform = "win32"
for module, names in ((os, "killpg getuid sched_getaffinity nice SCHED_IDLE"), (signal, "SIGKILL SIGSTOP SIGCONT")):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
"""


@pytest.fixture
def windows(monkeypatch):
    monkeypatch.setattr(machine.sys, "platform", "win32")


@pytest.mark.parametrize("command", [["compare", "--prompt", "hi"], ["bench"], ["quality", "--text", "LICENSE"], ["doctor"]])
def test_a_command_starts_nothing_on_windows(command, windows, monkeypatch, capsys):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    assert command_line.main(command) == 1
    assert "Windows" in capsys.readouterr().err


def test_the_page_starts_nothing_on_windows(windows, capsys):
    assert app.main(["--port", "0"], lambda *_: pytest.fail("a lane was started")) == 1
    said = capsys.readouterr().err
    assert "only on Linux and macOS" in said and "WSL" in said and said.count("\n") == 1


@pytest.mark.parametrize(
    "run", ["runpy.run_path('app.py', run_name='__main__')", "sys.argv = ['inference', 'doctor']; runpy.run_module('inference', run_name='__main__')"]
)
def test_what_windows_has_not_is_not_asked_for_before_the_sentence(run):
    done = subprocess.run([sys.executable, "-c", ON_WINDOWS + run], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "Windows" in done.stderr and done.stdout == ""


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_linux_and_macos_are_let_through(platform, monkeypatch):
    monkeypatch.setattr(machine.sys, "platform", platform)
    machine.check_platform()
