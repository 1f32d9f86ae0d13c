"""A 4-bit format's 16 values as a table that kernels look bytes up in. Knows no model and no device."""

from __future__ import annotations

import torch


def code_table(code: tuple[float, ...]) -> tuple[list[int], float]:
    """For each byte its two codes as a pair of bfloat16 bits, first code low, and the factor that undoes their scaling.

    The codes are first multiplied by the factor between 1 and 2 at which bfloat16 holds them best: exact scaling costs nothing.
    """
    values = torch.tensor(code, dtype=torch.float64)
    factors = torch.linspace(1, 2, 4097, dtype=torch.float64)[:-1]
    scaled = factors[:, None] * values
    errors = ((scaled.to(torch.bfloat16).double() - scaled) / factors[:, None]).pow(2).sum(1)
    factor = float(factors[errors.argmin()])
    bits = [int(b) & 0xFFFF for b in (values * factor).to(torch.bfloat16).view(torch.int16)]
    return [bits[byte >> 4] | bits[byte & 15] << 16 for byte in range(256)], 1 / factor
