"""Our own faster ways: their names, the one switch over them (FAST), and the seam that tries one and keeps why it is not used.

In: what a person allowed, and work that may fail. Out: what is in use, and for the rest the reason. Standard library only; what a
way does is its own room's business. Whatever one raises, the lane goes on without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from inference.errors import DeviceLost, InferenceError, WrongArguments
from inference.events import Loading, Report

log = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Way:
    """One optional way: the lanes it is for, and what it does, in words that follow "making ready: "."""

    lanes: tuple[str, ...]
    words: str


WAYS = {
    "cuda-graph": Way(("cuda:nf4", "cuda:bf16"), "own CUDA kernels, one captured graph a token"),
    "c-step": Way(("cpu:fp32", "cpu:nf4"), "prefill and decode step in C, one call each"),
    "compact": Way(("cpu:fp32", "cpu:nf4", "cuda:nf4"), "16-bit storage of matrices that hold only 16-bit values"),
    "products": Way(("cpu:fp32", "cpu:nf4"), "own product of rows with a matrix"),
    "nf4": Way(("cpu:nf4",), "own product of packed 4-bit weights"),
}
ALL = tuple(WAYS)
OFF = "switched off (FAST)"
ENDED = "the lane's process ended while it was tried or in use, so it is left out since then"


def parse(text: str) -> tuple[str, ...]:
    """The ways that FAST names: all, none, or a list separated by commas; raises WrongArguments for an unknown one."""
    if text in ("all", "none"):
        return ALL if text == "all" else ()
    named = tuple(part.strip() for part in text.split(",") if part.strip())
    if unknown := [name for name in named if name not in WAYS]:
        raise WrongArguments(f"FAST knows no {unknown[0]!r}. Set it to all, none, or some of: {', '.join(WAYS)}.")
    return tuple(name for name in WAYS if name in named)


class FastWays:
    """The faster ways of one lane: which are `used`, and of each other one `why_not`."""

    def __init__(self, lane: str, allowed: Iterable[str], lost: Iterable[str] = (), device_lost: Callable[[], bool] = lambda: False) -> None:
        """`lost`: ways that ended a process of this lane before. `device_lost` tells whether the device is past use after an error."""
        self.names = tuple(name for name, way in WAYS.items() if lane in way.lanes)
        self.used: list[str] = []
        self.checked: tuple[dict[str, Any], ...] = ()  # what the check that let a way in has found (`parts/check.py`)
        self.why_not = {name: ENDED if name in lost else OFF for name in self.names if name in lost or name not in allowed}
        self._device_lost = device_lost

    def may(self, name: str) -> bool:
        """Whether `name` is this lane's, allowed, and not given up."""
        return name in self.names and name not in self.why_not

    def attempt(self, name: str, work: Callable[[], Result], report: Report | None = None, ready: bool = True) -> Result | None:
        """What `work` gives; None, with the reason kept, where it may not be tried or raises anything at all.

        `report` is told before, so that a process which ends in native code leaves behind what it was at. `ready`: once the work is
        done the way is in use, and not only further on. Raises DeviceLost where the device itself is past use: then nothing in this process
        can answer.
        """
        if not self.may(name):
            return None
        if report:
            report(Loading(f"making ready: {WAYS[name].words}", trying=name))
        try:
            result = work()
        except Exception as error:
            if self._device_lost():
                raise DeviceLost(f"The device stopped working while trying {name} ({first_line(error)}).") from error
            self.refuse(name, first_line(error), trace=not isinstance(error, InferenceError))
            return None
        if ready and name not in self.used:
            self.used.append(name)
        return result

    def leave_out(self, name: str) -> None:
        """`name` means nothing on this machine, so nothing is said of it."""
        self.names = tuple(each for each in self.names if each != name)
        self.why_not.pop(name, None)

    def refuse(self, name: str, reason: str, trace: bool = False) -> None:
        """Do without `name` from now on, for `reason`; `trace`: an error is being handled whose trace belongs into the log."""
        log.log(logging.WARNING if trace else logging.INFO, "%s is not used: %s", name, reason, exc_info=trace)
        self.why_not[name] = reason
        if name in self.used:
            self.used.remove(name)


def first_line(error: BaseException) -> str:
    """An error in one line: our own sentences as they are, others with their kind before them."""
    line = str(error).strip().split("\n")[0]
    return line if isinstance(error, InferenceError) and line else f"{type(error).__name__}: {line[:300]}".rstrip(": ")
