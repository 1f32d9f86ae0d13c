"""What the page does: begin a comparison, stop, run again, finish, and show the lanes to whoever looks.

In: component values and the tab's session hash. Out: one value per output component, in the order that `build.py`
wires. Talks to the engine alone; measures nothing, and knows no lane's inside.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gradio as gr

from inference.engine.engine import Engine
from inference.engine.runs import Comparison
from inference.errors import InferenceError
from inference.events import MAX_NEW_TOKENS_LIMIT, Request
from inference.record.build import build_record
from inference.record.model import Record
from inference.status import LOADING_STATES, LaneStatus, ModelStatus
from ui import links
from ui.api import build_request
from ui.badge import escape
from ui.comparison import board, render
from ui.comparison.columns import FAULT, LOOK_S, LaneColumn, retry_button
from ui.comparison.models import Models
from ui.comparison.sessions import Session, Sessions
from ui.histories import Histories
from ui.visitors import Visit, Visitors

log = logging.getLogger(__name__)
IDLE_LOOK_S = 3.0  # between two looks where nothing moves but the model may be changed in another tab, ...
SHARED_LOOK_S = 10.0  # ... and where strangers come, whose open tabs cost the lanes time
DOUBLE_CLICK_S = 0.6  # the second click of a double click on Send must not be taken for a Stop
GO_ON = 4  # times as many tokens


class Page:
    """The listeners of one page over one engine; `start` is called when the first visitor comes."""

    def __init__(self, engine: Engine, start: Callable[[], None], clock: Callable[[], float] = time.perf_counter) -> None:
        self.engine, self.start, self.clock = engine, start, clock
        self.sessions, self.histories = Sessions(), Histories()
        self.models, self.visitors = Models(engine.settings), Visitors(engine.settings)
        self.lanes = [LaneColumn(self, key) for key in engine.settings.lanes]

    # ---- looking

    def load(self, request: gr.Request) -> list[Any]:
        """A tab was opened: make sure the lanes start, and show them."""
        self.start()
        return self.watch(request)

    def linked(self, request: gr.Request) -> list[Any]:
        """What the page's address carries (`?prompt=...`), in the composer's order, and the hint; nothing of it is sent by itself."""
        found = links.read(dict(request.query_params or {}))
        said = hint(found.fault, found.note) if found.fault or found.note else gr.skip()
        return [*(found.values.get(name, gr.skip()) for name in links.NAMES), said]

    def watch(self, request: gr.Request) -> list[Any]:
        """Each lane's top, small print and Try again, the model box, then the timer."""
        session = self.sessions.get(request.session_hash or "")
        model, statuses = self.engine.model(), self.statuses()
        columns = [part for lane in self.lanes for part in self._column(statuses[lane.key], session, model)]
        return [*columns, *self.models.shown(model, statuses.values()), self.timer(statuses)]

    def _column(self, status: LaneStatus, session: Session | None, model: ModelStatus) -> list[Any]:
        shows_run = session and status.key in session.comparison.runs and status.key not in session.tried_again
        if session and shows_run:
            past = session.complete and session.comparison.model_number != model.number
            return [*(self._past(session, status.key) if past else [gr.skip()] * 2), retry_button(status)]
        line = render.idle_line(status)
        return [render.top(status, line), render.foot(status, line), retry_button(status)]

    def _past(self, session: Session, key: str) -> list[str]:
        """What is said of an answer that is shown, once another model has taken the place of the one that wrote it."""
        status = next(status for status in self.engine.statuses_of(session.comparison) if status.key == key)
        line = render.past_line(status.facts.model_id if status.facts else None)
        return [render.top(status, line, session.outcomes[key]), render.foot(status, line, session.outcomes[key])]

    def timer(self, statuses: dict[str, LaneStatus]) -> gr.Timer:
        """How often a tab looks at the lanes: they may load, answer another tab, or be given another model there."""
        return gr.Timer(LOOK_S if moving(statuses) else IDLE_LOOK_S if self.models.changeable else SHARED_LOOK_S, active=True)

    def statuses(self) -> dict[str, LaneStatus]:
        """The lanes as they are now, by configured name."""
        return {status.key: status for status in self.engine.status()}

    # ---- a comparison

    def press(
        self, prompt: str, system: str, format: str, max_new_tokens: float, temperature: float, seed: float, mode: str,
        request: gr.Request, event: gr.EventData,
    ) -> list[Any]:  # fmt: skip
        """Enter in the prompt, Send (which is Stop while a comparison runs), Run again or Go on: outputs as of `begin`."""
        tab, pressed = request.session_hash or "", getattr(event.target, "elem_id", "")
        session = self.sessions.get(tab)
        if pressed == "send" and session and session.running:
            if self.clock() - session.began > DOUBLE_CLICK_S:
                session.stopped = self.clock()
                self.stop(request)
            return self._nothing()
        if pressed == "send" and session and self.clock() - session.stopped < DOUBLE_CLICK_S:
            return self._nothing()  # the second click of one on Stop
        if pressed in ("again", "go-on") and session:
            asked = session.comparison.request
            more = self._more(asked.max_new_tokens)
            return self.begin(lambda: replace(asked, max_new_tokens=more) if pressed == "go-on" else asked, mode, request)
        return self.begin(lambda: typed(build_request(prompt, system, format, max_new_tokens, temperature, seed)), mode, request)

    def begin(self, make: Callable[[], Request], mode: str, request: gr.Request) -> list[Any]:
        """Accept a comparison: the hint, the scoreboard, Send, Run again, Go on, the timer, each lane's Stop, answer and formatted answer; only the hint if it is refused.

        The timer rests: the streams show the lanes, and nobody changes the model under a run.
        """
        try:
            asked = make()
            self.start()
            self._accept(asked, mode, request)
        except InferenceError as error:
            return [hint(str(error)), *self._nothing()[1:]]
        high = render.answer_height(asked.max_new_tokens)
        stops = [gr.Button(visible=True) for _ in self.lanes]
        answers = [gr.Chatbot([], height=high) for _ in self.lanes]
        told = board.empty([lane.key for lane in self.lanes], asked.prompt)
        send, again, go_on = gr.Button("Stop", variant="stop"), gr.Button(interactive=False), gr.Button(visible=False)
        return [hint(""), told, send, again, go_on, gr.Timer(active=False), *stops, *answers, *[""] * len(self.lanes)]

    def _accept(self, asked: Request, mode: str, request: gr.Request) -> None:
        """Submit for the tab; raises InferenceError where it runs already, or this visitor may not now."""

        def submit() -> Comparison:
            visits.append(self.visitors.enter(request, asked))
            return self.engine.submit(asked, mode=mode)

        visits: list[Visit] = []
        try:
            session = self.sessions.begin(request.session_hash or "", submit, self.clock())
        except BaseException:
            for visit in visits:
                visit.end()
            raise
        visits[0].over = lambda: not session.running

    def _more(self, tokens: int) -> int:
        """How many tokens Go on asks for after an answer of at most `tokens`."""
        return min(GO_ON * tokens, self.visitors.most_new_tokens(MAX_NEW_TOKENS_LIMIT))

    def _nothing(self) -> list[Any]:
        return [gr.skip()] * (6 + 3 * len(self.lanes))

    def over(self, tab: str, session: Session | None) -> list[Any]:
        """The scoreboard once every lane has ended; Send, Run again and Go on once every run is over, seen or not."""
        told = self.told(tab) if session and session.complete else gr.skip()
        if session and session.running:
            return [told, gr.skip(), gr.skip(), gr.skip()]
        limit = self._more(session.comparison.request.max_new_tokens) if session else 0
        go_on = gr.Button(f"Go on to {limit} tokens", visible=session is not None and session.cut and limit > session.comparison.request.max_new_tokens)
        return [told, gr.Button("Send", variant="primary"), gr.Button(interactive=session is not None), go_on]

    def told(self, tab: str) -> str:
        """The scoreboard of a finished comparison."""
        try:
            record = self.latest(tab)
            return board.board(record, len(self.histories.choose(tab, []))) if record else board.empty([lane.key for lane in self.lanes])
        except Exception:
            log.exception("no scoreboard")
            return f'<p class="sentence" role="alert">{escape(FAULT)}</p>'

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


def typed(asked: Request) -> Request:
    """What was filled in, as it was; raises InferenceError for a seed that a browser has rounded."""
    if asked.seed > links.MOST_SEED:
        raise InferenceError("The seed must be 2^53 - 1 (9,007,199,254,740,991) at most here: a browser rounds larger ones. Type a smaller one.")
    return asked


def moving(statuses: dict[str, LaneStatus]) -> bool:
    """Whether a lane loads or answers somebody, so that a tab which only looks has something to see."""
    return any(status.state in (*LOADING_STATES, "busy") or status.waiting for status in statuses.values())


def hint(sentence: str, note: str = "") -> gr.HTML:
    """The lines under the prompt: a sentence for what is wrong, one for what is only to be known, or nothing."""
    said = f'<p role="alert">{escape(sentence)}</p>' if sentence else ""
    return gr.HTML(said + (f'<p role="status" class="note">{escape(note)}</p>' if note else ""))
