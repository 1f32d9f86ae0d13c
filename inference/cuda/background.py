"""Makes the captured path ready while the eager one answers, and tells why there is none where it can't be had.

`start` compiles the kernels in a thread; `finish`, called when no run is under way, checks and captures (about a
second). The time both took is counted as load by the caller.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import torch
from torch import nn

from inference.cuda.decoder import GraphDecoder
from inference.errors import InferenceError

log = logging.getLogger(__name__)
MAX_CONTEXT = 2304


class FastPath:
    """The captured path of one loaded model; `decoder` is None until it is ready, `reason` says why it will not be."""

    def __init__(self, model: nn.Module, context_length: int) -> None:
        self.decoder: GraphDecoder | None = None
        self.reason: str | None = None
        self.seconds = 0.0
        self._model, self._context = model, min(MAX_CONTEXT, context_length)
        self._built: GraphDecoder | None = None
        self._thread = threading.Thread(target=self._build, name="fast-path", daemon=True)

    def start(self) -> None:
        """Begin to compile, in a thread; runs go on meanwhile."""
        self._thread.start()

    @property
    def building(self) -> bool:
        """Whether the kernels are still being compiled; then `finish` can't be called yet."""
        return self._thread.is_alive()

    def finish(self) -> None:
        """Check against the model and capture; call it between runs, from the thread that runs the model."""
        began = time.perf_counter()
        self._attempt(self._capture)
        self.seconds += time.perf_counter() - began

    def _build(self) -> None:
        began = time.perf_counter()
        self._attempt(self._compile)
        self.seconds += time.perf_counter() - began

    def _compile(self) -> None:
        self._built = GraphDecoder(self._model, self._context)

    def _capture(self) -> None:
        assert self._built is not None
        self._built.warm_up()
        self.decoder = self._built

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except torch.cuda.OutOfMemoryError:
            self._give_up("the GPU has no room for its cache")
        except (InferenceError, RuntimeError, OSError) as error:
            self._give_up(str(error).split("\n")[0])

    def _give_up(self, reason: str) -> None:
        self.reason, self._built = reason, None
        log.warning("no captured path: %s", reason)
