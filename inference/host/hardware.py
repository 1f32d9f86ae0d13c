"""The hardware that a Space can have: what it is, what it costs, and whether a model's lanes fit on it.

In: `hardware.json`, the one dated file; what each lane of a model needs, in bytes. Out: frozen dataclasses and words. Standard library only:
prices that the Hub gives (`space/prices.py`) are put in their place by `priced`. Knows no model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from inference.errors import WrongArguments
from inference.lanes import CPU_FP32, CPU_NF4, CUDA_BF16, CUDA_NF4
from inference.units import UNKNOWN, digits, size, two_sizes

FILE = Path(__file__).with_suffix(".json")
GB = 10**9  # cards and containers are sold by it; a card gives a little less than its name says, and never more
BFLOAT16 = (8, 0)  # the oldest compute capability that has it; an older card's 4-bit lane computes in float32
CUDA_NF4_WIDE = "cuda:nf4 in float32"  # the 4-bit lane on an older card, whose 16-bit parts are kept in FP32
BESIDE_RAM = 3 * 2**29  # the page's process and the libraries of two lanes' processes, before any weights
BESIDE_VRAM = 2**29  # a CUDA context with its libraries


@dataclass(frozen=True)
class LaneNeed:
    """What a model takes on a lane: at rest, at most while loading, and what is kept free beside that for the work."""

    weights_bytes: int
    peak_bytes: int
    margin_bytes: int

    @property
    def bytes(self) -> int:
        """What must be free before it is loaded."""
        return self.peak_bytes + self.margin_bytes


@dataclass(frozen=True)
class Fit:
    """A lane on a hardware; `fits` is None where its memory is not known. `why_not` says why it can't run there, whatever the memory."""

    lane: str
    need_bytes: int
    have_bytes: int | None
    why_not: str = ""

    @property
    def fits(self) -> bool | None:
        return False if self.why_not else None if self.have_bytes is None else self.need_bytes <= self.have_bytes

    def __str__(self) -> str:
        if self.why_not:
            return f"{self.lane} can't run: {self.why_not}"
        verdict = {True: "fits", False: "does not fit", None: "may fit, its memory is not known here"}[self.fits]
        needs, have = (size(self.need_bytes), UNKNOWN) if self.have_bytes is None else two_sizes(self.need_bytes, self.have_bytes)
        return f"{self.lane} {verdict}: needs {needs} of {have}"


@dataclass(frozen=True)
class Hardware:
    """One kind; `flavor` is the Hub's name for it, `vram_bytes` one card's: a lane uses one. None where it was not read."""

    name: str
    flavor: str
    title: str
    cores: int | None = None
    ram_bytes: int | None = None
    gpu: str = ""
    gpus: int = 0
    vram_bytes: int | None = None
    capability: tuple[int, int] | None = None
    dollars_per_hour: float | None = None
    note: str = ""

    @property
    def zero(self) -> bool:
        """Whether it is ZeroGPU, which lends its card by the call."""
        return self.name == "zero"

    def price(self) -> str:
        """What it costs, without the date."""
        if self.dollars_per_hour is None:
            return "a quota, no price" if self.zero else "price not known here"
        if not self.dollars_per_hour:
            return "free"
        cents = self.dollars_per_hour == round(self.dollars_per_hour, 2)
        return f"${self.dollars_per_hour:.2f} an hour" if cents else f"${digits(self.dollars_per_hour)} an hour"

    def __str__(self) -> str:
        parts = [f"{self.cores} cores" if self.cores else "", f"{self.ram_bytes // GB} GB of RAM" if self.ram_bytes else ""]
        if self.gpu and self.vram_bytes:
            cards = f"{self.gpus} x " if self.gpus > 1 else ""
            parts.append(f"{cards}{self.gpu} with {self.vram_bytes // GB} GB")
        return f"{self.title} ({self.name}): {', '.join(filter(None, parts)) or 'no figures'}"

    def fit(self, needs: Mapping[str, LaneNeed]) -> tuple[Fit, ...]:
        """The 4-bit lane, the bf16 one and the FP32 one on it, as far as `needs` has them; two that share a memory: the 4-bit one is there first."""
        ram = None if self.ram_bytes is None else self.ram_bytes - BESIDE_RAM
        if self.gpu:
            four_bit = needs.get(CUDA_NF4_WIDE if self.capability and self.capability < BFLOAT16 else str(CUDA_NF4))
            room, left = None if self.vram_bytes is None else self.vram_bytes - BESIDE_VRAM, ram
        else:
            four_bit, room = needs.get(str(CPU_NF4)), ram
            left = ram - four_bit.weights_bytes if ram is not None and four_bit else ram
        full = needs.get(str(CPU_FP32))
        found = [Fit(str(CUDA_NF4 if self.gpu else CPU_NF4), four_bit.bytes, room)] if four_bit else []
        found += self._half(needs, room, four_bit) if self.gpu else []
        return (*found, Fit(str(CPU_FP32), full.bytes, left)) if full else tuple(found)

    def _half(self, needs: Mapping[str, LaneNeed], room: int | None, beside: LaneNeed | None) -> list[Fit]:
        """The bf16 lane beside the 4-bit one, each a process with a context of its own."""
        half = needs.get(str(CUDA_BF16))
        if half is None:
            return []
        left = room - beside.weights_bytes - BESIDE_VRAM if room is not None and beside else room
        emulated = self.capability is not None and self.capability < BFLOAT16
        return [Fit(str(CUDA_BF16), half.bytes, left, f"this {self.gpu} only emulates bfloat16" if emulated else "")]


@dataclass(frozen=True)
class Catalog:
    """All of it, with where the prices were read and when."""

    read: str
    source: str
    hardware: tuple[Hardware, ...]

    def named(self, name: str) -> Hardware:
        """The hardware that --hardware or the Hub calls `name`; raises WrongArguments, with the names that there are."""
        for one in self.hardware:
            if name in (one.name, one.flavor):
                return one
        raise WrongArguments(f"There is no hardware {name!r}. There is: {', '.join(one.name for one in self.hardware)}.")

    def priced(self, dollars: Mapping[str, float], read: str, source: str) -> Catalog:
        """The same with the prices that `dollars` has by flavor, and no other; ZeroGPU keeps its quota."""
        changed = [one if one.zero else replace(one, dollars_per_hour=dollars.get(one.flavor)) for one in self.hardware]
        return Catalog(read, source, tuple(changed))

    def fitting(self, needs: Mapping[str, LaneNeed]) -> list[Hardware]:
        """That on which every lane of `needs` fits, the cheapest first, that without a price last."""
        fits = [one for one in self.hardware if all(fit.fits for fit in one.fit(needs))]
        return sorted(fits, key=lambda one: (one.dollars_per_hour is None, one.dollars_per_hour or 0.0))

    def dated(self) -> str:
        """Where the prices are from: "prices read 2026-08 at ..."."""
        return f"prices read {self.read}, {self.source}"


@cache
def from_file() -> Catalog:
    """What `hardware.json` holds."""
    held = json.loads(FILE.read_text("utf-8"))
    return Catalog(held["read"], held["source"], tuple(_hardware(one) for one in held["hardware"]))


def _hardware(held: dict[str, object]) -> Hardware:
    values = dict(held)
    for key in ("ram", "vram"):
        if amount := values.pop(f"{key}_gb", None):
            values[f"{key}_bytes"] = int(str(amount)) * GB
    if capability := held.get("capability"):
        values["capability"] = tuple(capability)  # type: ignore[arg-type]
    return Hardware(**{"flavor": held["name"], **values})  # type: ignore[arg-type]
