"""What of a fine-tune survives quantization: how far 4 bits moved it, against how far it had moved from its base.

In: what the lanes have scored, and the base's name. Out: the record's `survival`, or the sentence why there is none. The base is loaded
last, in one lane of the reference's kind behind an engine of its own; whether it fits beside the others, that lane says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from inference.engine.engine import Engine
from inference.errors import InferenceError
from inference.quality.figures import Span, standard_error
from inference.quality.scorer import NotScored, Piece, Say, Scorer, pieces
from inference.record.scores import NoSurvival, Survival
from inference.score_events import ScoreRequest

NAME_IT = "Name the model that it was tuned from (--base)."
OTHER_TOKENIZER = f"Its tokenizer gives other ids than the fine-tune's for the same text, so the two can't be scored on the same ids. {NAME_IT}"


def base_of(lanes: Sequence[Scorer]) -> str | None:
    """The model that the lanes' one was tuned from, where one of them knows."""
    return next((lane.facts.base for lane in lanes if lane.facts.base), None)


def survival(base: str, reference: Scorer, shown: Scorer, scored: tuple[Sequence[Span], Sequence[Piece]], text: str, say: Say) -> Survival | NoSurvival:
    """kld(fine-tune, `shown`) / kld(fine-tune, `base`) over the spans `scored`, their pieces beside them; `text` is what both tokenizers must agree on."""
    spans, found = scored
    settings = replace(reference.engine.settings, model_id=base, cpu_model_id="", lanes=(reference.name,))
    try:
        with Engine(settings) as engine:
            lane = Scorer(engine, reference.name)
            say(f"loading the base, {base}")
            _check_tokenizer(reference, lane, text)
            from_base = list(pieces(reference, [lane], spans, lambda words: say(f"base: {words}")))
        return ratio(base, _kld(found, shown.name), _kld(from_base, lane.name))
    except NotScored as error:
        return NoSurvival(base, error.why)
    except InferenceError as error:
        return NoSurvival(base, str(error))


def ratio(base: str, moved: np.ndarray, tuned: np.ndarray) -> Survival:
    """From the divergences at each position (n,), in nats; the error by the delta method, which takes the positions as pairs.

    Raises InferenceError where the base is nowhere apart from the fine-tune.
    """
    apart = float(tuned.mean())
    if apart <= 0:
        raise InferenceError(f"It gives the fine-tune's own numbers at all {len(tuned)} positions, so there is nothing that could survive. {NAME_IT}")
    kept = float(moved.mean()) / apart
    error = standard_error(moved - kept * tuned)
    return Survival(base, kept, None if error is None else error / apart, apart, standard_error(tuned))


def _check_tokenizer(reference: Scorer, base: Scorer, text: str) -> None:
    request = ScoreRequest(text=text)
    if base.score(request).ids != reference.score(request).ids:
        raise InferenceError(OTHER_TOKENIZER)


def _kld(found: Sequence[Piece], lane: str) -> np.ndarray:
    return np.array([value for piece in found for value in piece.others[lane].kld], np.float64)
