"""What the driver says this process holds on its GPU (NVML), the CUDA context included; None where it says nothing.

torch's own figures leave the context out (some 0.5 GB). Only a lane process on a CUDA device calls this.
"""

from __future__ import annotations

import logging
import os

log = logging.getLogger(__name__)


def held_by_this_process(gpu_uuid: str) -> int | None:
    """Bytes of this process on the GPU with that UUID; None without NVML, or where it can't tell this process apart.

    Inside a container the driver may list other process ids than ours: a sole process on the card is then this one.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu_uuid if gpu_uuid.startswith(("GPU-", "MIG-")) else f"GPU-{gpu_uuid}")
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except Exception as error:  # noqa: BLE001 - NVML is optional and raises its own family
        log.info("NVML gave no memory of this process: %s", error)
        return None
    return choose({process.pid: process.usedGpuMemory for process in processes}, os.getpid())


def choose(used_bytes: dict[int, int | None], pid: int) -> int | None:
    """This process's entry of the driver's list (process id -> bytes), or the only one; None where that is not clear."""
    if pid in used_bytes:
        return used_bytes[pid]
    return next(iter(used_bytes.values())) if len(used_bytes) == 1 else None
