"""How a process of ours starts another one, and how the other one ends with it. Standard library only."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PR_SET_PDEATHSIG = 1
ADVICE = ("bitsandbytes.backends.cpu.ops", "transformers.quantizers.quantizer_gguf")  # these warn of what we do on purpose


def environment(**more: str) -> dict[str, str]:
    """This process's environment, in which a child finds our packages wherever it is started, and `more`."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, **more}


def log_to_stderr(quiet: bool) -> None:
    """Set up the log of a process that works for a lane, before its heavy imports; `quiet`: faults with their traces only, of libraries too."""
    logging.basicConfig(level=logging.ERROR if quiet else logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.ERROR if quiet else logging.WARNING)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # those of transformers too; our own progress goes by a hook
    os.environ.setdefault("TQDM_DISABLE", "1")  # a GGUF file's bar heeds nothing else
    for name in ADVICE:
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.simplefilter("ignore", FutureWarning)
    if quiet:
        warnings.simplefilter("ignore")
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def end_with_parent() -> None:
    """Called in a child whose input is a pipe from its parent: end it when the parent closes the pipe, or ends in any way."""
    if sys.platform == "linux":
        # a library that holds the interpreter's lock would keep the thread below from seeing it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
