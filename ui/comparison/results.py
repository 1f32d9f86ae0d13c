"""What the page shows under the finished answers: the chart and six rows, and everything else behind "Details".

In: the tab's latest record. Out: one value per component of the section, in the order of `Results.outputs`.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from inference.record.markdown import markdown_code, markdown_summary, markdown_table
from inference.record.model import Record
from inference.record.verdict import verdict_text
from ui.comparison.chart import measured
from ui.comparison.handlers import Page

PLAIN: dict[str, Any] = {"sanitize_html": True, "latex_delimiters": []}


class Results:
    """The section's components and their listener."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.chart = gr.HTML("", elem_id="measured")
        with gr.Accordion("Details: every figure, its conditions, and the code to reproduce it", open=False, visible=False, elem_id="details") as self.box:
            self.verdict = gr.Markdown(elem_id="verdict", **PLAIN)
            self.table = gr.Markdown(elem_id="table", **PLAIN)
            self.summary = gr.Markdown(elem_id="summary", **PLAIN)
            self.code = gr.Markdown(elem_id="code", **PLAIN)
        self.outputs: list[Any] = [self.chart, self.box, self.verdict, self.table, self.summary, self.code]

    def show(self, request: gr.Request) -> list[Any]:
        """The whole section, once, when every lane has ended; nothing changes before, nor after a prompt that was refused."""
        session = self.page.sessions.get(request.session_hash or "")
        record = self.page.latest(request.session_hash or "") if session and session.to_draw() else None
        return self._all(record) if record else [gr.skip()] * len(self.outputs)

    def show_again(self, request: gr.Request) -> list[Any]:
        """The section anew, after a scoring has put its figures into the record."""
        record = self.page.latest(request.session_hash or "")
        return self._all(record) if record else [gr.skip()] * len(self.outputs)

    def _all(self, record: Record) -> list[Any]:
        return [measured(record), gr.Accordion(visible=True), verdict_text(record), markdown_table(record), f"### Held against each other\n{markdown_summary(record)}", f"### Code to reproduce\n{markdown_code(record)}"]  # fmt: skip

    def hide(self, request: gr.Request) -> list[Any]:
        """A comparison has begun, and what is shown would be of the last one; nothing changes where none has."""
        session = self.page.sessions.get(request.session_hash or "")
        return ["", gr.Accordion(visible=False)] if session and session.running else [gr.skip()] * 2
