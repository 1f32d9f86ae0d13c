"""How much memory there is, how much a lane holds, and what fits: RAM, the container's limit, VRAM.

All figures are bytes. The limit is the smaller of the host's RAM and the control groups' (`cgroups.py`), because a
container is killed by its group; their CPU quota, which no core count shows, bounds the threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import psutil

from inference.errors import InferenceError, Refused, WrongArguments
from inference.host import cgroups, nvml
from inference.settings import Settings
from inference.units import two_sizes

GIB = 2**30
M_MMAP_THRESHOLD = -3  # of malloc.h
SET_BACK = Path("/proc/self/clear_refs")  # "5" sets the peak that VmHWM gives back to what is held now


def check_platform() -> None:
    """Raise InferenceError, before anything starts, on a system or in a folder that lanes can't run on."""
    if sys.platform == "win32":
        raise InferenceError("This does not run on Windows itself, only on Linux and macOS. Run it in WSL (wsl --install), which is a Linux.")
    try:
        os.getcwd()
    except OSError:  # torch, for one, ends the process without it
        raise InferenceError("The folder that this was started in is gone. Go to one that is there (cd), then start it again.") from None


def ram_limit_bytes(root: Path = cgroups.MOUNT) -> int:
    """The RAM this process may use: the smaller of the host's and the container's."""
    return min([psutil.virtual_memory().total, *(group.limit for group in cgroups.memory(root))])


def ram_available_bytes(root: Path = cgroups.MOUNT) -> int:
    """What can still be taken before the host swaps or the container is killed."""
    return min([psutil.virtual_memory().available, *(group.free for group in cgroups.memory(root))])


def cpu_threads(asked: int = 0, beside_gpu: bool = False, root: Path = cgroups.MOUNT) -> int:
    """Threads for one lane: as asked, else the least of CPU quota (rounded), affinity and physical cores.

    Beside a GPU one core of three or more is left to the lane that feeds it: with all 16 of 16 taken, two lanes
    together were measured at a quarter (CPU) of their speed alone.
    """
    if asked:
        return asked
    affinity = _processors()
    physical = psutil.cpu_count(logical=False) or affinity
    quota = cgroups.cpu_quota(root)
    threads = max(1, min(affinity, physical, max(1, round(quota)) if quota else affinity))
    return threads - 1 if beside_gpu and threads > 2 else threads


def _processors() -> int:
    """Those that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # macOS has none, and a sandbox may refuse it
        return os.cpu_count() or 1


def check_threads(settings: Settings) -> None:
    """Raise WrongArguments where more threads are asked for than there are processors: they would wait for each other, and spoil every figure."""
    if settings.threads > (most := _processors()):
        raise WrongArguments(f"CPU_THREADS is {settings.threads}, and this machine has {most} processors. Set {most} at most, or 0 for as many as are best.")


def lane_threads(settings: Settings) -> int:
    """Threads for one lane of these settings; asks no CUDA, which would make a context on the card."""
    on_gpu = any(lane.startswith(("cuda:", "auto:")) for lane in settings.lanes)
    return cpu_threads(settings.threads, beside_gpu=on_gpu and nvidia_gpus() > 0)


def nvidia_gpus() -> int:
    """How many NVIDIA cards this process may see, by NVML: without a context on any of them."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return 0
    return nvml.ask("no card", lambda driver: int(driver.nvmlDeviceGetCount())) or 0


def c_compiler() -> str | None:
    """The system's C compiler: CC if set, else the first of cc, gcc and clang."""
    return shutil.which(os.environ.get("CC") or "cc") or shutil.which("gcc") or shutil.which("clang")


def cpu_name() -> str:
    """The processor's name as the system tells it."""
    return _cpu_info("model name") or platform.processor() or platform.machine()


def cpu_flags() -> str:
    """What the processor can do, as the system lists it: a build for one processor is not used on another."""
    return _cpu_info("flags") or _cpu_info("Features") or platform.processor()


@functools.cache
def _cpu_info(key: str) -> str | None:
    """What Linux says of its first processor under `key`."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key) and ":" in line), None)


def check_fits(what: str, need: int, have: int, advice: str) -> None:
    """Raise Refused with need, have and `advice` where `need` bytes are more than `have`."""
    if need > have:
        needs, free = two_sizes(need, max(0, have))
        raise Refused(f"{what} needs about {needs} and {free} is free, so it was not loaded. {advice}")


class RamWatch:
    """This process's memory against its size when the watch began (after imports)."""

    _before_kib: ClassVar[int] = 0  # the peak when the system's mark was last set back, which is the whole process's

    def __init__(self) -> None:
        self._process = psutil.Process()
        self.baseline = self._process.memory_info().rss

    def peak(self) -> int | None:
        """Peak RSS since the process began, less the baseline; counts mapped file pages, and not what was `left_out`."""
        high = _status_kib("VmHWM")
        return None if high is None else max(0, max(high, self._before_kib) * 1024 - self.baseline)

    @classmethod
    @contextlib.contextmanager
    def left_out(cls) -> Iterator[None]:
        """What is done inside and given back at its end is in no peak, where the system's mark can be set back (Linux); else it is."""
        high = _status_kib("VmHWM")
        try:
            yield
        finally:
            give_back_freed()
            with contextlib.suppress(OSError):  # then the peak stays what it is: too high, and nothing else
                SET_BACK.write_text("5")
                cls._before_kib = max(cls._before_kib, high or 0)

    def uss(self) -> int | None:
        """Memory that ending this process would give back, now."""
        try:
            return self._process.memory_full_info().uss
        except (psutil.AccessDenied, AttributeError):
            return None


@contextlib.contextmanager
def freed_at_once() -> Iterator[None]:
    """While open, memory of a MiB or more goes back to the system as it is freed (glibc): what a load takes and frees lies among what it keeps,
    where the allocator else holds on to it.
    """
    _set_own_pages_from(2**20)
    try:
        yield
    finally:
        _set_own_pages_from(2**25)  # as high as glibc itself would have raised it


def _set_own_pages_from(size_bytes: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, size_bytes)


def give_back_freed() -> None:
    """Return to the system what this process has freed and its allocator still holds (glibc; elsewhere nothing happens)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _status_kib(key: str) -> int | None:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return None
