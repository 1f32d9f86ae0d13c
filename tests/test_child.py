"""How a process of ours logs: nothing of its libraries that draws bars, or advises against what we do on purpose."""

from __future__ import annotations

import os
import subprocess
import sys

from inference import child

SCRIPT = """
import logging, sys, warnings
from inference import child
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
