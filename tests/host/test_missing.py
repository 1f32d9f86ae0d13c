"""Started by a Python that is too old, that lacks a package, or that is told to leave a program's folder out; or in a folder that is gone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from inference.host import missing
from inference.host.child import ROOT

PROGRAMS = [[str(ROOT / "app.py")], ["-m", "inference", "doctor"]]


def ended(command: list[str], cwd: object = ROOT, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    return subprocess.run([sys.executable, *options, *command], cwd=cwd, env=given, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_package_that_is_not_installed_is_a_sentence(program):
    done = ended(program, ROOT, "-S", PYTHONNOUSERSITE="1")  # without the packages of its environment, as another Python is
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("The package psutil is not installed for this Python (") and done.stderr.count("\n") == 1


def test_the_example_says_what_it_needs():
    done = ended([str(ROOT / "examples" / "client.py")], ROOT, "-S", PYTHONNOUSERSITE="1")
    assert done.returncode == 1 and done.stderr.endswith("Run: pip install gradio_client\n") and done.stderr.count("\n") == 1


def test_what_is_missing_of_ours_or_of_python_itself_keeps_its_trace(capsys):
    for name in ("inference.none", "_lzma"):
        missing._tell(ModuleNotFoundError, ModuleNotFoundError("none", name=name), None)
        assert "ModuleNotFoundError" in capsys.readouterr().err


def test_a_python_that_is_too_old_is_a_sentence(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    with pytest.raises(SystemExit, match="This is Python 3.9 .* 3.11 or newer is needed"):
        missing.told()


def test_the_page_finds_its_packages_where_python_is_told_to_leave_its_folder_out(tmp_path):
    done = ended([str(ROOT / "app.py"), "--help"], tmp_path, "-I")
    assert done.returncode == 0 and "--share" in done.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_folder_that_is_gone_is_a_sentence(program, tmp_path):
    command = f"mkdir gone && cd gone && rmdir ../gone && exec {' '.join([sys.executable, *program])}"
    done = subprocess.run(command, shell=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stderr.startswith("The folder that this was started in is gone.") and done.stderr.count("\n") == 1
