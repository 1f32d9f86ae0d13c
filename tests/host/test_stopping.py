"""A command is stopped or killed in each phase of its lanes: its exit code, one sentence, no trace, no process left, its files as they were."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from inference.host import stopping
from inference.host.child import ROOT
from tests.support.until import until

PROGRAM = """
import sys
from inference.host import stopping
stopping.at_once()
from tests.support.page_fixtures import start_fake_lane
from inference.engine import engine
from inference.bench import bench, side
from inference.cli import main, prompts, quality
for module in (main, prompts, quality, bench, side):
    module.Engine = lambda settings, *_: engine.Engine(settings, start_fake_lane)
sys.exit(main.main(sys.argv[1:]))
"""
QUICK = {"load_s": 0, "first_s": 0.001, "token_s": 0.001, "tokens": 5}
COMPARE, BENCH, QUALITY = ["compare", "hi"], ["bench"], ["quality", "--prompts", "FOLDER/prompts.txt"]
FILES = ("out.json", "prompts.txt")
PHASES = {  # what is asked, what its lanes do, what is then said
    "starting": (COMPARE, {"imports_s": 60}, "4-bit: loading"),
    "loading": (BENCH, {"stands": "load"}, "loading plain"),
    "prefill": (COMPARE, {"stands": 1}, "4-bit: reading the prompt"),
    "decode": (COMPARE, {"stands": 3}, "4-bit: writing"),
    "warm-up": (BENCH, {"stands": 3}, "loading plain"),
    "scoring": (QUALITY, {"stands": "score"}, "answer 1 of 1"),
}


@pytest.fixture(autouse=True)
def in_front():
    """The tests may run in the background, whose jobs heed no Ctrl+C: what they start is to heed it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    else:
        yield


class Command:
    """One command over scripted lanes, in a folder of its own, once it is in a phase."""

    def __init__(self, phase: str, folder: Path) -> None:
        asked, script, said = PHASES[phase]
        self.folder = folder
        for name in FILES:
            (folder / name).write_text("old")
        environment = {**os.environ, "FAKE_LANE": json.dumps({"*": {**QUICK, **script}})}
        command = [
            sys.executable,
            "-c",
            PROGRAM,
            *(word.replace("FOLDER", str(folder)) for word in asked),
            "--lanes",
            "cpu:nf4,cpu:fp32",
            "--json",
            str(folder / "out.json"),
        ]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        assert any(said in line for line in self.process.stderr), "it ended before it came there"
        self.lanes = psutil.Process(self.process.pid).children()
        assert self.lanes

    def ended_by(self, number: int) -> tuple[int, str]:
        """Its exit code and what it said after the signal; its lanes are gone and its folder holds what it held."""
        self.process.send_signal(number)
        out, said = self.process.communicate(timeout=30)
        until(lambda: not any(lane.is_running() and lane.status() != psutil.STATUS_ZOMBIE for lane in self.lanes), what="no lane left")
        assert out == "" and {file.name: file.read_text() for file in self.folder.iterdir()} == dict.fromkeys(FILES, "old")
        return self.process.returncode, said


@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_ends_a_command_in_any_phase_with_one_sentence(phase, tmp_path):
    code, said = Command(phase, tmp_path).ended_by(signal.SIGINT)
    assert code == 130 and said.strip().splitlines()[-1] == "Stopped." and "Traceback" not in said


@pytest.mark.parametrize("phase", ["starting", "decode"])
def test_a_command_that_is_killed_leaves_no_lane(phase, tmp_path):
    assert Command(phase, tmp_path).ended_by(signal.SIGKILL)[0] == -signal.SIGKILL


@pytest.mark.parametrize(("command", "at"), [(["app.py"], "argparse"), (["app.py"], "gradio"), (["-m", "inference", "compare", "hi"], "argparse")])
def test_ctrl_c_before_anything_has_begun_is_one_sentence_too(command, at, tmp_path):
    (tmp_path / f"{at}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 130 and done.stderr == "\nStopped.\n" and done.stdout == ""


def test_a_job_in_the_background_heeds_no_ctrl_c():
    code = "import os, signal; signal.signal(2, signal.SIG_IGN); from inference.host import stopping; stopping.at_once(); os.kill(os.getpid(), 2); print('on')"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout == "on\n"


def test_a_program_that_is_to_outlast_its_terminal_does():
    code = "import signal; signal.signal(1, signal.SIG_IGN); from inference.host import stopping; print(stopping.hang_up())"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout == "()\n"
    assert signal.SIGHUP in stopping.hang_up()


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_stream_that_was_closed_takes_nothing_with_it(closed, tmp_path):
    """What was closed is where the next file that is opened comes to lie, which was then written to."""
    record, out = ROOT / "tests/decide/menu.json", tmp_path / "out.json"
    wanted = f"decide {record} --answers-per-day 9 --price cpu:nf4=1 --price cpu:fp32=2 --json {out}"
    done = subprocess.run(f"{sys.executable} -m inference {wanted} {closed}", shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Traceback" not in done.stderr and json.loads(out.read_text())["chosen"] == "cpu:nf4"
    assert "1>&-" in closed or done.stdout.startswith("Serve ")


def test_a_page_whose_stdout_was_closed_says_what_is_wrong_and_no_trace(tmp_path):
    done = subprocess.run(f"{sys.executable} app.py --lanes nonsense 1>&-", shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "nonsense" in done.stderr and "Traceback" not in done.stderr
