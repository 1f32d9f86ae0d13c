"""What crosses the boundary when a lane scores given token ids (teacher forcing) instead of answering.

Standard library only. Log-probabilities don't travel here: the reference lane writes them to a file that the other
lane maps into its memory. Per position there are only a few numbers, in natural logarithms (nats).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from inference.errors import InferenceError

TOP = 5
MOST_POSITIONS = 512  # in one message, so that the file stays at half a GiB with a vocabulary of 262,144


def nameless(token: int) -> str:
    """What stands for the text of an id that the tokenizer has no entry for."""
    return f"[{token}]"


@dataclass(frozen=True)
class ScoreRequest:
    """Score `ids[first:last]`, each from all ids before it; or, with `text`, only turn it into ids.

    With `write`, log-probabilities go to that file as float32 (positions, vocabulary); with `read`, the divergence from
    those in the file is taken. `pieces` asks for the text of each id.
    """

    ids: tuple[int, ...] = ()
    first: int = 1
    last: int = 0
    write: str = ""
    read: str = ""
    text: str = ""
    pieces: bool = False
    verb: ClassVar[str] = "score"

    def check(self) -> None:
        """Raise InferenceError when no lane could score this."""
        if self.text.strip():
            return
        if not self.ids:
            raise InferenceError("There is nothing to score. Give a text that is not empty.")
        if not 1 <= self.first < self.last <= len(self.ids) or self.last - self.first > MOST_POSITIONS:
            raise InferenceError(f"Positions {self.first} to {self.last} of {len(self.ids)} tokens can't be scored; at most {MOST_POSITIONS} at once.")


@dataclass(frozen=True)
class Scored:
    """A score is done; every tuple has one entry a position (`top_*`: `TOP` a position, the likeliest first).

    `nll` is the negative log-probability of the text's own id, `kld` the divergence from the reference (empty without
    one), `rows` the ids that went through the model at once. For a text: its `ids` and the tokenizer's start mark.
    """

    run_id: str
    ids: tuple[int, ...]
    nll: tuple[float, ...] = ()
    best: tuple[int, ...] = ()
    top_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()
    kld: tuple[float, ...] = ()
    vocabulary: int = 0
    rows: int = 0
    start_mark: int | None = None
    pieces: tuple[str, ...] = ()
    top_pieces: tuple[str, ...] = ()

    def top(self, position: int) -> list[tuple[int, float, str]]:
        """The likeliest tokens at one position as (id, log-probability, text), the likeliest first."""
        low, high = position * TOP, (position + 1) * TOP
        texts = self.top_pieces[low:high] or ("",) * TOP
        return list(zip(self.top_ids[low:high], self.top_logprobs[low:high], texts, strict=False))

    @staticmethod
    def joined(parts: Sequence[Scored]) -> Scored:
        """Pieces of one span, in order, as one."""
        names = ("ids", "nll", "best", "top_ids", "top_logprobs", "kld", "pieces", "top_pieces")
        columns: dict[str, Any] = {name: tuple(itertools.chain.from_iterable(getattr(part, name) for part in parts)) for name in names}
        return replace(parts[0], **columns)
