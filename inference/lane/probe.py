"""What this machine can run: is there a CUDA device that works, is bitsandbytes there, which versions.

Each condition is asked separately, so that the reason given is the true one. Imports torch; used in lane processes.
"""

from __future__ import annotations

import importlib.metadata
import logging
import platform
import re
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from inference.errors import short_of_memory
from inference.events import Hello
from inference.host import machine
from inference.lane import vram

log = logging.getLogger(__name__)
TORCH_FOR_CUDA_12 = "torch>=2.8,<2.11"  # as in pre-requirements.txt; a later one is built for CUDA 13
OTHER_TORCH = f', or run pip install "{TORCH_FOR_CUDA_12}"; on a Space put that line into pre-requirements.txt'
TOO_OLD = re.compile(r"too old \(found version (\d+)\)")  # torch's own words
PACKAGES = ("torch", "transformers", "bitsandbytes", "accelerate", "huggingface_hub", "gradio")


@dataclass(frozen=True)
class Found:
    """The lane that a name means here, and why it can't run or is not on a GPU."""

    lane: str
    available: bool
    reason: str | None = None


def probe(name: str) -> Found:
    """Resolve `auto:nf4` and check that the lane can run."""
    device, precision = name.split(":")
    no_cuda = cuda_reason() if device != "cpu" else None
    if device == "auto":
        device = "cpu" if no_cuda else "cuda"
    lane = f"{device}:{precision}"
    if name.startswith("cuda") and no_cuda:
        return Found(lane, False, f"{no_cuda[:1].upper()}{no_cuda[1:]}. Use the lane cpu:{'nf4' if precision == 'nf4' else 'fp32'} here.")
    if precision == "nf4" and (missing := bitsandbytes_reason()):
        return Found(lane, False, missing)
    if lane == "cuda:bf16" and (emulated := bf16_reason()):
        return Found(lane, False, emulated)
    return Found(lane, True, no_cuda)


def hello_of(name: str) -> Hello:
    """What the process of lane `name` says first: which lane it is, on what, and why it can't run if it can't."""
    transformers.logging.set_verbosity_error()
    found = probe(name)
    return Hello(found.lane, found.lane.split(":")[0], versions(), environment(), found.reason, found.available)


def cuda_reason() -> str | None:
    """Why CUDA can't be used, or None where it can."""
    if torch.version.cuda is None:
        return _other_device()
    works = False
    try:
        works = torch.cuda.is_available()
        if not works:
            torch.cuda.init()  # says why
        torch.zeros(1, device="cuda")
    except RuntimeError as error:
        if works and short_of_memory(error):  # a device that works and that other programs fill: each load tells it until there is room
            log.warning("the GPU is full: %s", error)
            return None
        log.log(logging.WARNING if works else logging.INFO, "CUDA does not work: %s", error)
        return _old_driver(str(error)) or ("a CUDA device that does not work (see the log)" if works else _no_device(error))
    return None


def _old_driver(words: str) -> str | None:
    """That the card's driver serves an older CUDA than this torch needs, by torch's `words` or by NVML; None where it doesn't."""
    found, needs = TOO_OLD.search(words), str(torch.version.cuda)
    serves = int(found[1]) if found else vram.driver_cuda()
    if serves is None or (not found and serves // 1000 >= int(needs.split(".")[0])):
        return None
    instead = OTHER_TORCH if serves >= 12000 else ""
    return (
        f"the NVIDIA driver is too old for this torch (it serves CUDA {serves // 1000}.{serves % 1000 // 10}, "
        f"torch {torch.__version__} is built for CUDA {needs}: update the driver{instead})"
    )


def _no_device(error: RuntimeError) -> str:
    """What there is where torch finds no device: none, or a card that it can't use."""
    words = str(error).split("\n")[0]
    return f"no CUDA device that torch can use, though the driver sees one ({words})" if machine.nvidia_gpus() else "no CUDA device"


def _other_device() -> str:
    """What there is where torch was built without CUDA."""
    if torch.version.hip:
        return f"no CUDA device (this torch is built for AMD GPUs, ROCm {torch.version.hip}, which no lane runs on yet)"
    if torch.backends.mps.is_available():
        return "no CUDA device (Apple's GPU, MPS, is one that no lane runs on yet)"
    return "no CUDA device (this torch is a CPU build)"


def bf16_reason() -> str | None:
    """Why bfloat16 is not this GPU's own arithmetic; None where it is (`torch.cuda.is_bf16_supported` counts emulation too)."""
    major, minor = torch.cuda.get_device_capability()
    if (major, minor) >= (8, 0):
        return None
    return (
        f"This GPU (compute capability {major}.{minor}) only emulates bfloat16, so its figures would say nothing of that precision. Use the lane cuda:nf4 here."
    )


def bitsandbytes_reason() -> str | None:
    """Why bitsandbytes can't be used, or None where it can."""
    try:
        import bitsandbytes  # noqa: F401
    except Exception as error:  # noqa: BLE001 - its import runs native code and fails in many ways
        log.warning("bitsandbytes does not import: %s", error)
        return f"bitsandbytes can't be imported ({type(error).__name__}), so there is no 4-bit lane. Run pip install -r requirements.txt again."
    return None


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a figure depends on; a missing one is left out."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def environment() -> dict[str, Any]:
    """The hardware: processor, RAM limit, and the card with its memory and driver (null where there is none)."""
    found: dict[str, Any] = {"cpu": machine.cpu_name(), "ram_limit_bytes": machine.ram_limit_bytes(), "gpu": None, "gpu_memory_bytes": None, "driver": None}
    if cuda_reason() is None:
        properties = torch.cuda.get_device_properties(0)
        found |= {"gpu": properties.name, "gpu_memory_bytes": properties.total_memory, "driver": vram.driver()}
    return found
