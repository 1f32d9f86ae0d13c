"""One lane's card: its components, and the listeners that stream a run into them, stop it, and try a failed lane again.

In: the tab's comparison. Out: one value per component: top, answer and small print while it streams; at the end the formatted answer and the buttons.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gradio as gr

from inference.engine.runs import Run
from inference.errors import InferenceError
from inference.events import Failed
from inference.lanes import LaneName, precision_words
from inference.progress import Progress
from inference.status import LaneStatus
from ui import badge
from ui.comparison import render
from ui.comparison.pretty import formatted
from ui.comparison.sessions import Session

if TYPE_CHECKING:
    from ui.comparison.handlers import Page

log = logging.getLogger(__name__)
FAULT = "Something went wrong in the page itself; its log has the trace. Ask again."
LOOK_S = 1.0  # between two looks at the lanes while one loads or answers
FRAME_S = 1 / 6  # a frame costs the page and the browser some 7 ms of a core, which a lane on the CPU has to do without
WAIT_FRAME_S = 1 / 2  # only a clock moves while a run waits, ...
PLACES_A_FRAME = 4  # ... and the more slowly the more are before it, so that a long line costs little


@dataclass(frozen=True)
class Column:
    """One lane's components."""

    top: gr.HTML
    answer: gr.Chatbot
    pretty: gr.HTML
    foot: gr.HTML
    stop: gr.Button
    retry: gr.Button


def card(status: LaneStatus, among: list[str], max_new_tokens: int) -> Column:
    """The card of one lane `among` all that are shown: name, state and figures, the answer, the small print."""
    name = status.title or precision_words(LaneName.parse(status.key).precision)
    line = render.idle_line(status)
    with gr.Column(min_width=280, elem_classes=["lane", badge.colour(status.key, among)], elem_id=f"lane-{status.key.replace(':', '-')}"):
        top = gr.HTML(render.top(status, line), elem_classes="top")
        gr.HTML(f"<span>{badge.escape(render.title(status))}</span>", elem_classes="answer-name")  # for a phone, where the answers stand apart from the tops
        answer = gr.Chatbot(
            label=f"Answer, {name}", show_label=False, height=render.answer_height(max_new_tokens), buttons=[], render_markdown=False, latex_delimiters=[],
            layout="panel", autoscroll=False, placeholder="The answer appears here.", elem_classes="answer", feedback_options=None, allow_file_downloads=False,
        )  # fmt: skip
        pretty = gr.HTML("", elem_classes="pretty")
        with gr.Row(elem_classes="lane-buttons"):
            gr.HTML('<button type="button" class="quiet" data-copy-answer>Copy answer</button>', elem_classes="lane-copy")
            retry = gr.Button(f"Try {name} again", size="sm", visible=False, elem_classes="retry")
            stop = gr.Button(f"Stop {name}", size="sm", visible=False, elem_classes="stop")
        foot = gr.HTML(render.foot(status, line), elem_classes="foot")
    return Column(top, answer, pretty, foot, stop, retry)


class LaneColumn:
    """The listeners of one lane's card."""

    def __init__(self, page: Page, key: str) -> None:
        self.page, self.key = page, key

    def stream(self, request: gr.Request) -> Generator[list[Any]]:
        """The run as frames of the card (top, answer, small print), the first at once, the last always."""
        tab = request.session_hash or ""
        session = self.page.sessions.get(tab)
        run = session.claim(self.key) if session else None
        if session is None or run is None:
            yield [gr.skip()] * 3
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
        line = render.run_line(progress, status, self.page.clock(), session.comparison.request.max_new_tokens)
        return [render.top(status, line, progress), render.answer(progress), render.foot(status, line, progress)]

    def finish(self, request: gr.Request) -> list[Any]:
        """The scoreboard, Send, Run again and Go on, then this lane's formatted answer, Stop and Try again, and the timer."""
        tab = request.session_hash or ""
        session = self.page.sessions.get(tab)
        statuses = self.page.statuses()
        progress = session.outcomes.get(self.key) if session else None
        ended = session is None or progress is not None
        stop = gr.Button(visible=False) if ended else gr.skip()
        timer = self.page.timer(statuses) if session is None or not session.running else gr.skip()
        pretty = formatted(progress.text) if progress else gr.skip()
        return [*self.page.over(tab, session), pretty, stop, retry_button(statuses[self.key]) if ended else gr.skip(), timer]

    def stop(self, request: gr.Request) -> None:
        """End the tab's run on this lane at its next token; never waits."""
        session = self.page.sessions.get(request.session_hash or "")
        if session and self.key in session.comparison.runs:
            self.page.engine.stop(session.comparison.runs[self.key].id)

    def retry(self, request: gr.Request) -> list[Any]:
        """Give a failed lane another chance and watch it: its top, small print and Try again, the timer."""
        if session := self.page.sessions.get(request.session_hash or ""):
            session.tried_again.add(self.key)
        self.page.engine.retry(self.key)
        status = self.page.statuses()[self.key]
        line = render.idle_line(status)
        return [render.top(status, line), render.foot(status, line), retry_button(status), gr.Timer(LOOK_S, active=True)]


def retry_button(status: LaneStatus) -> gr.Button:
    """Try again, where a lane failed and might not the next time."""
    return gr.Button(visible=status.available and status.state in ("failed", "refused"))
