"""How a process of ours starts another one, and how the other one ends with it. Standard library and the log only."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import warnings
from pathlib import Path

from inference import log

ROOT = Path(__file__).resolve().parent.parent.parent
ZERO_GPU = "SPACES_ZERO_GPU"  # set on a Space whose GPU is lent for a call at a time, to the page's own process alone
PR_SET_PDEATHSIG = 1
ADVICE = ("bitsandbytes.backends.cpu.ops", "transformers.quantizers.quantizer_gguf")  # these warn of what we do on purpose


def on_zero_gpu() -> bool:
    """Whether this is the page's process on a ZeroGPU Space, read as the platform's own package reads it."""
    return os.environ.get(ZERO_GPU, "").lower() in ("1", "t", "true")


def environment(**more: str) -> dict[str, str]:
    """This process's environment, in which a child finds our packages wherever it is started, and none in that folder, which may be a checkpoint's; and `more`.

    On ZeroGPU no child has the card, nor knows of the platform.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if on_zero_gpu() else {}
    inherited = {name: value for name, value in os.environ.items() if name != ZERO_GPU}
    return {**inherited, **hidden, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", **more}


def log_to_stderr(quiet: bool) -> None:
    """Set up the log of a process that works for a lane, before its heavy imports; `quiet`: faults with their traces only, of libraries too."""
    log.begin()
    logging.basicConfig(level=logging.ERROR if quiet else logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    log.hush_clients(logging.ERROR if quiet else logging.WARNING)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # those of transformers too; our own progress goes by a hook
    os.environ.setdefault("TQDM_DISABLE", "1")  # a GGUF file's bar heeds nothing else
    for name in ADVICE:
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.simplefilter("ignore", FutureWarning)
    if quiet:
        warnings.simplefilter("ignore")
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def be_killed_with_parent() -> None:
    """Called in a child: where the system can, it is killed when the thread that started it ends, also frozen or in a library that holds the interpreter's lock."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def end_with_parent() -> None:
    """Called in a child whose input is a pipe from its parent: end it when the parent closes the pipe, or ends in any way."""
    be_killed_with_parent()
    threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
