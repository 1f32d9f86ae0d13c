"""The quality over a file of prompts: all answers scored, the forks counted, and, where answers are expected, the flips.

In: rows, and one request to take the settings from. Out: the record's `quality`. A prompt that a lane can't answer, or whose
answer can't be scored, is told and left out; the figures are of the others. Answers by the runner that `compare --prompts` uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from inference.engine.compare import Runs
from inference.engine.engine import Engine
from inference.errors import InferenceError
from inference.events import Request
from inference.quality.answers import answer_span, fork_of
from inference.quality.scorer import NotScored, Piece, Say, Scorer, choose, pieces, quality_of, shown_of
from inference.quality.survival import base_of, survival
from inference.record.missing import what_happened
from inference.record.scores import Answers, Flips, PromptFork, Quality, Unanswered
from inference.series.expected import WAYS, flips
from inference.series.prompts import Prompt
from inference.series.series import Series

Keep = Callable[[Quality], None]  # is given the figures before the survival, whose base takes a load of its own
LeaveOut = Callable[[int, str, str], None]  # a prompt's index, the lane, and why


@dataclass(frozen=True)
class Answered:
    """A prompt that all lanes answered: its index in the file's rows, the runs, and once it is scored, the pieces."""

    index: int
    runs: Runs
    pieces: tuple[Piece, ...] = ()


def quality_of_prompts(engine: Engine, prompts: Sequence[Prompt], request: Request, say: Say, base: str = "", keep: Keep = lambda _: None) -> Quality:
    """`quality` over the answers to a file, with the survival where a `base` is named or known.

    Raises InferenceError where not one prompt could be answered and scored.
    """
    reference, others = choose(engine)
    left_out: list[Unanswered] = []

    def leave_out(index: int, lane: str, error: str) -> None:
        left_out.append(Unanswered(index, prompts[index].line, lane, what_happened(error) or error))
        say(left_out[-1].words())

    answered = _answer([reference, *others], prompts, request, say, leave_out)
    scored = _score(reference, others, answered, say, leave_out)
    if not scored:
        raise InferenceError(f"Not one prompt could be answered and scored. {left_out[0].words() if left_out else ''}")
    shown = shown_of(others)
    found = [piece for each in scored for piece in each.pieces]
    quality = quality_of(reference, others, found, "prompts")
    forks = [_fork(each, shown, reference) for each in scored]
    expected = _expected(prompts, scored, reference.key, shown.key)
    quality = replace(quality, answers=_answers(forks), expected=expected, unanswered=tuple(left_out))
    if base := base or base_of([reference, *others]) or "":
        keep(quality)
        spans, text = [each.pieces[0].span for each in scored], "\n".join(prompts[each.index].text for each in scored)
        quality = replace(quality, survival=survival(base, reference, shown, (spans, found), text, say))
    return quality


def _answer(lanes: Sequence[Scorer], prompts: Sequence[Prompt], request: Request, say: Say, leave_out: LeaveOut) -> list[Answered]:
    """Those that every lane answered; ends early where a lane can answer no more at all.

    An answer that nobody can read counts like any other: to leave it out would hide what 4 bits did.
    """
    answered: list[Answered] = []
    latest: list[Runs] = []

    def keep(_: Engine, runs: Runs, __: bool) -> None:
        latest[:] = [runs]

    series = Series(prompts)
    say("warming up")
    for index, record in enumerate(series.run(lanes[0].engine, request, quality=keep)):
        say(f"answered {index + 1} of {len(prompts)}")
        runs = latest[0]
        failed = next((lane for lane in lanes if runs[lane.key].done is None), None)
        if failed is None:
            answered.append(Answered(index, runs))
            continue
        leave_out(index, failed.name, runs[failed.key].error or "It gave no answer.")
        if not record.lanes[failed.name].available:  # every other prompt would fail as well, after the other lanes' time
            say(f"{failed.name} can't answer any more, so the file ends here.")
            series.stop.set()
    return answered


def _score(reference: Scorer, others: Sequence[Scorer], answered: Sequence[Answered], say: Say, leave_out: LeaveOut) -> list[Answered]:
    scored = []
    for number, each in enumerate(answered, 1):
        say(f"answer {number} of {len(answered)}")
        try:
            span = answer_span(each.runs[reference.key])
            scored.append(replace(each, pieces=tuple(pieces(reference, others, [span], say, texts=True))))
        except NotScored as error:
            leave_out(each.index, error.lane, error.why)
        except InferenceError as error:  # the reference's answer is nothing to score
            leave_out(each.index, reference.name, str(error))
    return scored


def _fork(each: Answered, shown: Scorer, reference: Scorer) -> PromptFork:
    fork = fork_of(each.pieces, shown.name, each.runs[reference.key], each.runs[shown.key])
    if fork is None:
        return PromptFork(each.index, None, None, None)
    return PromptFork(each.index, fork.index, fork.margin, fork.near_tie)


def _answers(forks: Sequence[PromptFork]) -> Answers:
    apart = [fork for fork in forks if fork.first_divergence is not None]
    return Answers(n=len(forks), identical=len(forks) - len(apart), near_ties=sum(bool(fork.near_tie) for fork in apart), each=tuple(forks))


def _expected(prompts: Sequence[Prompt], scored: Sequence[Answered], reference: str, other: str) -> dict[str, Flips] | None:
    """The flips by each way of being right, over the prompts with an expected answer; indices are those of the file's rows."""
    known = [(each, wanted) for each in scored if (wanted := prompts[each.index].expected) is not None]
    if not known:
        return None
    left, right = ([each.runs[lane].text for each, _ in known] for lane in (reference, other))
    result = {}
    for way in WAYS:
        held = flips(left, right, [wanted for _, wanted in known], way)
        lost, won = (tuple(known[i][0].index for i in found) for found in (held.right_to_wrong, held.wrong_to_right))
        result[way] = replace(held, right_to_wrong=lost, wrong_to_right=won)
    return result
