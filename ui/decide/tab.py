"""The tab "Decide": what is wanted, the prices, and the decision by what this browser tab has measured.

In: the form's values and the tab's records. Out: the decision, or a sentence beside the field that can't be meant; what was typed stays, and so does an earlier
decision. Measures nothing; what simulates the line before a lane takes a moment, in a thread, under the visitors' limits.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from inference.decide.decision import decide_with_curves
from inference.decide.model import Asked, Decision
from inference.errors import InferenceError
from inference.record.model import Record
from inference.report.decision import CostLine, cost_lines
from inference.report.html import html_report
from ui.comparison.columns import FAULT
from ui.comparison.handlers import Page
from ui.decide import view
from ui.decide.fields import Refused
from ui.decide.form import Form
from ui.decide.measured import FIRST, Measured, measured
from ui.decide.words import in_page_words
from ui.download import REPORT, Download, ready
from ui.prompts.tab import PromptsTab
from ui.prompts.watched import short_names
from ui.tabs import Tabs, bytes_of

log = logging.getLogger(__name__)
TITLE = "Decide"
HEAD = (
    '<h2>Which one should I serve?</h2><p class="note">Of the lanes that keep your limits the cheapest, by what was measured in this browser tab and by the '
    "prices of an hour that you give. Whatever is estimated is called so.</p>"
)
AT_ONCE = 2  # decisions: each takes a core for about a second
OVER = "() => document.dispatchEvent(new Event('decide-over'))"  # `looks/decide.js`


@dataclass(frozen=True)
class Decided:
    """A decision in the page's words, what the lanes cost, and the records that it rests on."""

    decision: Decision
    costs: tuple[CostLine, ...]
    records: tuple[Record, ...]

    @classmethod
    def by(cls, asked: Asked, found: Measured) -> Decided:
        """The decision on what was measured; raises WrongArguments."""
        decision, curves = decide_with_curves(asked, found.found)
        costs = cost_lines(decision, {lane: curve.month for lane, curve in curves.items()})
        return cls(in_page_words(decision), costs, found.records)


class DecideTab:
    """The tab's components and listeners."""

    def __init__(self, page: Page, prompts: PromptsTab) -> None:
        self.page, self.prompts = page, prompts
        self.decided: Tabs[Decided] = Tabs()
        gr.HTML(HEAD, elem_id="decide-head")
        self.rests = gr.HTML(view.note(FIRST), elem_id="decide-rests")
        self.form = Form(page.engine.status(), short_names(page.engine))
        with gr.Row(elem_id="decide-buttons"):
            self.button = gr.Button("Decide", variant="primary", elem_id="decide-button", scale=0, min_width=160)
            self.report = Download("decision", label="Download the report", elem_id="decide-report", scale=0, min_width=180)
            self.said = gr.HTML(elem_id="decide-said")
        self.shown = gr.HTML(elem_id="decision")
        self.outputs: list[Any] = [self.rests, self.said, self.shown, self.report.button, *self.form.refusals.values()]

    def wire(self, tab: gr.Tab, quick: dict[str, Any]) -> None:
        """Connect its listeners; `tab` is where it stands."""
        tab.select(self.look, outputs=[self.rests, *self.form.hardware], **quick)
        gr.on(
            [self.button.click, *self.form.wire()], self.decide, inputs=self.form.inputs, outputs=self.outputs,
            concurrency_id="decide", concurrency_limit=AT_ONCE, show_progress="hidden", api_visibility="private",
        ).then(None, js=OVER, api_visibility="private")  # fmt: skip
        self.report.wire(self.as_report, [])

    def leave(self, request: gr.Request) -> None:
        """The tab was closed."""
        self.decided.drop(request.session_hash or "")

    def look(self, request: gr.Request) -> list[Any]:
        """The tab was opened: what a decision would rest on, and the hardware for the lanes as they are now."""
        try:
            found = self._measured(request)
            said = self._rests(found)
        except InferenceError as error:
            said = str(error)
        return [view.note(said), *self.form.looks(self.page.engine.status())]

    def _measured(self, request: gr.Request) -> Measured | None:
        """What this browser tab alone has measured."""
        tab = request.session_hash or ""
        series = self.prompts.series.get(tab)
        return measured([*self.page.histories.choose(tab, []), *(list(series.records) if series else [])])

    def _rests(self, found: Measured | None) -> str:
        """What a decision rests on, in words."""
        here = [status.facts.model_id for status in self.page.engine.status() if status.facts and not status.title]
        return found.words(next(filter(None, here), "")) if found else FIRST

    def decide(self, request: gr.Request, *values: Any) -> Generator[list[Any]]:
        """First that it is worked out, then all of `outputs`: the decision, or what is wrong and where."""
        yield [gr.skip(), view.working(), *[gr.skip()] * (len(self.outputs) - 2)]
        try:
            found = self._measured(request)
            if found is None or not found.runs:
                yield self._only(view.note(self._rests(found)))
                return
            asked = self.form.asked(values, self.page.engine.status(), (lane.lane for lane in found.found.lanes))
            with self.page.visitors.visiting(request):
                decided = Decided.by(asked, found)
        except Refused as error:
            yield self._only("", error)
        except InferenceError as error:
            yield self._only(view.refusal(str(error)))
        except Exception:
            log.exception("no decision")
            yield self._only(view.refusal(FAULT))
        else:
            self.decided.put(request.session_hash or "", decided, bytes_of(decided))
            rests = self._rests(found)
            shown = view.view(decided.decision, decided.costs, rests)
            yield [view.note(rests), "", shown, ready(True), *self.form.beside()]

    def _only(self, said: str, refused: Refused | None = None) -> list[Any]:
        """A sentence beside the button, or beside a field; what was decided before stays."""
        return [gr.skip(), said, gr.skip(), gr.skip(), *self.form.beside(refused)]

    def as_report(self, request: gr.Request) -> list[str]:
        """What Download saves: the report of the last decision and its records."""
        decided = self.decided.get(request.session_hash or "")
        return self.report.named(html_report(decided.records, decided.decision, decided.costs) if decided else "", REPORT)
