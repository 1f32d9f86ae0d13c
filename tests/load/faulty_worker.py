"""`python tests/load/faulty_worker.py LANE`: a lane's real process in which one thing goes wrong, once: for `tests/load/faults.py`.

In: FAULT, "PHASE KIND", and FAULT_FILE, which is made when it has gone wrong, so that the next process of the lane is whole.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from inference.lane import worker  # takes this process's input and output for itself

PHASE, KIND = os.environ["FAULT"].split()
DONE = Path(os.environ["FAULT_FILE"])
PLACES = {
    "fetch": ("inference.sources.fetching", "Fetch.result"),
    "read": ("inference.lane.lane", "Lane._read"),
    "warm-up": ("inference.lane.lane", "Lane._try"),
    "fast-path": ("inference.lane.paths", "DecodePaths.make_ready"),
    "prefill": ("inference.lane.lane", "_Answer.tokens"),
    "score": ("inference.lane.scoring", "logit_blocks"),
    "rest": ("inference.lane.lane", "Lane.between_runs"),
}


def loop() -> None:
    while True:
        pass


def noise() -> None:
    for _ in range(2000):
        worker._OUT.write("no event " * 20 + "\n")
    worker._OUT.flush()


def close_output() -> None:
    os.close(worker._OUT.fileno())


def memory() -> None:
    raise MemoryError("no room")


KINDS: dict[str, Callable[[], object]] = {
    "freeze": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "loop": loop,
    "hold": lambda: ctypes.PyDLL(None).sleep(3600),  # native code that never gives the interpreter's lock back
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "exit": lambda: os._exit(3),
    "noise": noise,
    "close": close_output,
    "memory": memory,
}


def strike() -> None:
    """Once in all processes of a lane."""
    if not DONE.exists():
        DONE.touch()
        KINDS[KIND]()


def before(own: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **more: Any) -> Any:
        strike()
        return own(*arguments, **more)

    return call


def at_the_fourth(own: Callable[..., Any]) -> Callable[..., Any]:
    def tokens(*arguments: Any) -> Any:
        for n, token in enumerate(own(*arguments)):
            if n == 3:
                strike()
            yield token

    return tokens


def start(name: str, settings: Any) -> Any:
    if PHASE == "import":
        strike()
    made = worker.start_lane(name, settings)
    if PHASE != "import":
        module, place = PLACES["prefill" if PHASE == "decode" else PHASE]
        owner: Any = importlib.import_module(module)
        *path, last = place.split(".")
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, (at_the_fourth if PHASE == "decode" else before)(getattr(owner, last)))
    return made


if __name__ == "__main__":
    worker.serve(sys.argv[1], start)
