"""`app.py` as a program of its own, over fake lanes or whatever it is told to run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from inference.host.child import ROOT

FAKE_PROGRAM = str(ROOT / "tests" / "support" / "fake_app.py")


class Program:
    """`app.py` over fake lanes in a process of its own."""

    def __init__(self, *flags: str, program: str = FAKE_PROGRAM, **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, program, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
        )  # fmt: skip

    def url(self) -> str:
        line = self.process.stdout.readline()
        assert line.startswith("Open http://"), line + self.process.stderr.read()
        return line.split()[1]

    def lanes(self) -> list[psutil.Process]:
        """Its processes; not one that is still a copy of itself, about to become another program."""
        own, found = psutil.Process(self.process.pid), []
        for child in own.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [child] if child.cmdline() != own.cmdline() else []
        return found

    def output(self, timeout_s: float = 30) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, errors


@pytest.fixture
def start() -> Iterator[type[Program]]:
    started: list[Program] = []

    def start_one(*flags: str, **options: str) -> Program:
        started.append(Program(*flags, **options))
        return started[-1]

    yield start_one
    for program in started:
        if program.process.poll() is None:
            program.process.kill()
            program.process.communicate()
