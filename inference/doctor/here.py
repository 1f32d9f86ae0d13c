"""Which of our faster ways can be had on this machine, whatever the model. In: a way's name. Out: why not, or None."""

from __future__ import annotations

from collections.abc import Callable

import torch

from inference.cuda.decoder import OLDEST_CAPABILITY
from inference.cuda.device_code import DeviceCode
from inference.errors import InferenceError
from inference.fast import FastWays
from inference.host import machine


def why_not(name: str, ways: FastWays) -> str | None:
    """Why the way `name` of a lane can't be had here; None where it can."""
    return ways.why_not.get(name) or REASONS.get(name, lambda: None)()


def _no_graph() -> str | None:
    """Why our CUDA kernels can't be compiled and loaded here; None where they can."""
    if torch.cuda.get_device_capability() < OLDEST_CAPABILITY:
        return f"the GPU is older than compute capability {OLDEST_CAPABILITY[0]}.{OLDEST_CAPABILITY[1]}"
    try:
        DeviceCode('extern "C" __global__ void nothing() {}', {}, torch.device("cuda"))
    except (InferenceError, OSError, RuntimeError) as error:
        return str(error).split("\n")[0]
    return None


def _no_library() -> str | None:
    return None if machine.c_compiler() else "no C compiler is installed"


REASONS: dict[str, Callable[[], str | None]] = {"cuda-graph": _no_graph, "c-step": _no_library, "products": _no_library, "nf4": _no_library}
