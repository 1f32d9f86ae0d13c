"""What the page does: begin a comparison, stream each lane's run, finish, stop, try again, and show the lanes.

In: component values and the tab's session hash. Out: one value per output component, in the order that `build.py`
wires. Talks to the engine alone; measures nothing, and knows no lane's inside.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

import gradio as gr

from inference.engine.engine import Engine
from inference.engine.runs import Run
from inference.errors import InferenceError
from inference.events import Failed
from inference.progress import Progress
from inference.record.build import build_record
from inference.record.model import Record
from inference.record.verdict import verdict_text
from inference.status import LOADING_STATES, LaneStatus, ModelStatus
from ui import render
from ui.api import build_request
from ui.badge import escape
from ui.history import Histories
from ui.models import Models
from ui.sessions import Session, Sessions

log = logging.getLogger(__name__)
FRAME_S = 1 / 6  # a frame costs the page and the browser some 7 ms of a core, which a lane on the CPU has to do without
WAIT_FRAME_S = 1 / 2  # only a clock moves while a run waits, ...
PLACES_A_FRAME = 4  # ... and the more slowly the more are before it, so that a long line costs little
LOOK_S = 1.0  # between two looks at the lanes while one loads, ...
IDLE_LOOK_S = 3.0  # ... and where nothing moves but the model may be changed in another tab
FAULT = "Something went wrong in the page itself; its log has the trace. Ask again."


class Page:
    """The listeners of one page over one engine; `start` is called when the first visitor comes."""

    def __init__(self, engine: Engine, start: Callable[[], None], clock: Callable[[], float] = time.perf_counter) -> None:
        self.engine, self.start, self.clock = engine, start, clock
        self.sessions, self.histories = Sessions(), Histories()
        self.models = Models(engine.settings)
        self.lanes = [LaneColumn(self, key) for key in engine.settings.lanes]

    def load(self, request: gr.Request) -> list[Any]:
        """A tab was opened: make sure the lanes start, and show them."""
        self.start()
        return self.watch(request)

    def watch(self, request: gr.Request) -> list[Any]:
        """Each lane's head, status line, badges and Try again, the model box, then the timer.

        That stops once nothing loads, where nobody can change the model, and looks more seldom where somebody can.
        """
        session = self.sessions.get(request.session_hash or "")
        model, statuses = self.engine.model(), self.statuses()
        columns = [part for lane in self.lanes for part in self._column(statuses[lane.key], session, model)]
        return [*columns, *self.models.shown(model, statuses.values()), self.timer(statuses)]

    def _column(self, status: LaneStatus, session: Session | None, model: ModelStatus) -> list[Any]:
        if session and status.key in session.comparison.runs:
            shown = [self._past_line(session, status.key, model), gr.skip()]
        else:
            shown = [render.idle_line(status), render.badges(status)]
        return [render.head(status), *shown, retry_button(status)]

    def timer(self, statuses: dict[str, LaneStatus]) -> gr.Timer:
        """How often a tab looks at the lanes."""
        busy = loading(statuses)
        return gr.Timer(LOOK_S if busy else IDLE_LOOK_S, active=busy or self.models.changeable)

    def _past_line(self, session: Session, key: str, model: ModelStatus) -> Any:
        """What is said of an answer that is shown, once another model has taken the place of the one that wrote it."""
        if session.comparison.model_number == model.number or not session.complete:
            return gr.skip()
        wrote = session.comparison.runs[key].lane.facts
        return render.past_line(wrote.model_id if wrote else None)

    def begin(self, prompt: str, system: str, format: str, max_new_tokens: float, temperature: float, seed: float, mode: str, request: gr.Request) -> list[Any]:
        """Accept a comparison: the hint, the verdict, Send, Stop both, the timer, each lane's Stop; only the hint if it is refused.

        The timer rests: the streams show the lanes, and nobody changes the model under a run.
        """
        try:
            asked = build_request(prompt, system, format, max_new_tokens, temperature, seed)
            self.start()
            self.sessions.begin(request.session_hash or "", lambda: self.engine.submit(asked, mode=mode))
        except InferenceError as error:
            return [hint(str(error)), *[gr.skip()] * (4 + len(self.lanes))]
        stops = [gr.Button(interactive=True) for _ in self.lanes]
        return [hint(""), "", gr.Button(interactive=False), gr.Button(interactive=True), gr.Timer(active=False), *stops]

    def verdict(self, tab: str) -> str:
        """The sentence under two finished answers."""
        try:
            record = self.latest(tab)
            return verdict_text(record) if record else ""
        except Exception:
            log.exception("no verdict")
            return FAULT

    def latest(self, tab: str) -> Record | None:
        """The record of the tab's latest comparison, kept in its history; None before every lane has ended."""
        session = self.sessions.get(tab)
        if session is None or not session.complete:
            return None
        comparison = session.comparison
        outcomes = {key: [progress] for key, progress in session.outcomes.items()}
        return self.histories.add(tab, comparison.id, lambda: build_record(self.engine.statuses_of(comparison), comparison.request, comparison.mode, outcomes))

    def stop(self, request: gr.Request) -> None:
        """End the tab's runs at their next token; never waits."""
        for lane in self.lanes:
            lane.stop(request)

    def leave(self, request: gr.Request) -> None:
        """The tab was closed: nobody reads its runs any more."""
        self.stop(request)
        self.sessions.forget(request.session_hash or "")
        self.histories.forget(request.session_hash or "")

    def statuses(self) -> dict[str, LaneStatus]:
        """The lanes as they are now, by configured name."""
        return {status.key: status for status in self.engine.status()}


class LaneColumn:
    """The listeners of one lane's column."""

    def __init__(self, page: Page, key: str) -> None:
        self.page, self.key = page, key

    def stream(self, request: gr.Request) -> Generator[list[Any]]:
        """The run as frames of the column (head, status line, answer, badges), the first at once, the last always."""
        tab = request.session_hash or ""
        session = self.page.sessions.get(tab)
        run = session.claim(self.key) if session else None
        if session is None or run is None:
            yield [gr.skip()] * 4
            return
        progress = Progress(self.page.clock())
        try:
            with closing(self._follow(run, progress)) as steps:
                for progress in steps:
                    yield self._frame(session, progress)  # whole: a gr.skip() costs more than a text that has not changed
        finally:
            self.page.sessions.ended(tab, session, self.key, progress)

    def _follow(self, run: Run, progress: Progress) -> Generator[Progress]:
        """The run's progress, at most every FRAME_S, each new phase at once, the last always; a fault becomes the last."""
        yield progress
        try:
            with closing(self.page.engine.events(run)) as events:
                frame_at = self.page.clock()
                for event in events:
                    now = self.page.clock()
                    before, progress = progress, progress.apply(event, now)
                    pause_s = FRAME_S if progress.phase in ("prefill", "decode") else WAIT_FRAME_S * (1 + progress.position / PLACES_A_FRAME)
                    if (now - frame_at >= pause_s or progress.phase != before.phase) and not progress.ended:
                        frame_at = now
                        yield progress
        except InferenceError as error:
            progress = progress.apply(Failed(run.id, str(error)), self.page.clock())
        except Exception:
            log.exception("streaming a run failed")
            progress = progress.apply(Failed(run.id, FAULT), self.page.clock())
        yield progress

    def _frame(self, session: Session, progress: Progress) -> list[Any]:
        status = next(status for status in self.page.engine.statuses_of(session.comparison) if status.key == self.key)
        return [
            render.head(status),
            render.run_line(progress, status, self.page.clock()),
            render.answer(session.comparison.request.prompt, progress),
            render.badges(status, progress),
        ]

    def finish(self, request: gr.Request) -> list[Any]:
        """The verdict, Send and Stop both (once every run is over), this lane's Stop, head and Try again, the timer."""
        session = self.page.sessions.get(request.session_hash or "")
        statuses = self.page.statuses()
        status = statuses[self.key]
        verdict = self.page.verdict(request.session_hash or "") if session and session.complete else gr.skip()
        over = session is None or not session.running
        send, stop_all = (gr.Button(interactive=True), gr.Button(interactive=False)) if over else (gr.skip(), gr.skip())
        ended = session is None or self.key in session.outcomes
        stop = gr.Button(interactive=False) if ended else gr.skip()
        timer = self.page.timer(statuses) if over or loading(statuses) else gr.skip()
        return [verdict, send, stop_all, stop, render.head(status), retry_button(status), timer]

    def stop(self, request: gr.Request) -> None:
        """End the tab's run on this lane at its next token; never waits."""
        session = self.page.sessions.get(request.session_hash or "")
        if session and self.key in session.comparison.runs:
            self.page.engine.stop(session.comparison.runs[self.key].id)

    def retry(self) -> list[Any]:
        """Give a failed lane another chance and watch it: its head, status line, Try again, the timer."""
        self.page.engine.retry(self.key)
        status = self.page.statuses()[self.key]
        return [render.head(status), render.idle_line(status), retry_button(status), gr.Timer(LOOK_S, active=True)]


def loading(statuses: dict[str, LaneStatus]) -> bool:
    """Whether a lane is on its way up, so that the page has something to watch."""
    return any(status.state in LOADING_STATES for status in statuses.values())


def retry_button(status: LaneStatus) -> gr.Button:
    """Try again, where a lane failed and might not the next time."""
    return gr.Button(visible=status.available and status.state in ("failed", "refused"))


def hint(sentence: str) -> gr.HTML:
    """The line under the prompt: a sentence, or nothing at all."""
    return gr.HTML(f'<p role="alert">{escape(sentence)}</p>' if sentence else "", visible=bool(sentence))
