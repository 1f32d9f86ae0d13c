"""The prompt with its one button, the examples, and the settings in a drawer at the side.

Layout only; what is asked is checked in `handlers.py`. The drawer is opened and closed by the browser (`looks/page.js`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import gradio as gr

from inference.host.child import ROOT
from ui.api import MODE_CHOICES

PROMPTS = ROOT / "examples" / "prompts.json"
TOKENS = 50
BUTTONS = (
    '<button type="button" class="quiet" id="copy-link" title="A link that opens the page with this prompt and these settings filled in">Copy link</button>'
    '<button type="button" class="quiet" id="settings-open" aria-expanded="false" aria-controls="settings">Settings</button>'
)
LINK_SHOWN = (
    '<div id="link-shown" hidden><label><span></span><input type="text" readonly></label>'
    '<button type="button" class="quiet" id="link-close">Close</button></div>'
)


@dataclass(frozen=True)
class Ask:
    """The components that make up a request, and what is shown about it; `settings` in the order of `Page.press` after the prompt.

    `link` is pressed by the browser where a link of all that is wanted (`looks/link.js`).
    """

    prompt: gr.Textbox
    send: gr.Button
    hint: gr.HTML
    settings: list[Any]
    link: gr.Button


def ask() -> Ask:
    """The prompt's row, what is said under it, and the examples."""
    with gr.Row(elem_id="ask"):
        prompt = gr.Textbox(
            label="Prompt", lines=1, max_lines=8, autofocus=True, elem_id="prompt", scale=1, min_width=200,
            placeholder="Ask something",
        )  # fmt: skip
        send = gr.Button("Send", variant="primary", elem_id="send", scale=0, min_width=96)
    with gr.Row(elem_id="ask-more"):
        gr.Examples(
            [[text] for text in json.loads(PROMPTS.read_text("utf-8"))],
            inputs=[prompt], label="Examples", cache_examples=False, preload=False, api_visibility="private", elem_id="examples",
        )  # fmt: skip
        gr.HTML(BUTTONS, elem_id="settings-row")
        link = gr.Button(visible="hidden", elem_id="link-values")
    gr.HTML(LINK_SHOWN, elem_id="link-row")
    hint = gr.HTML(elem_id="hint")
    return Ask(prompt, send, hint, _settings(), link)


def _settings() -> list[Any]:
    """System prompt, format, max new tokens, temperature, seed, mode."""
    with gr.Column(elem_id="settings"):
        gr.HTML('<div class="drawer-head"><h2>Settings</h2><button type="button" class="quiet" id="settings-close">Close</button></div>')
        tokens = gr.Number(TOKENS, label="Max new tokens", info="Where an answer is cut off, if it has not ended by itself.", elem_id="tokens")
        temperature = gr.Number(0, label="Temperature", step=0.1, info="0 is greedy: always the likeliest token. Up to 2.")
        seed = gr.Number(0, label="Seed", info="With a temperature, both lanes draw the same random numbers from it.")
        format = gr.Radio(
            [("Chat template", "chat"), ("Raw completion", "raw")], value="chat", label="Prompt format",
            info="Chat wraps the prompt as the model was trained; raw lets it continue the text.",
        )  # fmt: skip
        mode = gr.Radio(
            MODE_CHOICES, value="auto", label="Mode",
            info="Together runs the lanes at once; in turn, one after the other, so that none slows another. Automatic: in turn where they share a device.",
        )  # fmt: skip
        system = gr.Textbox(
            label="System prompt", lines=2, max_lines=6, info="Optional instruction before the prompt; in a raw completion a line of its own.", elem_id="system"
        )
    return [system, format, tokens, temperature, seed, mode]
