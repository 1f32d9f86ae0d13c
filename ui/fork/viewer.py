"""The fork viewer's listeners: whether two answers can be compared token by token, and if not why; the scoring, how far it is, its stop.

In: the tab's session hash. Out: one value per component in the order of `box.py`: the button, Stop, why, the viewer. The scoring
runs in a thread of its own; this only looks at it. What is shown is made in `view.py`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any

import gradio as gr

from inference.errors import InferenceError
from inference.lanes import LaneName
from inference.progress import Progress
from inference.quality.answers import AnswerQuality, one_answer
from inference.quality.scorer import REFERENCES
from inference.score_events import MOST_POSITIONS
from inference.status import LOADING_STATES, LaneStatus
from ui.badge import escape
from ui.comparison.columns import FAULT
from ui.comparison.handlers import Page
from ui.comparison.sessions import Session
from ui.fork.view import note, view
from ui.fork.words import title

log = logging.getLogger(__name__)
LOOK_S = 0.5
STOPPED = "Stopped."
AFTER = "Possible after a finished comparison."
NO_PAIR = "Not possible here: it takes a 4-bit lane and a full-precision one (FP32 on the CPU, or bf16 on a GPU)."


class Scoring:
    """One scoring under way: told by the lanes which of them is at it, and ends them once `stop` is set."""

    def __init__(self, session: Session, reference: str) -> None:
        self.session, self.reference, self.stop = session, reference, threading.Event()
        self.lane, self.step, self.since, self.waits = reference, 0, time.perf_counter(), False
        self.steps = 2 * -(-session.outcomes[reference].n // MOST_POSITIONS)

    def __call__(self, lane: str, waits: bool = False) -> None:
        """A lane is at it, or `waits` for its turn; raises InferenceError where it is to stop."""
        if self.stop.is_set():
            raise InferenceError(STOPPED)
        self.waits = waits
        if not self.step or lane != self.lane:
            self.lane, self.step, self.since = lane, self.step + 1, time.perf_counter()

    def note(self, status: LaneStatus) -> str:
        """How far it is; `status` is that of its lane."""
        doing = f"reads the {title(self.reference)} answer"
        if status.state in LOADING_STATES:
            doing = f"loads its model; then it {doing}"
        elif self.waits:
            doing = f"waits for its turn; then it {doing}"
        sentence = f"Step {max(1, self.step)} of {self.steps}: the {title(self.lane)} lane {doing} …"
        return note(sentence, beside=f"{time.perf_counter() - self.since:.0f} s")


class ForkViewer:
    """The listeners of the viewer over one page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.lanes = [lane.key for lane in page.lanes]
        self._scorings: dict[str, Scoring] = {}

    def why_not(self, session: Session | None) -> str:
        """Why a comparison can't be looked at, in a sentence; empty where it can."""
        reference, others = self._pair()
        if not reference or not others:
            return NO_PAIR
        if session is None or not session.complete:
            return AFTER
        wrote = {lane for lane, run in session.outcomes.items() if _wrote(run)}
        silent = [lanes[0] for lanes in ([reference], others) if not wrote.intersection(lanes)]
        told = [f"the {title(lane)} lane {'failed' if session.outcomes[lane].phase == 'failed' else 'gave no text'}" for lane in silent]
        return f"Not possible: {' and '.join(told)}." if silent else ""

    def _pair(self) -> tuple[str, list[str]]:
        reference = next((lane for lane in REFERENCES if lane in self.lanes), "")
        return reference, [lane for lane in self.lanes if LaneName.parse(lane).four_bit]

    def ready(self, request: gr.Request) -> list[Any]:
        """The button, usable once the tab's comparison has ended, and the viewer, emptied: one has begun or ended.

        A new comparison doesn't wait for the scoring of an earlier one, which nobody sees any more.
        """
        tab = request.session_hash or ""
        session, scoring = self.page.sessions.get(tab), self._scorings.get(tab)
        if scoring and scoring.session is not session:
            scoring.stop.set()
        why = self.why_not(session)
        return [gr.Button(interactive=not why), gr.Button(visible=False), _why(why), gr.HTML("", visible=False)]

    def show(self, request: gr.Request) -> Generator[list[Any]]:
        """Score the comparison's answer and show it: first how far that is, then the result.

        Nothing changes at the end where a new comparison has begun meanwhile: it has emptied the viewer.
        """
        tab = request.session_hash or ""
        session = self.page.sessions.get(tab)
        why, under_way = self.why_not(session), self._scorings.get(tab)
        if session is None or why or (under_way and under_way.session is session):
            yield [gr.skip(), gr.skip(), _why(why) if why else gr.skip(), gr.skip()]
            return
        try:
            visit = self.page.visitors.enter(request)
        except InferenceError as error:
            yield [gr.skip(), gr.skip(), _why(str(error)), gr.skip()]
            return
        try:
            yield from self._scored(tab, session)
        finally:
            visit.end()

    def _scored(self, tab: str, session: Session) -> Generator[list[Any]]:
        scoring = self._scorings[tab] = Scoring(session, self._pair()[0])
        yield [gr.Button(interactive=False), gr.Button(visible=True), gr.skip(), self._progress(scoring)]
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(copy_context().run, self._score, tab, scoring)  # ZeroGPU counts on the visitor of that context
            try:
                while not wait([done], LOOK_S).done:
                    yield [gr.skip(), gr.skip(), gr.skip(), self._progress(scoring) if self._shown(tab, session) else gr.skip()]
                last = self._result(done, scoring)
            finally:
                scoring.stop.set()  # where nobody reads this any more
                if self._scorings.get(tab) is scoring:
                    del self._scorings[tab]
        yield [gr.Button(interactive=True), gr.Button(visible=False), gr.skip(), last] if self._shown(tab, session) else [gr.skip()] * 4

    def stop(self, request: gr.Request) -> None:
        """End the tab's scoring, within a tick of its lane."""
        if scoring := self._scorings.get(request.session_hash or ""):
            scoring.stop.set()

    def _shown(self, tab: str, session: Session) -> bool:
        return self.page.sessions.get(tab) is session

    def _progress(self, scoring: Scoring) -> gr.HTML:
        return gr.HTML(scoring.note(self.page.statuses()[scoring.lane]), visible=True)

    def _score(self, tab: str, scoring: Scoring) -> AnswerQuality:
        comparison = scoring.session.comparison
        with self.page.engine.hold_model(comparison.model_number):
            quality = one_answer(self.page.engine, scoring.session.outcomes, greedy=not comparison.request.temperature, watch=scoring)
        self.page.histories.set_quality(tab, comparison.id, quality.record)
        return quality

    def _result(self, done: Future[AnswerQuality], scoring: Scoring) -> gr.HTML:
        try:
            shown = view(done.result(), self.lanes)
        except InferenceError as error:
            shown = note(STOPPED) if scoring.stop.is_set() else note(str(error), "alert")
        except Exception:
            log.exception("no fork viewer")
            shown = note(FAULT, "alert")
        return gr.HTML(shown, visible=True)


def _wrote(run: Progress) -> bool:
    return bool(run.done and run.done.token_ids) and not run.no_text


def _why(sentence: str) -> gr.HTML:
    return gr.HTML(f'<p class="fork-why">{escape(sentence)}</p>' if sentence else "")
