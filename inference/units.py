"""Figures in words, the same everywhere: spans, rates and sizes with their unit; an unknown one is "n/a"."""

from __future__ import annotations

import math
from collections.abc import Callable

UNKNOWN = "n/a"
HOUR_S = 3600.0  # from there on seconds are not told
TIED = 1.05 + 1e-9  # times: two numbers no further apart are equal


def seconds(value: float | None) -> str:
    """A span, of at least two digits: "0.42 ms", "7.0 ms", "35 ms", "1.24 s", "12.4 s", "2 min 05 s", "1 h 02 min"."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if value < 0.0995:
        return f"{value * 1000:#.2g}".rstrip(".") + " ms" if value else "0 ms"
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 99.95:
        return f"{value:.2f} s" if value < 9.995 else f"{value:.1f} s"
    if value < HOUR_S - 0.5:
        return "{} min {:02d} s".format(*divmod(round(value), 60))
    return "{} h {:02d} min".format(*divmod(round(value / 60), 60))


def seconds_to(value: float, to: Callable[[float], int]) -> str:
    """The same rounded up (`math.ceil`) or down (`math.floor`) in its last digit: what is told of a limit must hold of it."""
    if value < 0.0995:
        step = 10.0 ** (math.floor(math.log10(value)) - 1) if value > 0 else 1.0
    else:
        step = 0.001 if value < 0.9995 else 0.01 if value < 9.995 else 0.1 if value < 99.95 else 1.0 if value < HOUR_S else 60.0
    turned = to(value / step + (1e-6 if to is math.floor else -1e-6))
    return seconds(turned * step)


def exact_seconds(value: float) -> str:
    """The same of what was asked, never rounded to another: "1.60 s", "16.45 s"."""
    return seconds(value) if seconds_to(value, math.floor) == seconds_to(value, math.ceil) else f"{digits(value)} s"


def digits(value: float, most: int = 10) -> str:
    """A number to so many digits, never by an exponent: "20,000", "0.2769", "1.5"."""
    behind = max(0, most - 1 - math.floor(math.log10(abs(value)))) if value and math.isfinite(value) else 0
    told = f"{value:,.{behind}f}"
    return told.rstrip("0").rstrip(".") if "." in told else told


def rate(value: float | None) -> str:
    """Tokens per second: "0.0043 tok/s", "0.43 tok/s", "9.87 tok/s", "98.3 tok/s", "214 tok/s"."""
    return UNKNOWN if value is None or math.isnan(value) else _three(value, "tok/s")


def size(value: float | None) -> str:
    """Memory in binary units: "600 B", "512 MiB", "3.15 GiB"."""
    if value is None or math.isnan(value):
        return UNKNOWN
    for unit in ("B", "KiB", "MiB"):
        if value < 1023.5:
            return f"{value:.0f} {unit}" if value >= 99.5 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB" if value < 99.995 else f"{value:.0f} GiB"


def two_sizes(left: float, right: float) -> tuple[str, str]:
    """Two sizes of which one is said to be too much or too little: to the byte where they would read alike and are not."""
    told = size(left), size(right)
    return told if left == right or len(set(told)) == 2 else (f"{left:,.0f} B", f"{right:,.0f} B")


def joules(value: float | None) -> str:
    """Energy: "0.42 J", "41.2 J", "1.24 kJ"."""
    if value is None or math.isnan(value):
        return UNKNOWN
    return _three(value, "J") if value < 999.5 else _three(value / 1000, "kJ")


def watts(value: float | None) -> str:
    """Power: "7.10 W", "76.3 W", "412 W"."""
    return UNKNOWN if value is None or math.isnan(value) else _three(value, "W")


def _three(value: float, unit: str) -> str:
    if 0 < value < 0.00995:
        return f"{value:.2g} {unit}"
    return f"{value:.0f} {unit}" if value >= 99.95 else f"{value:.1f} {unit}" if value >= 9.995 else f"{value:.2f} {unit}"


def count(n: int, what: str = "token") -> str:
    """A number of things: "1 token", "7 tokens"."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def many(value: float, what: str) -> str:
    """The same of what need not be whole: "1 answer", "0.4 answers", "20,000 answers"."""
    return f"{digits(value)} {what}{'' if value == 1 else 's'}"


def times(ratio: float, more: str, less: str, same: str = "about the same") -> str:
    """A ratio in words, with its number: "2.0 times faster", "about the same, 0.98 times"."""
    if same_size(ratio):
        return f"{same}, {ratio:.2f} times"
    return f"{ratio:.1f} times {more}" if ratio > 1 else f"{1 / ratio:.1f} times {less}"


def share(part: float) -> str:
    """A part of a whole: "68 %"; 0 % and 100 % where it is none and all, and not what is only near to them."""
    return f"{100 * part:.0f} %" if part in (0, 1) else f"{min(99, max(1, round(100 * part)))} %"


def percent(part: float) -> str:
    """The same to two places: "98.20 %", "99.997 %", "0.004 %"."""
    left = min(part, 1 - part)
    near = 1e-9 < left < 5e-5
    return f"{100 * part:.{math.ceil(-math.log10(100 * left)) if near else 2}f} %"


def same_size(ratio: float) -> bool:
    """Whether two numbers of this ratio are told as a tie, whichever of the two stands on top."""
    return ratio > 0 and max(ratio, 1 / ratio) < TIED
