"""The tab "History": the tab's comparisons to choose from, two of them side by side, and their export.

In: ids of comparisons and a format. Out: Markdown and text. Everything comes from `Histories`; nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from inference.record.export import export
from inference.record.model import Record
from inference.units import size
from ui.download import FORMAT_CHOICES, Download, ready
from ui.handlers import Page
from ui.history import MOST_BYTES, MOST_KEPT, side_by_side

KEPT = (
    f"The latest comparisons of this browser tab, up to {MOST_KEPT} and {size(MOST_BYTES)} of them, are kept in the memory of the server "
    "until you close or reload the tab, or until tabs used after it need the room. "
    "Your browser stores no prompt and no answer; only what you download is yours to keep."
)
NONE_YET = "No comparison yet. Send a prompt first."
CHOOSE_TWO = "Choose two comparisons to see them side by side."
NOTHING_HIDDEN = "Nothing chosen: all are exported."
FEW = 3
MOST_SHOWN = 50_000  # characters


class HistoryTab:
    """The tab's components and listeners."""

    def __init__(self, page: Page) -> None:
        self.page = page
        gr.Markdown(KEPT, elem_id="kept")
        self.choice = gr.CheckboxGroup([], label="Comparisons, newest first", info=NOTHING_HIDDEN, elem_id="history")
        self.pair = gr.Markdown(NONE_YET, sanitize_html=True, latex_delimiters=[], elem_id="pair")
        self.format = gr.Radio(
            FORMAT_CHOICES, value="markdown", label="Export as", info="Markdown is ready for a model card, CSV has a row a run, JSON is the record."
        )
        self.download = Download("comparison", elem_id="download")
        self.preview = gr.Textbox(label="Export", lines=6, max_lines=16, interactive=False, buttons=["copy"], visible=False, elem_id="export")
        self.inputs: list[Any] = [self.choice, self.format]
        self.refreshed: list[Any] = [self.choice, self.pair, self.preview, self.download.button]

    def wire(self, quick: dict[str, Any]) -> None:
        """Connect the tab's own listeners."""
        gr.on([self.choice.change, self.format.change], self.show, inputs=self.inputs, outputs=self.refreshed[1:], **quick)
        self.download.wire(self.export, self.inputs)

    def refresh(self, chosen: list[str] | None, format: str, request: gr.Request) -> list[Any]:
        """`refreshed` with a comparison that has just ended, what was chosen still chosen; nothing changes while one is not over."""
        tab = request.session_hash or ""
        if self.page.latest(tab) is None:
            return [gr.skip()] * len(self.refreshed)
        labels = self.page.histories.labels(tab)
        known = [id for id in chosen or [] if id in {id for _, id in labels}]
        return [gr.CheckboxGroup(labels, value=known), *self.show(known, format, request)]

    def show(self, chosen: list[str] | None, format: str, request: gr.Request) -> list[Any]:
        """Two chosen comparisons side by side, a look at the export where that is short, and Download."""
        records = self._chosen(chosen, request)
        if not records:
            return [NONE_YET, preview([], format), ready(records)]
        pair = side_by_side(*records) if len(chosen or []) == 2 and len(records) == 2 else CHOOSE_TWO
        return [pair, preview(records, format), ready(records)]

    def export(self, chosen: list[str] | None, format: str, request: gr.Request) -> list[str]:
        """What Download saves: those chosen (all where none is) in the format chosen, and the file's name."""
        records = self._chosen(chosen, request)
        return self.download.named(export(records, format) if records else "", format)

    def _chosen(self, chosen: list[str] | None, request: gr.Request) -> list[Record]:
        return self.page.histories.choose(request.session_hash or "", chosen or [])


def preview(records: Sequence[Record], format: str) -> gr.Textbox:
    """The export to look at and to copy, of few comparisons and short; else hidden, and not even made of many."""
    text = export(records, format) if 0 < len(records) <= FEW else ""
    shown = 0 < len(text) <= MOST_SHOWN
    return gr.Textbox(text if shown else "", visible=shown)
