"""The quality of one answer: the reference lane's, scored by the other lanes too, and where theirs part from it.

In: finished runs (`Progress` by lane). Out: an `AnswerQuality` for showing, and the record's `quality`. Scores through the
engine; knows no page. A file of prompts is scored in `prompts.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inference.engine.compare import Runs
from inference.engine.engine import Engine
from inference.errors import InferenceError
from inference.lanes import LaneName
from inference.progress import Progress
from inference.quality.figures import Span
from inference.quality.fork import find_fork
from inference.quality.scorer import Piece, Scorer, Watch, choose, pieces, quality_of, shown_of, summarize
from inference.record.missing import what_happened
from inference.record.scores import Figures, Fork, NoQuality, Quality
from inference.score_events import Scored


@dataclass(frozen=True)
class AnswerQuality:
    """One answer of the reference lane, scored by it and by one other lane; sampled answers (not `greedy`) have no fork.

    `stopped`: one of the two answers was, so that they can only be compared as far as it came.
    Keys are the lanes' names as configured. `end_ids` end an answer, `hidden_ids` are no text of one.
    `record` is the same as the record's `quality`.
    """

    reference_name: str
    other_name: str
    reference_key: str
    other_key: str
    reference: Scored
    other: Scored
    figures: Figures
    fork: Fork | None
    greedy: bool
    stopped: bool
    end_ids: frozenset[int]
    hidden_ids: frozenset[int]
    record: Quality


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


def one_answer(engine: Engine, runs: Runs, greedy: bool, watch: Watch = lambda *_: None) -> AnswerQuality:
    """The reference's answer among `runs` (by configured lane name), scored by it and by another lane that answered, a 4-bit one if any.

    `watch` is told which lane is at it or waits, ten times a second; what it raises ends the scoring.
    """
    reference, others = choose(engine, tuple(runs), watch)
    four_bit_first = sorted(others, key=lambda lane: not LaneName.parse(lane.key).four_bit)
    other = next((other for other in four_bit_first if (done := runs[other.key].done) and done.token_ids), None)
    if other is None:
        raise InferenceError("The other lane gave no answer to hold against the full-precision one. Ask again.")
    found = list(pieces(reference, [other], [answer_span(runs[reference.key])], texts=True))
    fork = fork_of(found, other.name, runs[reference.key], runs[other.key]) if greedy else None
    both = [done for lane in (reference, other) if (done := runs[lane.key].done)]
    return AnswerQuality(
        reference_name=reference.name, other_name=other.name, reference_key=reference.key, other_key=other.key,
        reference=Scored.joined([piece.reference for piece in found]), other=Scored.joined([piece.others[other.name] for piece in found]),
        figures=summarize(reference, [other], found)[other.name], fork=fork, greedy=greedy,
        stopped=any(done.finish_reason == "stopped" for done in both),
        end_ids=frozenset(reference.facts.end_ids), hidden_ids=frozenset(reference.facts.hidden_ids), record=_quality(reference, [other], found, fork),
    )  # fmt: skip


def quality_of_answer(engine: Engine, runs: Runs, greedy: bool) -> Quality:
    """The record's `quality` for one comparison: the reference's answer, scored by every lane that took part."""
    reference, others = choose(engine, tuple(runs))
    found = list(pieces(reference, others, [answer_span(runs[reference.key])], texts=True))
    shown = shown_of(others)
    fork = fork_of(found, shown.name, runs[reference.key], runs[shown.key]) if greedy else None
    return _quality(reference, others, found, fork)


def scored_or_why_not(engine: Engine, runs: Runs, greedy: bool) -> Quality | NoQuality:
    """`quality_of_answer`, or where that can't be, its sentence."""
    try:
        return quality_of_answer(engine, runs, greedy)
    except InferenceError as error:
        return NoQuality(what_happened(str(error)) or "")


def _quality(reference: Scorer, others: Sequence[Scorer], found: Sequence[Piece], fork: Fork | None) -> Quality:
    return replace(quality_of(reference, others, found, "answer"), first_divergence=fork)
