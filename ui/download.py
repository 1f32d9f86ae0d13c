"""A text -> a file on the visitor's disk, made when it is asked for and saved in the browser; nothing is written on the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from inference.record import export as plain
from inference.record.model import Record
from inference.report.html import html_report

REPORT = "report"
FORMAT_CHOICES = [("Markdown", "markdown"), ("JSON", "json"), ("CSV", "csv"), ("Report (HTML)", REPORT)]
ENDINGS = {**plain.ENDINGS, REPORT: "html"}
NOTHING = "There is nothing to download any more. Run it again."
_SAVE = """(text, file) => {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([text], {type: (file.endsWith('.html') ? 'text/html' : 'text/plain') + ';charset=utf-8'}));
    link.download = file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}"""


def export(records: Sequence[Record], format: str) -> str:
    """The records in a format of `ENDINGS`."""
    return html_report(records) if format == REPORT else plain.export(records, format)


class Download:
    """A button, usable once `ready` says so, and the hidden parts that carry a text with its file's name to the browser."""

    def __init__(self, name: str, label: str = "Download", interactive: bool = False, **looks: Any) -> None:
        self._name = name
        self.button = gr.Button(label, interactive=interactive, **looks)
        self._text = gr.Textbox(visible="hidden", show_label=False)
        self._file = gr.Textbox(visible="hidden", show_label=False)

    def wire(self, make: Callable[..., Any], inputs: Sequence[Any]) -> None:
        """Let a click save what `make` (a listener that ends with `named`) gives; where it fails, nothing is saved."""
        outputs = [self._text, self._file]
        # queued, for the page shows an error of queued listeners only
        made = self.button.click(make, inputs=list(inputs), outputs=outputs, show_progress="hidden", api_visibility="private")
        made.success(None, inputs=outputs, js=_SAVE, api_visibility="private")

    def named(self, text: str, format: str) -> list[str]:
        """`text` and the name of a file of its format; raises gr.Error, which the page shows, where there is no text."""
        if not text:
            raise gr.Error(NOTHING, print_exception=False)
        return [text, f"{self._name}.{ENDINGS[format]}"]


def ready(something: object) -> gr.Button:
    """The button as it is with `something` to save, or with nothing."""
    return gr.Button(interactive=bool(something))
