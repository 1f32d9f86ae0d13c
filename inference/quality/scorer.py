"""Several lanes score the same ids: piece by piece, the reference first, then each other lane against its file.

In: an engine's lanes and `Span`s of ids. Out: pairs of `Scored`, and figures over them. The file of log-probabilities lies
in a temporary folder, holds one piece at a time and is gone at the end. Knows lane processes only through the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from inference.engine.dispatch import OTHER_IDS
from inference.engine.engine import Engine
from inference.errors import InferenceError, WrongArguments
from inference.events import Done, Failed, LaneFacts
from inference.host import temporary
from inference.lanes import REFERENCES as REFERENCE_LANES
from inference.lanes import LaneName
from inference.quality.figures import WINDOW, Positions, Span, check_took_hold, figures, windows
from inference.record.scores import Figures, Quality
from inference.score_events import Scored, ScoreRequest
from inference.status import LaneStatus

NO_LOGITS = "A server gives no log-probabilities of our ids, so its quality can't be measured. Name a lane that runs here, such as --lanes cpu:nf4,cpu:fp32."
SCORES = "gpu-vs-cpu-scores-"
REFERENCES = tuple(map(str, REFERENCE_LANES))
Say = Callable[[str], None]
Watch = Callable[[str, bool], None]  # told a lane's configured name, and whether it waits, at each event and tick; what it raises ends the scoring


class NotScored(InferenceError):
    """A lane could not score: which one, by the name its process gives, and why."""

    def __init__(self, lane: str, why: str) -> None:
        super().__init__(f"{lane}: {why}")
        self.lane, self.why = lane, why


@dataclass(eq=False)
class Scorer:
    """One lane of an engine, as something that scores; what it is, it knows from then on, whether or not its process lives."""

    engine: Engine
    lane: str
    watch: Watch = lambda *_: None
    _facts: LaneFacts | None = field(default=None, init=False)

    def score(self, request: ScoreRequest) -> Scored:
        """Score when the lane's turn has come; raises NotScored with the lane's sentence."""
        comparison = self.engine.submit(request, (self.lane,), "in-turn")
        run = comparison.runs[self.key]
        with closing(self.engine.events(run)) as events:
            for event in events:
                self.watch(self.key, run.t_dispatch is None)
                match event:
                    case Scored():
                        self._facts = self.status.facts or self._facts
                        return event
                    case Failed():
                        raise NotScored(self.name, event.message)
                    case Done():
                        break
        raise NotScored(self.name, "The scoring was stopped.")

    @property
    def status(self) -> LaneStatus:
        """The lane as the engine sees it."""
        return next(status for status in self.engine.status() if self.lane in (status.key, status.name))

    @property
    def key(self) -> str:
        """The lane's name as configured."""
        return self.status.key

    @property
    def name(self) -> str:
        """The lane's name as its process says (never auto:nf4 once that is up)."""
        return self.status.name

    @property
    def facts(self) -> LaneFacts:
        """What the lane is that has scored; raises NotScored where it has not."""
        if self._facts is None:
            raise NotScored(self.name, "It has scored nothing, so what it loaded is not known. Ask again.")
        return self._facts


@dataclass(frozen=True)
class Piece:
    """One scored piece of a span: the reference's figures and those of each other lane, by its name."""

    span: Span
    reference: Scored
    others: dict[str, Scored]


def choose(engine: Engine, lanes: Sequence[str] = (), watch: Watch = lambda *_: None) -> tuple[Scorer, list[Scorer]]:
    """The reference lane (FP32 on the CPU, else bf16 on a GPU) and the others; raises WrongArguments without such a pair."""
    scorers = [Scorer(engine, lane, watch) for lane in lanes or engine.settings.lanes]
    reference = next((s for name in REFERENCES for s in scorers if s.name == name), None)
    others = [s for s in scorers if s is not reference and not LaneName.parse(s.lane).elsewhere]
    if reference and not others and len(scorers) > 1:
        raise WrongArguments(NO_LOGITS)
    if reference is None or not others:
        raise WrongArguments("Quality needs a full-precision lane and another one. Name them, such as --lanes cpu:nf4,cpu:fp32.")
    return reference, others


def pieces(reference: Scorer, others: Sequence[Scorer], spans: Sequence[Span], say: Say = lambda _: None, texts: bool = False) -> Iterator[Piece]:
    """Each piece of each span, scored by all lanes; with `texts`, with the text of every token."""
    parts = [(span, low, high) for span in spans for low, high in span.parts()]
    with temporary.folder(SCORES) as folder:
        file = str(folder / "reference.f32")
        for number, (span, low, high) in enumerate(parts):
            say(f"scoring {number + 1} of {len(parts)}: {reference.name}")
            ids = span.ids[:high]
            first = reference.score(ScoreRequest(ids, low, high, write=file, pieces=texts))
            found = {}
            for other in others:
                say(f"scoring {number + 1} of {len(parts)}: {other.name}")
                found[other.name] = other.score(ScoreRequest(ids, low, high, read=file, pieces=texts))
            yield Piece(span, first, found)


def text_spans(reference: Scorer, others: Sequence[Scorer], text: str) -> list[Span]:
    """A text's windows; raises InferenceError when the lanes' tokenizers turn it into different ids."""
    request = ScoreRequest(text=text)
    found = reference.score(request)
    if any(other.score(request).ids != found.ids for other in others):
        raise InferenceError(OTHER_IDS)
    return windows(found.ids, found.start_mark, min(WINDOW, reference.facts.context_length))


def summarize(reference: Scorer, others: Sequence[Scorer], found: Sequence[Piece]) -> dict[str, Figures]:
    """The figures of each other lane over all pieces; raises InferenceError where 4-bit did not take hold."""
    result = {}
    for other in others:
        positions = Positions.of((piece.reference, piece.others[other.name]) for piece in found)
        check_took_hold(positions, other.name, bool(other.facts.quantization), bool(reference.facts.quantization))
        result[other.name] = figures(positions)
    return result


def shown_of(others: Sequence[Scorer]) -> Scorer:
    """The lane whose figures stand first: the first 4-bit one, else the first."""
    return next((other for other in others if other.facts.quantization), others[0])


def quality_of(reference: Scorer, others: Sequence[Scorer], found: Sequence[Piece], source: str) -> Quality:
    """The record's `quality`: the figures of the first 4-bit lane (else the first other), and under `lanes` of each."""
    by_lane = summarize(reference, others, found)
    shown = shown_of(others)
    return Quality(
        figures=by_lane[shown.name], reference=reference.name, other=shown.name, source=source,
        rows=max(piece.reference.rows for piece in found), vocabulary=found[0].reference.vocabulary, lanes=by_lane,
    )  # fmt: skip
