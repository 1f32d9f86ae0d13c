"""The quality of one answer or of many: the reference lane's answers scored by all lanes, and where the others part from them.

In: finished runs (`Progress` by lane). Out: an `AnswerQuality` for showing, and the record's `quality`. Scores through
the engine; knows no page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from inference.engine.compare import read_all
from inference.engine.engine import Engine
from inference.errors import InferenceError
from inference.events import Request
from inference.progress import Progress
from inference.quality.figures import Figures, Span
from inference.quality.fork import Fork, find_fork
from inference.quality.scorer import Piece, Say, Scorer, choose, pieces, quality_record, shown_of, summarize
from inference.score_events import Scored
from inference.series.expected import WAYS, flips
from inference.series.prompts import Prompt

Runs = dict[str, Progress]


@dataclass(frozen=True)
class AnswerQuality:
    """One answer of the reference lane, scored by it and by one other lane; sampled answers (not `greedy`) have no fork.

    `stopped`: one of the two answers was, so that they can only be compared as far as it came.
    `record` is the same as the record's `quality`.
    """

    reference_name: str
    other_name: str
    reference: Scored
    other: Scored
    figures: Figures
    fork: Fork | None
    greedy: bool
    stopped: bool
    record: dict[str, Any]


def answer_span(run: Progress) -> Span:
    """Prompt and answer of a finished run, the answer to be scored; raises InferenceError when there is no answer."""
    if run.done is None or not run.done.token_ids or not run.prompt_ids:
        raise InferenceError("There is no full-precision answer to score. Ask again, and let it write at least one token.")
    return Span(run.prompt_ids + run.done.token_ids, len(run.prompt_ids))


def fork_of(piece_list: Sequence[Piece], lane: str, reference: Progress, other: Progress) -> Fork | None:
    """The fork between the reference's answer (scored in pieces) and the answer of `lane`.

    None if equal or not answered; where one was stopped, equal as far as it came is equal.
    """
    if other.done is None or reference.done is None:
        return None
    left = Scored.joined([piece.reference for piece in piece_list])
    right = Scored.joined([piece.others[lane] for piece in piece_list])
    fork = find_fork(left, right, other.done.token_ids, (reference.text, other.text))
    cut = fork and any(done.finish_reason == "stopped" and fork.index >= len(done.token_ids) for done in (reference.done, other.done))
    return None if cut else fork


def one_answer(engine: Engine, runs: Runs, greedy: bool) -> AnswerQuality:
    """The reference's answer among `runs` (by configured lane name), scored by it and by another lane that answered, a 4-bit one if any."""
    reference, others = choose(engine, tuple(runs))
    other = next((other for other in sorted(others, key=lambda lane: not lane.key.endswith(":nf4")) if runs[other.key].done), None)
    if other is None:
        raise InferenceError("The other lane gave no answer to hold against the full-precision one. Ask again.")
    found = list(pieces(reference, [other], [answer_span(runs[reference.key])], texts=True))
    fork = fork_of(found, other.name, runs[reference.key], runs[other.key]) if greedy else None
    return AnswerQuality(
        reference.name, other.name, Scored.joined([piece.reference for piece in found]), Scored.joined([piece.others[other.name] for piece in found]),
        summarize(reference, [other], found)[other.name], fork, greedy,
        any(done.finish_reason == "stopped" for key in (reference.key, other.key) if (done := runs[key].done)), _answer_record(reference, [other], found, fork),
    )  # fmt: skip


def record_of_answer(engine: Engine, runs: Runs, greedy: bool) -> dict[str, Any]:
    """The record's `quality` for one comparison: the reference's answer, scored by every lane that took part."""
    reference, others = choose(engine, tuple(runs))
    found = list(pieces(reference, others, [answer_span(runs[reference.key])], texts=True))
    shown = shown_of(others)
    fork = fork_of(found, shown.name, runs[reference.key], runs[shown.key]) if greedy else None
    return _answer_record(reference, others, found, fork)


def scored_or_why_not(engine: Engine, runs: Runs, greedy: bool) -> dict[str, Any]:
    """`record_of_answer`, or where that can't be, its sentence under `error`."""
    try:
        return record_of_answer(engine, runs, greedy)
    except InferenceError as error:
        return {"error": str(error)}


def _answer_record(reference: Scorer, others: Sequence[Scorer], found: Sequence[Piece], fork: Fork | None) -> dict[str, Any]:
    return {**quality_record(reference, others, found, "answer"), "first_divergence": fork.as_record() if fork else None}


def record_of_prompts(engine: Engine, prompts: Sequence[Prompt], request: Request, say: Say) -> dict[str, Any]:
    """`quality` over the answers to a prompts file, with the forks and, for expected answers, the flips; `request` is the pattern."""
    reference, others = choose(engine)
    answered = []
    for number, prompt in enumerate(prompts):
        say(f"answering {number + 1} of {len(prompts)}")
        answered.append(_all_answered(read_all(engine, engine.submit(replace(request, prompt=prompt.text)))))
    spans = [answer_span(runs[reference.key]) for runs in answered]
    found = list(pieces(reference, others, spans, say, texts=True))
    shown = shown_of(others)
    rows: list[dict[str, Any]] = []
    for span, runs in zip(spans, answered, strict=True):
        fork = fork_of([piece for piece in found if piece.span is span], shown.name, runs[reference.key], runs[shown.key])
        rows.append({"prompt": len(rows), "first_divergence": fork.index if fork else None, "margin": fork.margin if fork else None,
                     "near_tie": fork.near_tie if fork else None})  # fmt: skip
    record = quality_record(reference, others, found, "prompts")
    return {**record, "answers": _answers(rows), "expected": _expected(prompts, answered, reference.key, shown.key)}


def _all_answered(runs: Runs) -> Runs:
    for lane, run in runs.items():
        if run.done is None:
            raise InferenceError(f"{lane}: {run.error}")
    return runs


def _answers(rows: list[dict[str, Any]]) -> dict[str, Any]:
    apart = [row for row in rows if row["first_divergence"] is not None]
    return {"n": len(rows), "identical": len(rows) - len(apart), "near_ties": sum(bool(row["near_tie"]) for row in apart), "each": rows}


def _expected(prompts: Sequence[Prompt], answered: Sequence[Runs], reference: str, other: str) -> dict[str, Any] | None:
    known = [i for i, prompt in enumerate(prompts) if prompt.expected is not None]
    if not known:
        return None
    left, right = ([answered[i][lane].text for i in known] for lane in (reference, other))
    wanted = [prompts[i].expected or "" for i in known]
    result = {}
    for way in WAYS:
        held = flips(left, right, wanted, way)
        result[way] = held | {name: [known[i] for i in held[name]] for name in ("right_to_wrong", "wrong_to_right")}
    return result
