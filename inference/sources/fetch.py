"""`python -m inference.sources.fetch NAME`: fetches, restores or writes a checkpoint; the other end of `fetching.py`.

JSON lines on stdout: {"loading": {...}} for progress, at the end {"checkpoint": {...}} or {"failed": SENTENCE, "refused": bool}.
The process ends with the one that started it.
"""

from __future__ import annotations

import os
import sys

_OUT = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)  # a library's print must not break a message

import json  # noqa: E402
import logging  # noqa: E402
import time  # noqa: E402
from dataclasses import asdict  # noqa: E402
from typing import Any  # noqa: E402

from inference.errors import InferenceError, Refused, memory_told  # noqa: E402
from inference.events import Loading  # noqa: E402
from inference.fast import first_line  # noqa: E402
from inference.host import child  # noqa: E402
from inference.settings import from_env  # noqa: E402

log = logging.getLogger(__name__)
EVERY_S = 0.1


class _Progress:
    """Passes progress on, the bytes of one download ten times a second at most."""

    def __init__(self) -> None:
        self._stage, self._told_at = "", 0.0

    def __call__(self, loading: Loading) -> None:
        now = time.monotonic()
        if loading.stage != self._stage or now - self._told_at >= EVERY_S:
            self._stage, self._told_at = loading.stage, now
            _say(loading=asdict(loading))


def _say(**message: Any) -> None:
    _OUT.write(json.dumps(message) + "\n")
    _OUT.flush()


def main(name: str) -> None:
    """Fetch `name` and say how it went."""
    child.end_with_parent()
    settings = from_env()
    child.log_to_stderr(settings.quiet)
    try:
        from inference.sources import checkpoints

        with memory_told("cpu", f"while preparing {name}", "Free some, then ask again."):
            found = checkpoints.find(name, settings, _Progress())
        _say(checkpoint={**asdict(found), "folder": str(found.folder)})
    except InferenceError as error:
        log.info("not fetched", exc_info=True)
        _say(failed=str(error), refused=isinstance(error, Refused))
    except Exception as error:
        log.exception("fetching %s failed", name)
        _say(failed=f"{name} could not be fetched ({first_line(error)}); the log has the trace. Check MODEL_ID, then ask again.", refused=False)


if __name__ == "__main__":
    main(sys.argv[1])
    os._exit(0)  # a download that was given up may still wait in its thread
