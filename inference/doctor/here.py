"""Which of our faster ways can be had on this machine, whatever the model. In: a way's name. Out: why not, or None."""

from __future__ import annotations

from collections.abc import Callable

import torch

from inference.cpu import library
from inference.cpu.compiling import compiler
from inference.cuda.decoder import OLDEST_CAPABILITY
from inference.cuda.device_code import DeviceCode
from inference.errors import InferenceError
from inference.fast import FastWays
from inference.models import loading


def why_not(name: str, ways: FastWays) -> str | None:
    """Why the way `name` of a lane can't be had here; None where it can."""
    arithmetic = _other_arithmetic() if "nf4" in ways.names else None  # none of ours is taken in that lane then
    return ways.why_not.get(name) or arithmetic or REASONS.get(name, lambda: None)()


def _no_graph() -> str | None:
    """Why our CUDA kernels can't be compiled and loaded here; None where they can."""
    if torch.cuda.get_device_capability() < OLDEST_CAPABILITY:
        return f"the GPU is older than compute capability {OLDEST_CAPABILITY[0]}.{OLDEST_CAPABILITY[1]}"
    try:
        DeviceCode('extern "C" __global__ void nothing() {}', {}, torch.device("cuda"))
    except (InferenceError, OSError, RuntimeError) as error:
        return str(error).split("\n")[0]
    return None


def _no_step() -> str | None:
    return None if compiler() else "no C++ compiler is installed"


def _no_library() -> str | None:
    return None if library.compiler() else "no C compiler is installed"


def _other_arithmetic() -> str | None:
    dtype = str(loading.compute_dtype("cpu")).removeprefix("torch.")
    return None if dtype == "float32" else f"this lane computes in {dtype} here, by bitsandbytes' own kernels"


REASONS: dict[str, Callable[[], str | None]] = {"cuda-graph": _no_graph, "compiled": _no_step, "layers": _no_library, "nf4": _no_library}
