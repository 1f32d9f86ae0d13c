"""`python -m inference.endpoint.worker endpoint:NAME`: a server elsewhere behind the JSON lines of every lane (`lane/worker.py`).

The address and the key come by the environment; neither is in what is written to stdout, nor in the log, whoever logs it.
"""

from __future__ import annotations

import importlib.metadata
import logging
import platform
import sys
import traceback
from typing import Any

from inference.endpoint import private
from inference.endpoint.server import Server
from inference.endpoints import Endpoint
from inference.errors import InferenceError
from inference.events import ForcedRequest, Hello, Request
from inference.host import child
from inference.lane import worker  # takes this process's input and output for itself
from inference.lanes import ENDPOINT
from inference.score_events import ScoreRequest
from inference.settings import Settings, from_env

NO_IDS = "A server gives neither ids nor log-probabilities, so nothing can be scored by it. Leave this lane out."


class _Redacted(logging.Formatter):
    """Log lines, traces included, without what may not be shown."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._endpoint = endpoint

    def format(self, record: logging.LogRecord) -> str:
        return self._endpoint.without_secrets(super().format(record))


class EndpointWorker(worker.Worker):
    """The loop of every lane; what takes ids is refused."""

    def _generate(self, run_id: str, request: Request) -> None:
        if isinstance(request, ForcedRequest):
            raise InferenceError(NO_IDS)
        super()._generate(run_id, request)

    def _score(self, run_id: str, request: ScoreRequest) -> None:
        raise InferenceError(NO_IDS)

    def _device_lost(self) -> bool:
        return False


def start(name: str, settings: Settings) -> tuple[Any, Hello]:
    """The server as a lane; whether it answers is found out in its load."""
    versions = {"python": platform.python_version(), "huggingface_hub": importlib.metadata.version("huggingface_hub")}
    here = {"on_this_machine": settings.endpoint(name).on_this_machine}
    return Server(name, settings), Hello(name, ENDPOINT, versions, here)


def main(name: str) -> None:
    """Run the lane until the input closes."""
    child.be_killed_with_parent()
    settings = from_env()
    endpoint = settings.endpoint(name)
    private.prepare(endpoint)
    child.log_to_stderr(settings.quiet)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Redacted(endpoint))
    sys.excepthook = lambda *error: print(endpoint.without_secrets("".join(traceback.format_exception(*error))), file=sys.stderr)
    EndpointWorker(name, settings, start).run()


if __name__ == "__main__":
    main(sys.argv[1])
