"""`python tests/load/faulty_worker.py LANE`: a lane's real process in which one thing goes wrong, once: for `tests/load/faults.py`.

In: FAULT, "PHASE KIND", and FAULT_FILE, which is made when it has gone wrong and holds when (seconds of the machine's monotonic clock), so
that the next process of the lane is whole.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from inference.lane import worker  # takes this process's input and output for itself

PHASE, KIND = os.environ["FAULT"].split()
DONE = Path(os.environ["FAULT_FILE"])
KEPT: list[Any] = []  # what `not_finite` took the place of
PLACES = {
    "fetch": ("inference.sources.fetching", "Fetch.result"),
    "read": ("inference.lane.lane", "Lane._read"),
    "warm-up": ("inference.lane.lane", "Lane._try"),
    "fast-path": ("inference.lane.paths", "DecodePaths.make_ready"),
    "prefill": ("inference.lane.lane", "_Answer.tokens"),
    "score": ("inference.lane.scoring", "logit_blocks"),
    "rest": ("inference.lane.lane", "Lane.between_runs"),
}


def loop(*_: Any) -> None:
    while True:
        pass


def noise(*_: Any) -> None:
    for _ in range(2000):
        worker._OUT.write("no event " * 20 + "\n")
    worker._OUT.flush()


def close_output(*_: Any) -> None:
    os.close(worker._OUT.fileno())


def memory(*_: Any) -> None:
    raise MemoryError("no room")


def card(*_: Any) -> None:
    """As torch raises it; there need be no card."""
    import torch

    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.89 GiB of which 0 bytes is free.")


def clock(*_: Any) -> None:
    """Set back by a year, for this process."""
    right = time.time
    time.time = lambda: right() - 365 * 86400


def head_of(answer: Any) -> Any:
    return answer._lane.model.get_output_embeddings().weight.data


def not_finite(answer: Any, *_: Any) -> None:
    """A row of the head is no number, until the run is over."""
    head = head_of(answer)
    KEPT.append(head[0].clone())
    head[0] = float("nan")


def fill_disk(*_: Any) -> None:
    """The cache's disk, which `faults.py` has made small."""
    with contextlib.suppress(OSError), open(Path(os.environ["CACHE_DIR"]) / "fills-it", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def damage(*_: Any) -> None:
    """Every file of the cache, after which this process is gone."""
    for path in Path(os.environ["CACHE_DIR"]).rglob("*"):
        if path.is_file() and path.stat().st_size:
            path.write_bytes(bytes(path.stat().st_size))
    kill()


def kill(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


KINDS: dict[str, Callable[..., object]] = {
    "freeze": lambda *_: os.kill(os.getpid(), signal.SIGSTOP),
    "loop": loop,
    "hold": lambda *_: ctypes.PyDLL(None).sleep(3600),  # native code that never gives the interpreter's lock back
    "kill": kill,
    "crash": lambda *_: os.kill(os.getpid(), signal.SIGSEGV),
    "exit": lambda *_: os._exit(3),
    "noise": noise,
    "close": close_output,
    "memory": memory,
    "card": card,
    "clock": clock,
    "disk": fill_disk,
    "damage": damage,
    "nan": not_finite,
}


def strike(*arguments: Any) -> None:
    """Once in all processes of a lane."""
    if not DONE.exists():
        DONE.write_text(str(time.monotonic()))
        KINDS[KIND](*arguments)


def before(own: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **more: Any) -> Any:
        strike(*arguments)
        return own(*arguments, **more)

    return call


def at_the_fourth(own: Callable[..., Any]) -> Callable[..., Any]:
    def tokens(*arguments: Any) -> Any:
        for n, token in enumerate(own(*arguments)):
            if n == 3:
                strike(*arguments)
            yield token

    return tokens


def healed(own: Callable[..., Any]) -> Callable[..., Any]:
    def tokens(answer: Any, *more: Any) -> Any:
        try:
            yield from own(answer, *more)
        finally:
            if KEPT:
                head_of(answer)[0] = KEPT.pop()

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
        own = (at_the_fourth if PHASE == "decode" else before)(getattr(owner, last))
        setattr(owner, last, healed(own) if KIND == "nan" else own)
    return made


if __name__ == "__main__":
    worker.serve(sys.argv[1], start)
