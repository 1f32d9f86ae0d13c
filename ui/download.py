"""A text in a component -> a file on the visitor's disk, made in the browser; nothing is written on the server."""

from __future__ import annotations

from typing import Any

import gradio as gr

from inference.export import ENDINGS

FORMAT_CHOICES = [("Markdown", "markdown"), ("JSON", "json"), ("CSV", "csv")]
_ENDINGS = "{" + ", ".join(f"{name}: '{ending}'" for name, ending in ENDINGS.items()) + "}"


def on_click(button: gr.Button, text: Any, format: Any, name: str, make: Any = None) -> None:
    """Let `button` save `text` as NAME.ENDING; `make` (a listener on `format`) fills the text first, where it is given."""
    js = f"""(text, format) => {{
        if (!text) return;
        const link = document.createElement('a');
        link.href = URL.createObjectURL(new Blob([text], {{type: 'text/plain;charset=utf-8'}}));
        link.download = '{name}.' + ({_ENDINGS})[format];
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    }}"""
    quick: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    if make is None:
        button.click(None, inputs=[text, format], js=js, api_visibility="private")
    else:
        button.click(make, inputs=[format], outputs=[text], **quick).then(None, inputs=[text, format], js=js, api_visibility="private")
