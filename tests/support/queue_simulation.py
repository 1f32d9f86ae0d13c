"""What a closed loop of clients before one server must see, worked out from service times alone: no engine, no lane, no code of `inference/load`."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

import numpy as np

Service = tuple[float, float]  # seconds to the first token, and to the last


def simulate(services: Sequence[Service], clients: int, rounds: int) -> dict[str, float]:
    """The figures of clients who all come at 0 in order, are served first come first, and come again the moment they are answered."""
    line = deque((client, 0.0, 1) for client in range(clients))
    free_at, first, total = 0.0, [], []
    for to_first, to_last in services:
        client, came, asked = line.popleft()
        begins = max(free_at, came)
        free_at = begins + to_last
        first.append(begins + to_first - came)
        total.append(free_at - came)
        if asked < rounds:
            line.append((client, free_at, asked + 1))
    assert not line, "not all were served"
    found = {"answers_per_min": 60 * len(total) / free_at}
    for name, values in (("first_token_s", first), ("total_s", total)):
        found |= {f"{name} p50": median(values), f"{name} p95": float(np.percentile(values, 95)), f"{name} max": max(values)}
    return found
