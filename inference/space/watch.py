"""Waiting until a Space runs what was uploaded, on the hardware that was asked for: says each stage once, and how a failed one ended.

In: the Hub, the commit, a budget. Out: nothing, once it runs; else the sentence, with the log's last lines where the Hub gives them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from huggingface_hub import constants

from inference.errors import InferenceError
from inference.space.asked import Asked
from inference.space.hub import Hub, State
from inference.units import seconds

POLL_S = 5.0
SETTLE_S = 30.0  # how long a stage of before the upload may be told, where the Hub does not say of which commit it is
FAULTS_IN_A_ROW = 5
WORDS = {
    "NO_APP_FILE": "has no app file yet", "BUILDING": "is being built", "RUNNING_BUILDING": "is being built, the one before runs on",
    "APP_STARTING": "is starting", "RUNNING_APP_STARTING": "is starting, the one before runs on", "RUNNING": "runs",
}  # fmt: skip
ON_ITS_WAY = ("BUILDING", "RUNNING_BUILDING", "APP_STARTING", "RUNNING_APP_STARTING")
ENDED = {
    "BUILD_ERROR": "could not be built", "RUNTIME_ERROR": "ended with an error", "CONFIG_ERROR": "is not described rightly (README.md's head)",
    "NO_APP_FILE": "has no app file", "STOPPED": "was stopped", "PAUSED": "is paused", "SLEEPING": "sleeps", "DELETING": "is being deleted",
}  # fmt: skip


@dataclass(frozen=True)
class Clock:
    """The time, and waiting for some of it, in seconds."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def until_it_runs(hub: Hub, asked: Asked, commit: str, before: str, say: Callable[[str], None], clock: Clock | None = None) -> None:
    """Return once the Space runs `commit`; raises InferenceError where it failed, or `asked.budget_s` is over.

    `before`: its stage before the upload, which is told for some seconds more; empty where nothing has changed.
    """
    clock = clock or Clock()
    began, told, moved, faults = clock.now(), "", False, 0
    while True:
        try:
            state = hub.state()
            faults = 0
        except InferenceError:
            faults += 1
            if faults >= FAULTS_IN_A_ROW:
                raise
        else:
            spent = clock.now() - began
            moved = moved or state.commit == commit or (state.stage != before and before not in ON_ITS_WAY)
            if state.stage != told:
                told = state.stage
                say(f"The Space {WORDS.get(told, ENDED.get(told, told))} ({told})")
            if (moved or (spent >= SETTLE_S and state.commit is None)) and _settled(state, asked, hub):
                return
        if clock.now() - began >= asked.budget_s:
            raise InferenceError(
                f"The Space does not run after {seconds(asked.budget_s)} (its stage: {told or 'unknown'}). It goes on by itself: look at {page(asked)}, "
                "or give more time with --wait MINUTES."
            )
        clock.sleep(POLL_S)


def _settled(state: State, asked: Asked, hub: Hub) -> bool:
    """Whether it runs as asked; raises InferenceError where it ended in another way."""
    if state.stage in ENDED:
        raise InferenceError(_failure(state, asked, hub))
    return state.stage == "RUNNING" and state.hardware in (None, asked.hardware.flavor, state.requested)


def _failure(state: State, asked: Asked, hub: Hub) -> str:
    build = state.stage == "BUILD_ERROR"
    reason = " ".join(asked.masked(state.message).split())[:500].rstrip(".")
    sentence = f"The Space {ENDED[state.stage]} ({state.stage}{f': {reason}' if reason else ''})."
    lines = hub.last_lines(build) if state.stage in ("BUILD_ERROR", "RUNTIME_ERROR", "CONFIG_ERROR") else []
    if lines:
        sentence += " The end of its log:\n" + "\n".join(f"  {line}" for line in lines)
    return f"{sentence}\nMend that and deploy again; the whole log: {page(asked)}?logs={'build' if build else 'container'}"


def page(asked: Asked) -> str:
    """Where the Space is looked at."""
    return f"{constants.ENDPOINT}/spaces/{asked.space}"
