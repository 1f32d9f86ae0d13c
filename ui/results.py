"""What the page shows under two finished answers: the measured table, its summary, the charts and their numbers.

In: the tab's latest record. Out: one value per component of the section, in the order of `Results.outputs`.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from inference.record.markdown import markdown_code, markdown_summary, markdown_table
from ui import charts
from ui.handlers import Page

PLAIN: dict[str, Any] = {"sanitize_html": True, "latex_delimiters": []}


class Results:
    """The section's components and their listener."""

    def __init__(self, page: Page) -> None:
        self.page = page
        with gr.Column(visible=False, elem_id="results") as self.box:
            gr.Markdown("## What was measured")
            self.summary = gr.Markdown(elem_id="summary", **PLAIN)
            self.line = gr.LinePlot(x="time", y="tokens", color="lane", height=280, show_label=False, tooltip="all", elem_id="tokens-over-time")
            with gr.Row(elem_id="bars"):
                self.bars = [gr.BarPlot(x="lane", y="value", color="lane", height=230, min_width=210, show_label=False, tooltip="all") for _ in charts.BARS]
            self.words = gr.Markdown(elem_id="charts-in-words", **PLAIN)
            gr.Markdown("### The table")
            self.table = gr.Markdown(elem_id="table", **PLAIN)
            with gr.Accordion("Code to reproduce", open=False):
                self.code = gr.Markdown(elem_id="code", **PLAIN)
        self.outputs: list[Any] = [self.box, self.summary, self.line, *self.bars, self.words, self.table, self.code]

    def show(self, request: gr.Request) -> list[Any]:
        """The whole section, once, when every lane has ended; nothing changes before, nor after a prompt that was refused."""
        session = self.page.sessions.get(request.session_hash or "")
        record = self.page.latest(request.session_hash or "") if session and session.to_draw() else None
        if record is None:
            return [gr.skip()] * len(self.outputs)
        line = charts.tokens_over_time(record)
        return [
            gr.Column(visible=True),
            markdown_summary(record),
            gr.LinePlot(value=line.frame, x_title=line.x_title, y_title=line.y_title, color_title=" ", title=line.title, color_map=line.colours),
            *[self._bar(chart) for chart in charts.bars(record)],
            charts.in_words(record),
            markdown_table(record),
            markdown_code(record),
        ]

    def show_table(self, request: gr.Request) -> Any:
        """The table alone, after a scoring has put its figures into the record."""
        record = self.page.latest(request.session_hash or "")
        return markdown_table(record) if record else gr.skip()

    def _bar(self, chart: charts.Chart) -> gr.BarPlot:
        return gr.BarPlot(
            value=chart.frame, x_title=" ", y_title=chart.y_title, color_title=" ", title=chart.title, color_map=chart.colours,
            colors_in_legend=[], sort=list(chart.colours), y_lim=[0, None], x_label_angle=-35 if len(chart.colours) > 2 else 0,
        )  # fmt: skip

    def hide(self, request: gr.Request) -> Any:
        """A comparison has begun, and what is shown would be of the last one; nothing changes where none has."""
        session = self.page.sessions.get(request.session_hash or "")
        # Hidden and not taken out of the page, where its plots would still be drawing into nothing.
        return gr.Column(visible="hidden") if session and session.running else gr.skip()
