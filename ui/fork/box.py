"""The fork viewer's components and their wiring: the button, Stop, a line that says why it can't be used, and the viewer.

In: a `ForkViewer`, and the parts of the page it follows and fills. Out: Gradio components. Knows no score.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from ui.comparison.results import Results
from ui.fork.viewer import AFTER, ForkViewer
from ui.history.tab import HistoryTab

BUTTON = "Compare the answers token by token"
STOP = "Stop comparing"


class Fork:
    """Its button is usable once there is a finished comparison; its figures go into the table and the history as well."""

    def __init__(self, viewer: ForkViewer) -> None:
        self.viewer = viewer
        with gr.Row(elem_id="fork-row"):
            self.button = gr.Button(BUTTON, interactive=False, elem_id="fork-button", scale=0, min_width=300)
            self.stop = gr.Button(STOP, visible=False, elem_id="fork-stop", scale=0, min_width=150)
            self.why = gr.HTML(f'<p class="fork-why">{viewer.why_not(None) or AFTER}</p>', elem_id="fork-why")
        self.shown = gr.HTML(visible=False, elem_id="fork")

    def wire(self, board: gr.HTML, results: Results, history: HistoryTab, quick: dict[str, Any], at_once: int) -> None:
        """Connect its listeners; `board` changes when a comparison begins, and when it has ended."""
        outputs = [self.button, self.stop, self.why, self.shown]
        board.change(self.viewer.ready, outputs=outputs, **quick)
        self.stop.click(self.viewer.stop, **quick)
        scored = self.button.click(
            self.viewer.show, outputs=outputs, concurrency_id="fork", concurrency_limit=at_once, show_progress="hidden", api_visibility="private"
        ).then(results.show_again, outputs=results.outputs, **quick)
        history.list_after(scored, quick)
