"""The tab "History": the tab's comparisons to choose from, two of them side by side, and their export.

In: ids of comparisons and a format. Out: Markdown and text. Everything comes from `Histories`; nothing is measured here.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from inference.export import export
from ui import download
from ui.handlers import Page
from ui.history import MOST_KEPT, side_by_side

KEPT = (
    f"The last {MOST_KEPT} comparisons of this browser tab are kept in the memory of the server until you close or reload the tab. "
    "Your browser stores no prompt and no answer; only what you download is yours to keep."
)
NONE_YET = "No comparison yet. Send a prompt first."
CHOOSE_TWO = "Choose two comparisons to see them side by side."
NOTHING_HIDDEN = "Nothing chosen: all are exported."


class HistoryTab:
    """The tab's components and listeners."""

    def __init__(self, page: Page) -> None:
        self.page = page
        gr.Markdown(KEPT, elem_id="kept")
        self.choice = gr.CheckboxGroup([], label="Comparisons, newest first", info=NOTHING_HIDDEN, elem_id="history")
        self.pair = gr.Markdown(NONE_YET, sanitize_html=True, latex_delimiters=[], elem_id="pair")
        self.format = gr.Radio(
            download.FORMAT_CHOICES, value="markdown", label="Export as", info="Markdown is ready for a model card, CSV has a row a run, JSON is the record."
        )
        self.save = gr.Button("Download", elem_id="download")
        self.text = gr.Textbox(label="Export", lines=6, max_lines=16, interactive=False, buttons=["copy"], elem_id="export")

    def wire(self, quick: dict[str, Any]) -> None:
        """Connect the tab's own listeners."""
        gr.on([self.choice.change, self.format.change], self.show, inputs=[self.choice, self.format], outputs=[self.pair, self.text], **quick)
        download.on_click(self.save, self.text, self.format, "comparison")

    @property
    def refreshed(self) -> list[Any]:
        """What `refresh` fills after a comparison."""
        return [self.choice, self.pair, self.text]

    def refresh(self, chosen: list[str] | None, format: str, request: gr.Request) -> list[Any]:
        """The list with a comparison that has just ended, what was chosen still chosen."""
        labels = self.page.histories.labels(request.session_hash or "")
        known = [id for id in chosen or [] if id in {id for _, id in labels}]
        return [gr.CheckboxGroup(labels, value=known), *self.show(known, format, request)]

    def show(self, chosen: list[str] | None, format: str, request: gr.Request) -> list[Any]:
        """Two chosen comparisons side by side, and the export of those chosen (of all where none is)."""
        records = self.page.histories.choose(request.session_hash or "", chosen or [])
        if not records:
            return [NONE_YET, ""]
        pair = side_by_side(*records) if len(chosen or []) == 2 and len(records) == 2 else CHOOSE_TWO
        return [pair, export(records, format)]
