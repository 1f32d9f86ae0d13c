"""Figures in words, the same everywhere: seconds, rates and sizes with their unit; an unknown one is "n/a"."""

from __future__ import annotations

UNKNOWN = "n/a"


def seconds(value: float | None) -> str:
    """A time: "35 ms", "1.24 s"."""
    if value is None:
        return UNKNOWN
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def rate(value: float | None) -> str:
    """Tokens per second: "98.3 tok/s"."""
    return UNKNOWN if value is None else f"{value:.1f} tok/s"


def size(value: float | None) -> str:
    """Bytes in powers of 1024: "3.20 GiB", "512 MiB"."""
    if value is None:
        return UNKNOWN
    return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"
