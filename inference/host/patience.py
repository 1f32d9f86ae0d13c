"""Work that waits for others, given up where nothing moves for so long. In: work, seconds. Out: what it gives, or the fault of whoever asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

Result = TypeVar("Result")
LOOK_S = 5.0  # so often what another program does is looked at


class Watch:
    """Runs work; gives it up, and lets it go on in its thread, where nothing moves for `silent_s`: then `fault` is raised."""

    def __init__(self, silent_s: float, fault: Callable[[], Exception]) -> None:
        self._silent_s, self._fault = silent_s, fault
        self.moved()

    def moved(self) -> None:
        """The work has got on."""
        self._until = time.monotonic() + self._silent_s

    def run(self, work: Callable[[], Result], others: Callable[[], int] = lambda: 0, on_others: Callable[[], object] = lambda: None) -> Result:
        """What `work` gives. `others` grows while another program does the same, for which `work` may wait; `on_others` is called where it does."""
        self.moved()
        until, held = self._until, others()
        future: Future[Result] = Future()
        threading.Thread(target=_settle, args=(future, work), name="hub", daemon=True).start()
        while not future.done():
            if (left := self._until - time.monotonic()) <= 0:
                raise self._fault()
            wait([future], min(left, LOOK_S))
            before, held = held, others()
            if held > before and self._until == until:
                self.moved()
                on_others()
            until = self._until
        return future.result()


def _settle(future: Future[Result], work: Callable[[], Result]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
        future.set_exception(error)
