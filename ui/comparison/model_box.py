"""The model box: a line that names the model, and behind it another to load, with its progress and a Cancel.

In: a model's name. Out: the engine's model, changed or back to the one before. Every tab's box follows by `Page.watch`; where no other
model may be chosen (`Models`), the line stands alone.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from inference.errors import InferenceError
from ui.badge import escape
from ui.comparison.handlers import Page, hint
from ui.comparison.models import line

ANY = "A Hub id (owner/name, or owner/name@revision), a folder, an adapter's folder, a .gguf file, or shape:NAME. The memory of the one before is given back first."
LISTED = "The memory of the one before is given back first."


class ModelBox:
    """Its components and listeners; `outputs` are those that `Models.shown` fills."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.outputs: list[Any] = []
        model, models = page.engine.model(), page.models
        if not models.changeable:
            gr.HTML(f'<p class="said">Model: {escape(model.name)}</p>', elem_id="model")
            return
        with gr.Accordion(line(model), open=False, elem_id="model") as box:
            with gr.Row(elem_id="model-row"):
                self.choice = gr.Dropdown(
                    models.names(), value=model.name, label="Model", info=ANY if models.open else LISTED, allow_custom_value=models.open,
                    filterable=models.open, elem_id="model-name", scale=1, min_width=280,
                )  # fmt: skip
                load = gr.Button("Load", elem_id="model-load", scale=0, min_width=120)
                cancel = gr.Button("Cancel", visible=False, elem_id="model-cancel", scale=0, min_width=120)
            self.refusal = gr.HTML(elem_id="model-refusal")
            said = gr.HTML(visible=False, elem_id="model-said")
        self.outputs = [box, said, load, cancel]

    def wire(self, demo: gr.Blocks, watched: list[Any], quick: dict[str, Any]) -> None:
        """Connect its listeners; after each, the tab shows what there is now (`watched`, in the order of `Page.watch`)."""
        if not self.outputs:
            return
        _, _, load, cancel = self.outputs
        demo.load(self.choose, outputs=[self.choice], **quick)
        load.click(self.load_model, inputs=[self.choice], outputs=[self.refusal, self.choice], **quick).then(self.page.watch, outputs=watched, **quick)
        cancel.click(self.cancel_model, outputs=[self.refusal, self.choice], **quick).then(self.page.watch, outputs=watched, **quick)

    def load_model(self, name: Any) -> list[Any]:
        """Change the model, or say why not; returns once the memory of the one before is given back, while the new one loads."""
        try:
            wanted = self.page.models.check(name)
            self.page.start()
            self.page.engine.change_model(wanted)
        except InferenceError as error:
            return [hint(str(error)), gr.skip()]
        self.page.models.note(wanted)
        return [hint(""), self.choose()]

    def cancel_model(self) -> list[Any]:
        """Back to the model before, or a sentence."""
        try:
            self.page.engine.cancel_change()
        except InferenceError as error:
            return [hint(str(error)), gr.skip()]
        return [hint(""), self.choose()]

    def choose(self) -> gr.Dropdown:
        """What can be chosen now, and the model that there is."""
        return gr.Dropdown(self.page.models.names(), value=self.page.engine.model().name)
