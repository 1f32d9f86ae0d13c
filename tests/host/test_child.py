"""How a process of ours logs (no bars of its libraries, no advice against what we do on purpose), and how it ends with the one that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil

from inference.host import child
from tests.support.until import until

SCRIPT = """
import logging, sys, warnings
from inference.host import child
child.log_to_stderr(quiet=False)
from tqdm.auto import tqdm
list(tqdm([1, 2], desc="Converting"))
for name in child.ADVICE:
    logging.getLogger(name).warning("pip install something")
warnings.warn("is deprecated", FutureWarning)
logging.getLogger("inference").info("ours")
"""


def test_the_log_holds_no_bars_and_no_advice_of_libraries():
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("TQDM", "HF_HUB"))}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env={**clean, "PYTHONPATH": str(child.ROOT)}, capture_output=True, text=True, check=True)
    assert done.stderr == "INFO inference: ours\n"


PAGE = """
import threading, time
from inference.engine.process import start_module
from inference.settings import Settings
said = threading.Event()
def start():
    start_module(Settings(), "inference.endpoint.worker", "endpoint:x").watch(lambda event: said.set(), print)
    said.wait(10)
starter = threading.Thread(target=start)
starter.start(), starter.join()
print("started", flush=True)
time.sleep(60)
"""


def test_a_child_imports_nothing_of_the_folder_it_is_started_in(tmp_path):
    """Which may be a checkpoint's, and hold a file that is called as a package that is looked for."""
    (tmp_path / "psutil.py").write_text("raise SystemExit('it was run')")
    (tmp_path / "inference").mkdir()
    (tmp_path / "inference" / "__init__.py").write_text("raise SystemExit('it was run')")
    for how in (["-c", "import psutil, inference.units"], ["-m", "inference.units"]):
        done = subprocess.run([sys.executable, *how], cwd=tmp_path, env=child.environment(), capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_frozen_lane_ends_with_a_page_that_is_killed_and_not_with_the_thread_that_asked_for_it():
    environment = child.environment(ENDPOINT_X_URL="http://127.0.0.1:9/v1")
    page = subprocess.Popen([sys.executable, "-c", PAGE], env=environment, stdout=subprocess.PIPE, text=True)
    assert page.stdout is not None
    try:
        assert page.stdout.readline() == "started\n"
        (lane,) = psutil.Process(page.pid).children()
        lane.suspend()
        until(lambda: lane.status() == psutil.STATUS_STOPPED, what="a frozen lane, which lives though the thread that asked for it is gone")
    finally:
        page.send_signal(signal.SIGKILL)
        page.wait()
    until(lambda: not lane.is_running() or lane.status() == psutil.STATUS_ZOMBIE, what="the lane's end")
