"""Energy of a lane's runs: the counter of what it computes on, read just before a run's start and just after its end.

In: a device. Out: an `Energy` a run, or the reason that there is none. A card's counter is the driver's (NVML), a processor's is RAPL; both
count all work on it. The idle power is of rests between runs as they come: nobody waits for one. Never a data sheet's watts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from inference.energy import Energy
from inference.host import nvml
from inference.timing import Clock

POWERCAP = Path("/sys/class/powercap")
NO_CARD_COUNTER = "the driver gives no energy counter of this card"
NO_COUNTER = "there is no energy counter of the processor here"
NOT_READABLE = "the processor's energy counter can't be read here (permission)"
REST_S = 1.0  # a shorter rest gives no idle power
LOOK_S = 0.1
WRAP_S = 30.0  # at 2 kW a counter of 65 kJ, the smallest in use, comes round in 33 s


class Counter(Protocol):
    """A counter of joules that only grows; it moves every `step_s` or sooner."""

    source: str
    step_s: float

    def joules(self) -> float | None:
        """Where it stands; None where it can't be read."""
        ...


class Card:
    """A card's own counter, by the card's UUID."""

    source = "nvml"
    step_s = 0.1  # NVML promises none; cards move it every 20 to 100 ms

    def __init__(self, gpu_uuid: str) -> None:
        self._handle = nvml.ask("no card", lambda driver: nvml.card(driver, gpu_uuid))

    def joules(self) -> float | None:
        """Since the driver was loaded."""
        if self._handle is None:
            return None
        millijoules = nvml.ask("no energy", lambda driver: int(driver.nvmlDeviceGetTotalEnergyConsumption(self._handle)))
        return None if millijoules is None else millijoules / 1000


class Processor:
    """The packages' counters together, since this was made; each comes round to zero at its own range."""

    source = "rapl"
    step_s = 0.01  # they move every millisecond or so; ten to be safe

    def __init__(self, packages: Collection[Path]) -> None:
        self._ranges = {package / "energy_uj": _number(package / "max_energy_range_uj") for package in packages}
        self._last = {file: _number(file) for file in self._ranges}
        self._total, self._lock = 0, threading.Lock()

    def joules(self) -> float | None:
        """The sum over the packages."""
        with self._lock:
            for file, turn in self._ranges.items():
                try:
                    now = _number(file)
                except (OSError, ValueError):
                    return None
                passed = now - self._last[file]
                self._total += passed if passed >= 0 else passed + turn
                self._last[file] = now
            return self._total / 1e6

    def keep_up(self) -> None:
        """See to it that no turn of a counter is missed in a long run: a reading, some microseconds, now and then."""
        threading.Thread(target=self._follow, name="energy", daemon=True).start()

    def _follow(self) -> None:
        while self.joules() is not None:
            time.sleep(WRAP_S)


class Meter:
    """Reads a counter around runs and in the rests between them; without a counter it says nothing."""

    def __init__(self, counter: Counter | None = None, device: str = "cpu", clock: Clock = time.perf_counter) -> None:
        self._counter, self._device, self._clock = counter, device, clock
        self._at_work: Collection[str] = ()
        self._run: tuple[float, float] | None = None  # when, and where the counter stood
        self._rest: tuple[float, float] | None = None
        self._quiet_since: float | None = None
        self._ended: tuple[float, float] | None = None
        self._idle_watts: float | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """A run is about to start."""
        if self._counter is None:
            return
        with self._lock:
            self._end_rest()
            self._run = self._read()

    def end(self) -> Energy | None:
        """What the run that has just ended came to; None where a reading failed."""
        if self._counter is None:
            return None
        with self._lock:
            began, now = self._run, self._read()
            self._run, before, self._ended, self._quiet_since = None, self._ended, now, None
            if began is None or now is None or now[1] < began[1]:
                return None
            pause = (began[0] - before[0], began[1] - before[1]) if before else (None, None)
            return Energy(now[1] - began[1], now[0] - began[0], self._idle_watts, self._counter.source, self._counter.step_s, *pause)

    def beside(self, devices: Collection[str]) -> None:
        """The devices that lanes are at work on from now on; "" is one that nobody knows."""
        with self._lock:
            self._at_work = devices
            if self._busy():
                self._end_rest()

    def look(self) -> float | None:
        """Called while nothing is asked of the lane: reads where a rest begins, in how many seconds to look again; None where there is nothing to do."""
        if self._counter is None or self._rest is not None:
            return None
        with self._lock:
            now = self._clock()
            if self._busy() or self._quiet_since is None:
                self._quiet_since = None if self._busy() else now
                return LOOK_S
            # the work before is in the counter only after its next step
            if (left := self._quiet_since + self._counter.step_s - now) > 0:
                return left
            self._rest = self._read()
            return None

    def _busy(self) -> bool:
        """Whether work of some lane is counted: a processor drives the others' devices too."""
        return bool(self._at_work) if self._device == "cpu" else bool({"", self._device} & set(self._at_work))

    def _end_rest(self) -> None:
        began, self._rest, self._quiet_since = self._rest, None, None
        if began is None:
            return
        now = self._read()
        if now and now[0] - began[0] >= REST_S and now[1] >= began[1]:
            self._idle_watts = (now[1] - began[1]) / (now[0] - began[0])

    def _read(self) -> tuple[float, float] | None:
        joules = self._counter.joules() if self._counter else None
        return None if joules is None else (self._clock(), joules)


def meter_of(device: str, gpu_uuid: str = "", powercap: Path | None = None) -> tuple[Meter, str]:
    """The meter of a lane on this device, and the reason that it says nothing, or "". A GPU is named by its UUID."""
    if device == "cuda":
        card = Card(gpu_uuid)
        return (Meter(), NO_CARD_COUNTER) if card.joules() is None else (Meter(card, device), "")
    try:
        packages = _packages(powercap or POWERCAP)
        processor = Processor(packages)
    except PermissionError:
        return Meter(), NOT_READABLE
    except (OSError, ValueError):
        return Meter(), NO_COUNTER
    if not packages:
        return Meter(), NO_COUNTER
    processor.keep_up()
    return Meter(processor), ""


def _packages(powercap: Path) -> list[Path]:
    """The packages' folders; what is in a package (cores, memory) and what is around it (psys) would be counted twice."""
    zones = sorted(powercap.glob("intel-rapl:*"))  # AMD's are called so too
    return [zone for zone in zones if _name(zone).startswith("package")]


def _name(zone: Path) -> str:
    try:
        return (zone / "name").read_text()
    except FileNotFoundError:  # a container may hide what the link leads to
        return ""


def _number(file: Path) -> int:
    return int(file.read_text())
