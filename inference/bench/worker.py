"""`python -m inference.bench.worker LANE plain|static-compile|dequantized|llama.cpp`: a lane's process that answers another way, for the bench.

The pipe is that of `lane/worker.py`; threads are left as the way itself sets them.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

from inference.lane.worker import serve  # takes the descriptors for itself, so it comes before anything that could print

from inference.events import Hello  # isort: skip
from inference.settings import Settings  # isort: skip


def start_way(way: str, name: str, settings: Settings) -> tuple[Any, Hello]:
    """The lane `name` answered by `way`; (None, hello) where it can't run."""
    began = time.perf_counter()
    from inference.lane.probe import hello_of

    hello = hello_of(name)
    if not hello.available:
        return None, hello
    from inference.bench.baseline import BaselineLane

    return BaselineLane(hello.lane, settings, _way(way, hello.lane, settings), time.perf_counter() - began), hello


def _way(way: str, lane: str, settings: Settings) -> Any:
    if way == "llama.cpp":
        from inference.bench.llama_cpp import LlamaCpp

        return LlamaCpp(settings, lane)
    if way == "dequantized":
        from inference.bench.dequantized import Dequantized

        return Dequantized(lane)
    from inference.bench.plain import Generate

    return Generate(lane, way == "static-compile")


if __name__ == "__main__":
    serve(sys.argv[1], partial(start_way, sys.argv[2]))
