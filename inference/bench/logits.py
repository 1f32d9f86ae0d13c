"""How far our way's log-probabilities are from plain's on one fixed text, held against how far plain's own two ways are apart.

A way computes all positions in one forward (as a prompt is read), or one after the other (as an answer is written). In: two
loaded sides of the bench. Out: the largest differences, in nats. Log-softmax over the whole vocabulary, in FP32.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from inference.bench.side import Side
from inference.errors import InferenceError
from inference.events import Request
from inference.host import temporary
from inference.quality.scorer import SCORES, Scorer
from inference.score_events import ScoreRequest

WORDS = (
    "The kitchen opens at noon and the last order is taken at ten. Today there is chicken biryani, mutton korma and a lentil soup, "
    "all of them with rice or bread; 3 cold drinks cost 4.50 and a mango lassi 2.75. Please say how many guests are coming, whether "
    "someone can't eat nuts, and where the food should be brought. If a dish is sold out, the waiter names another that is close to it. "
)


def logits(plain: Side, ours: Side, positions: int) -> dict[str, Any]:
    """The largest difference in a log-probability over `positions` positions: `plain_ways`, `steps` and `rows` (ours against plain's); raises InferenceError."""
    ids = plain.prompt_ids(_raw(WORDS * (1 + positions // 50)))[:positions]
    if len(ids) < positions:
        raise InferenceError(f"The fixed text gives {len(ids)} tokens; ask for no more positions.")
    start = plain.prompt_ids(_raw(WORDS[:12]))
    with temporary.folder(SCORES) as folder:
        found = {name: _both_ways(side, start, ids, folder / name) for name, side in (("plain", plain), ("ours", ours))}
        (plain_rows, plain_steps), (our_rows, our_steps) = found["plain"], found["ours"]
        return {
            "positions": len(ids),
            "plain_ways": _apart(plain_rows, plain_steps),
            "steps": _apart(our_steps, plain_steps),
            "rows": _apart(our_rows, plain_rows),
        }


def _raw(text: str) -> Request:
    return Request(text, format="raw")


def _both_ways(side: Side, start: tuple[int, ...], ids: tuple[int, ...], file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities (positions, vocabulary) of `ids` after `start`: in one forward, and step by step."""
    steps = side.logits(_raw(WORDS[:12]), ids)
    steps -= np.log(np.exp(steps - steps.max(-1, keepdims=True)).sum(-1, keepdims=True)) + steps.max(-1, keepdims=True)
    Scorer(side.engine, side.lane).score(ScoreRequest(start + ids, len(start), len(start) + len(ids), write=f"{file}.f32"))
    return np.memmap(f"{file}.f32", np.float32, "r", shape=steps.shape), steps


def _apart(left: np.ndarray, right: np.ndarray) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(left, right, strict=True))
