"""The tab "History": the tab's comparisons to choose from, one of them opened again, two held against each other, and their export.

In: ids of comparisons, a format and the visitor's clock. Out: HTML, Markdown and text. Everything comes from `Histories`; nothing is
measured here, and nothing made of a comparison that is not chosen but its label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from inference.record.markdown import markdown_code, markdown_table
from inference.record.model import Record
from inference.units import size
from ui.badge import escape
from ui.comparison.handlers import Page
from ui.download import FORMAT_CHOICES, REPORT, Download, export, ready
from ui.histories import MOST_BYTES, MOST_KEPT
from ui.history import pair, reopened

KEPT = (
    f"The latest comparisons of this browser tab, up to {MOST_KEPT} and {size(MOST_BYTES)} of them, are kept in the memory of the server "
    "until you close or reload the tab, or until tabs used after it need the room. "
    "Your browser stores no prompt and no answer; only what you download is yours to keep."
)
NONE_YET = "No comparison yet. Send a prompt first."
GONE = "What was chosen is kept no longer: nothing was heard of this tab for a while, or tabs used after it needed the room. Send a prompt again."
CHOOSE = "Choose one to read it again, two to hold them against each other."
MANY = "{} chosen: choose one to read it again, two to hold them against each other. Download takes them all."
NOTHING_HIDDEN = "Nothing chosen: all are exported."
FEW = 3
MOST_SHOWN = 50_000  # characters
OFFSET = "() => new Date().getTimezoneOffset()"
TO_FIRST_TAB = "() => { document.querySelector('[role=tab]').click(); setTimeout(() => document.querySelector('#prompt textarea')?.focus(), 100); }"


class HistoryTab:
    """The tab's components and listeners."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.offset = gr.Number(0, visible="hidden")  # minutes that the visitor's clock is behind UTC
        self.choice = gr.CheckboxGroup([], label="Comparisons, newest first", show_label=False, visible=False, elem_id="history")
        self.pair = gr.HTML(_note(NONE_YET), elem_id="pair")
        self.again_button = gr.Button("Ask it again", size="sm", visible=False, elem_id="ask-again")
        with gr.Accordion("The whole table, and the code to reproduce it", open=False, visible=False, elem_id="reopened-table") as self.more:
            self.table = gr.Markdown(sanitize_html=True, latex_delimiters=[])
        with gr.Row(elem_id="history-export"):
            self.format = gr.Radio(
                FORMAT_CHOICES, value="markdown", label="Export as", info="Markdown is ready for a model card, CSV has a row a run, JSON is the record, the report is a file to open and to print. " + NOTHING_HIDDEN,
                min_width=260,
            )  # fmt: skip
            self.download = Download("comparison", elem_id="download", min_width=160)
        self.preview = gr.Textbox(label="Export", lines=6, max_lines=16, interactive=False, buttons=["copy"], visible=False, elem_id="export")
        gr.Markdown(KEPT, elem_id="kept")
        self.can_ask = False
        self.inputs: list[Any] = [self.choice, self.format, self.offset]
        self.shown: list[Any] = [self.pair, self.again_button, self.more, self.table, self.preview, self.download.button]

    def wire(self, quick: dict[str, Any], ask_fields: Sequence[Any] = ()) -> None:
        """Connect the tab's own listeners; `ask_fields` are the first tab's, in the order of `again`."""
        gr.on(None, None, outputs=[self.offset], js=OFFSET, api_visibility="private")
        gr.on([self.choice.change, self.format.change], self.show, inputs=self.inputs, outputs=self.shown, **quick)
        self.download.wire(self.export, self.inputs[:2])
        self.can_ask = bool(ask_fields)
        if ask_fields:
            self.again_button.click(self.again, inputs=[self.choice], outputs=list(ask_fields), **quick).success(
                None, js=TO_FIRST_TAB, api_visibility="private"
            )

    def list_after(self, event: Any, quick: dict[str, Any]) -> None:
        """List anew what is kept after `event`, a comparison's end, and then show what is ticked by then: the visitor may tick meanwhile."""
        more = quick | {"trigger_mode": "multiple"}
        listed = event.then(self.listed, inputs=[self.choice, self.offset], outputs=[self.choice], **more)
        listed.then(self.show, inputs=self.inputs, outputs=self.shown, **more)

    def listed(self, chosen: list[str] | None, offset_min: float, request: gr.Request) -> Any:
        """The comparisons with one that has just ended, what was chosen still chosen; nothing changes while one is not over."""
        tab = request.session_hash or ""
        if self.page.latest(tab) is None:
            return gr.skip()
        labels = self.page.histories.labels(tab, offset_min)
        known = [id for id in chosen or [] if id in {id for _, id in labels}]
        gone = {} if len(known) == len(chosen or []) else {"value": known}  # where none is gone the ticks are left to the browser, which may have more of them
        return gr.CheckboxGroup(labels, visible=True, **gone)

    def show(self, chosen: list[str] | None, format: str, offset_min: float, request: gr.Request) -> list[Any]:
        """One chosen comparison opened again with its table, or two held against each other; a look at the export where that is short."""
        records = self._chosen(chosen, request)
        one = records[0] if len(chosen or []) == 1 and records else None
        return [
            self._view(records, len(chosen or []), offset_min),
            gr.Button(visible=one is not None and self.can_ask),
            gr.Accordion(visible=one is not None),
            "\n\n".join([markdown_table(one), markdown_code(one)]) if one else "",
            preview(records, format),
            ready(records),
        ]

    def _view(self, records: Sequence[Record], chosen: int, offset_min: float) -> str:
        if not records:
            return _note(GONE if chosen else NONE_YET)
        if chosen == 1:
            return reopened.view(records[0], offset_min)
        if chosen == 2 and len(records) == 2:
            return pair.view(records[0], records[1], offset_min)
        return _note(MANY.format(chosen) if chosen else CHOOSE)

    def again(self, chosen: list[str] | None, request: gr.Request) -> list[Any]:
        """The chosen comparison's prompt, system prompt, format, max new tokens, temperature, seed and mode."""
        records = self._chosen(chosen, request) if len(chosen or []) == 1 else []
        if not records:
            return [gr.skip()] * 7
        asked = records[0].request
        return [asked.prompt, asked.system, asked.format, asked.max_new_tokens, asked.temperature, asked.seed, asked.mode]

    def export(self, chosen: list[str] | None, format: str, request: gr.Request) -> list[str]:
        """What Download saves: those chosen (all where none is) in the format chosen, and the file's name."""
        records = self._chosen(chosen, request)
        return self.download.named(export(records, format) if records else "", format)

    def _chosen(self, chosen: list[str] | None, request: gr.Request) -> list[Record]:
        return self.page.histories.choose(request.session_hash or "", chosen or [])


def _note(sentence: str) -> str:
    return f'<section><p role="status" class="note">{escape(sentence)}</p></section>'


def preview(records: Sequence[Record], format: str) -> gr.Textbox:
    """The export to look at and to copy, of few comparisons and short; else hidden, and not even made of many, nor a report, which is no text to read."""
    text = export(records, format) if 0 < len(records) <= FEW and format != REPORT else ""
    shown = 0 < len(text) <= MOST_SHOWN
    return gr.Textbox(text if shown else "", visible=shown)
