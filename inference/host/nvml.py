"""One question to the NVIDIA driver (NVML), which needs no CUDA context. In: a question. Out: its answer, None where nobody answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")


def ask(what: str, question: Callable[[Any], Answer]) -> Answer | None:
    """What `question` makes of `pynvml`; `what` there is not, for the log, where the library or the driver is missing or refuses."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return question(pynvml)
    except Exception as error:  # noqa: BLE001 - NVML is optional and raises its own family
        log.info("NVML gave %s: %s", what, error)
        return None


def card(driver: Any, gpu_uuid: str) -> Any:
    """The driver's handle of the card, or the part of one, with that UUID, with or without the driver's own prefix; for use in a question."""
    return driver.nvmlDeviceGetHandleByUUID(gpu_uuid if gpu_uuid.startswith(("GPU-", "MIG-")) else f"GPU-{gpu_uuid}")
