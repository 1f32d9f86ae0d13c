"""The one error family: a sentence that says what happened, then what to do next; and which of other errors are a want of memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

IN_A_RUN = ("in this run", "Shorten the prompt or ask for fewer new tokens; the lane is still usable.")  # for `memory_told`
# the last is what CUDA says at times of a card that is so full that a process can't even begin on it
SHORT_OF_MEMORY = ("out of memory", "allocate memory", "not enough memory", "insufficient memory", "alloc_failed", "busy or unavailable")


class InferenceError(Exception):
    """A fault told in plain words; `str(error)` is shown to the person, the trace goes to the log."""


class Refused(InferenceError):
    """A load that was not begun because it could not succeed (it does not fit, no such device, a locked model)."""


class OutOfMemory(InferenceError):
    """A load or a run that was begun and found too little memory; neither the files it read nor the way it took are to blame."""


class WrongArguments(InferenceError):
    """Arguments or settings that can't be used, told before anything starts; a command ends with 2, for any other fault with 1."""


class DeviceLost(InferenceError):
    """The device (a CUDA context) is past use in this process: only a new process can answer."""


DEVICE_LOST_CODE = 70  # with which a lane's process ends where its device is past use
WRITTEN_OVER_CODE = 71  # where the files that its weights lie in were
KEPT = "The text so far is kept; "
UNEXPECTED = "This lane failed unexpectedly ({}); the log has the trace. Ask again, or run `python -m inference doctor`."
BROKEN = "The libraries can't be used here ({}). Mend what that names, or install them anew (pip install -r requirements.txt), then start again."


def nothing_kept(told: str) -> str:
    """A fault's sentence where there is no text that could be kept."""
    before, _, after = told.partition(KEPT)
    return before + after[:1].upper() + after[1:]


def short_of_memory(error: BaseException) -> bool:
    """Whether an error is a want of memory, of the computer's or of a card's: torch's own say so in words."""
    return isinstance(error, (OutOfMemory, MemoryError)) or any(words in str(error).lower() for words in SHORT_OF_MEMORY)


@contextlib.contextmanager
def memory_told(device: str, doing: str, advice: str) -> Iterator[None]:
    """Turn a want of memory inside into its sentence (OutOfMemory); everything else goes through as it is."""
    try:
        yield
    except (OutOfMemory, Refused, DeviceLost):
        raise
    except Exception as error:
        of_a_server = device not in ("cpu", "cuda") and isinstance(error, InferenceError)  # in its words, and of its own memory
        if of_a_server or not short_of_memory(error):
            raise
        of_the_card = device == "cuda" and not isinstance(error, MemoryError) and "allocate memory" not in str(error).lower()
        said = "The GPU ran out of memory" if of_the_card else "The computer's memory (RAM) ran out"
        raise OutOfMemory(f"{said} {doing}. {advice}") from error
