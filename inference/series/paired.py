"""Two lanes' right and wrong answers to the same prompts: is it chance, how much is kept, and how much so many prompts can show.

Numbers in, numbers out; shares from 0 to 1. The formulas are Connor's (1987, Biometrics 43:207-211) for McNemar's test, two-sided
at 5 % with a power of 80 %, and Bonett and Price's interval for the ratio of two paired shares (2006, Statistics in Medicine 25:3039-3050).
"""

from __future__ import annotations

import math
from statistics import NormalDist

from inference.record.scores import Recovery, Resolution

Z_TEST, Z_POWER = NormalDist().inv_cdf(0.975), NormalDist().inv_cdf(0.8)
FEWEST_FLIPS = 6  # all one way, the exact test is below 5 % from 6 flips on: 2 / 2^6


def mcnemar_exact(lost: int, won: int) -> float:
    """Two-sided exact p of McNemar's test: how often chance alone would split `lost + won` flips so unevenly (1 without flips)."""
    flips = lost + won
    tail = sum(math.comb(flips, k) for k in range(min(lost, won) + 1))
    return min(1.0, 2 * tail / 2**flips)


def recovery(both: int, lost: int, won: int) -> Recovery | None:
    """Right answers of the other lane for one of the reference, with Bonett and Price's hybrid Wilson interval; None where the reference has none.

    `both` are right in both lanes, `lost` in the reference alone, `won` in the other alone.
    """
    reference, other = both + lost, both + won
    if not reference:
        return None
    n = both + lost + won
    spread = math.sqrt((lost + won + 2) / ((reference + 1) * (other + 1)))
    each = sum(math.sqrt((1 - (x + 1) / (n + 2)) / (x + 1)) for x in (reference, other))
    z = Z_TEST * spread / each  # narrower than of two independent shares
    (low, high), (low_reference, high_reference) = _wilson(other, n, z), _wilson(reference, n, z)
    return Recovery(other / reference, low / high_reference, high / low_reference)


def _wilson(x: int, n: int, z: float) -> tuple[float, float]:
    half = z * math.sqrt(z * z + 4 * x * (1 - x / n))
    return (2 * x + z * z - half) / (2 * (n + z * z)), (2 * x + z * z + half) / (2 * (n + z * z))


def resolution(prompts: int, lost: int, won: int) -> Resolution:
    """What so many prompts can show, estimated from the share of flips among them."""
    flipped = (lost + won) / prompts
    return Resolution(detectable(prompts, flipped), *(needed(points / 100, flipped) for points in (1, 2, 5)))


def connor(change: float, flipped: float) -> float:
    """Prompts for a `change` in the share of right answers where a share `flipped` of all goes either way: no less than the change itself."""
    flipped = max(change, flipped)
    return (Z_TEST * math.sqrt(flipped) + Z_POWER * math.sqrt(max(0.0, flipped - change**2))) ** 2 / change**2


def needed(change: float, flipped: float) -> int:
    """Prompts that show a `change`, and no fewer than give the exact test its flips."""
    return math.ceil(max(connor(change, flipped), FEWEST_FLIPS / change))


def detectable(prompts: int, flipped: float) -> float | None:
    """The smallest change that so many prompts show; None where they are too few for any."""
    if prompts < FEWEST_FLIPS:
        return None
    low, high = 0.0, 1.0  # connor falls with the change, to 3.8 at 1
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if connor(middle, flipped) > prompts else (low, middle)
    return max(high, FEWEST_FLIPS / prompts)
