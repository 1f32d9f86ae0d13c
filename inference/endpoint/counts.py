"""A server's answer -> its figures: from the tokens that were counted and the times at which pieces came, never from the number of pieces.

In: arrivals and a count. Out: `Timings` of docs/figures.md, with what a client can't know left out.
"""

from __future__ import annotations

import logging
from pathlib import Path

from inference.errors import InferenceError
from inference.settings import Settings
from inference.sources import at_hand
from inference.timing import Timings

log = logging.getLogger(__name__)
BY_SERVER, BY_TOKENIZER = "the server", "the compared model's tokenizer"


def timings(arrivals: list[float], tokens: int | None) -> Timings:
    """Figures of one answer; `arrivals` are seconds since the request was sent, at which pieces with text came (the end mark's, if any, last).

    A piece may hold several tokens. Of n tokens in m pieces the first piece is taken to hold n / m, so n - n / m came after it; with a piece a
    token that is the n - 1 of docs/figures.md. One piece gives no rate. There is no prefill rate: the network is in the first token's time.
    """
    if not arrivals:
        return Timings()
    first, last = arrivals[0], arrivals[-1]
    pieces = min(len(arrivals), tokens or 0)
    tpot_s = (last - first) / (tokens - tokens / pieces) if tokens and pieces > 1 and last > first else None
    return Timings(ttft_s=first, total_s=last, tpot_s=tpot_s, decode_tps=1 / tpot_s if tpot_s else None)


def count(text: str, settings: Settings) -> int | None:
    """Tokens in `text` by the tokenizer of the settings' model, where that lies on this disk; None where it doesn't."""
    try:
        found = at_hand.at_hand(settings.model_id, settings)
        file = (found.folder if found else Path()) / "tokenizer.json"
        if found is None or not file.is_file():
            return None
        from tokenizers import Tokenizer

        return len(Tokenizer.from_file(str(file)).encode(text, add_special_tokens=False).ids)
    except InferenceError:
        return None
    except Exception as error:  # noqa: BLE001 - tokenizers raises plain Exception for a file that it can't read
        log.info("the tokenizer can't count this answer: %s", type(error).__name__)
        return None
