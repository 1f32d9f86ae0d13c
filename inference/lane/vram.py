"""What this process holds on its GPU: by torch, and by the driver (NVML), which counts the CUDA context (some 0.5 GB) too.

Where the driver says nothing its figure is None; a lane on the CPU holds nothing and asks nobody.
"""

from __future__ import annotations

import os

import torch

from inference.events import Vram
from inference.host import machine, nvml


def held_by_this_process(gpu_uuid: str) -> int | None:
    """Bytes of this process on the GPU with that UUID; None without NVML, or where it can't tell this process apart.

    Inside a container the driver may list other process ids than ours: a sole process on the card is then this one.
    """
    processes = nvml.ask("no memory of this process", lambda driver: driver.nvmlDeviceGetComputeRunningProcesses(nvml.card(driver, gpu_uuid)))
    return None if processes is None else choose({process.pid: process.usedGpuMemory for process in processes}, os.getpid())


def driver() -> str | None:
    """The driver's version; None where it says nothing."""
    return nvml.ask("no driver version", lambda driver: str(driver.nvmlSystemGetDriverVersion()))


def driver_cuda() -> int | None:
    """The newest CUDA that the driver of a card serves, 12090 for 12.9; None where there is no card or nobody says."""
    return nvml.ask("no CUDA version", lambda driver: int(driver.nvmlSystemGetCudaDriverVersion_v2())) if machine.nvidia_gpus() else None


def choose(used_bytes: dict[int, int | None], pid: int) -> int | None:
    """This process's entry of the driver's list (process id -> bytes), or the only one; None where that is not clear."""
    if pid in used_bytes:
        return used_bytes[pid]
    return next(iter(used_bytes.values())) if len(used_bytes) == 1 else None


def synchronize(device: str) -> None:
    """Wait until the device has done what it was given; before and after each span that is measured."""
    if device == "cuda":
        torch.cuda.synchronize()


def begin(device: str) -> None:
    """Before a load: the peaks are to be the load's own."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def begin_run(device: str) -> None:
    """Before a run: the peaks are to be the run's own."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def held(device: str, positions: int | None = None) -> Vram | None:
    """torch's peaks since the last `begin`, what the driver says, and the `positions` of a cache held; None for a lane on the CPU."""
    if device != "cuda":
        return None
    by_driver = held_by_this_process(gpu_uuid(device))
    return Vram(torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated(), by_driver, positions)


def gpu_uuid(device: str) -> str:
    """The UUID of the lane's card; "" for a lane on the CPU."""
    return str(torch.cuda.get_device_properties(0).uuid) if device == "cuda" else ""


def give_back() -> None:
    """After a run: what its long prompt took and nobody holds any more goes back to the card."""
    if torch.cuda.memory_reserved() > 1.5 * torch.cuda.memory_allocated() + machine.GIB:
        torch.cuda.empty_cache()
