"""The page: layout first, then wiring; one column per lane of the engine.

`prompt -> begin -> a stream per lane -> finish -> verdict`: one short event accepts a comparison, then each lane's
branch streams on its own, so that a slow lane never paces a fast one. Starts no process; `start` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from inference.engine.engine import Engine
from inference.lanes import LaneName, precision_words
from inference.settings import Settings
from inference.status import LaneStatus
from ui import looks, private, render
from ui.api import compare_endpoint
from ui.fork import BUTTON, ForkViewer
from ui.handlers import LOOK_S, Page
from ui.history_tab import HistoryTab
from ui.model_box import ModelBox
from ui.prompts_tab import MODES, PromptsTab
from ui.results import Results

ROOT = Path(__file__).resolve().parent.parent
TITLE = "4-bit against full precision"
INTRO = (
    "One prompt, answered by a 4-bit quantized model and by the same model in full precision. Both answers stream side by side, and every figure is measured."
)
NOTE = (
    "**Reading the figures.** Loading and waiting are never inside first token, speed or total. Where the lanes run on different devices, "
    "a gap in speed comes mainly from the device; what 4 bits save is memory. Two greedy answers may part at a near tie, which says little about quality."
)
MOST_AT_ONCE = 16
STREAMS_AT_ONCE = 64  # a lane: visitors who are shown their place in the line; more than these wait unseen, and are answered too
KEEP_UPLOADS_S = 3600
QUICK: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
SYSTEM_FONTS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif")
MONO_FONTS = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


@dataclass(frozen=True)
class Ask:
    """The components that make up a request, and what is shown about it."""

    prompt: gr.Textbox
    send: gr.Button
    stop: gr.Button
    hint: gr.HTML
    settings: list[Any]


@dataclass(frozen=True)
class Column:
    """One lane's components."""

    head: gr.HTML
    line: gr.HTML
    answer: gr.Chatbot
    badges: gr.HTML
    stop: gr.Button
    retry: gr.Button


class Fork:
    """The fork viewer's components: its button is usable while there is a verdict; its figures go into the table as well."""

    def __init__(self, viewer: ForkViewer) -> None:
        self.viewer = viewer
        self.button = gr.Button(BUTTON, interactive=False, visible=viewer.possible, elem_id="fork-button")
        self.shown = gr.HTML(visible=False, elem_id="fork")

    def wire(self, verdict: gr.Markdown, results: Results, history: HistoryTab) -> None:
        """Connect its listeners."""
        outputs = [self.button, self.shown]
        verdict.change(self.viewer.ready, inputs=[verdict], outputs=outputs, **QUICK)
        self.button.click(
            self.viewer.show, outputs=outputs, concurrency_id="fork", concurrency_limit=MOST_AT_ONCE, show_progress="hidden", api_visibility="private"
        ).then(results.show_table, outputs=[results.table], **QUICK).then(history.refresh, inputs=history.inputs, outputs=history.refreshed, **QUICK)


def build(engine: Engine, start: Callable[[], None] = lambda: None) -> gr.Blocks:
    """The page over `engine`; `start` (called again and again) starts it when the first visitor comes."""
    page = Page(engine, start)
    with gr.Blocks(title=TITLE, analytics_enabled=None, delete_cache=(KEEP_UPLOADS_S, KEEP_UPLOADS_S)) as demo:
        gr.Markdown(f"# {TITLE}\n{INTRO}", elem_id="intro")
        box = ModelBox(page)
        with gr.Tab("One prompt"):
            ask = _ask(len(page.lanes))
            statuses = {status.key: status for status in engine.status()}
            with gr.Row(elem_id="lanes", equal_height=True):
                columns = [_column(statuses[lane.key]) for lane in page.lanes]
            verdict = gr.Markdown(elem_id="verdict", sanitize_html=True)
            fork = Fork(ForkViewer(page))
            results = Results(page)
            gr.Markdown(NOTE, elem_id="note")
        with gr.Tab("Prompts file"):
            prompts = PromptsTab(page)
        with gr.Tab("History"):
            history = HistoryTab(page)
        _wire(demo, page, ask, columns, box, verdict, gr.Timer(LOOK_S), results, history)
        fork.wire(verdict, results, history)
        prompts.wire(QUICK, MOST_AT_ONCE)
        demo.unload(prompts.leave)
        gr.api(compare_endpoint(engine, start), api_name="compare", concurrency_limit=MOST_AT_ONCE, concurrency_id="compare")
    demo.queue(max_size=256)
    private.calm(demo)
    return demo


def launch_options(settings: Settings) -> dict[str, Any]:
    """What `demo.launch` needs for this page: looks, limits, address; run history off, so prompts stay out of localStorage."""
    return {
        "theme": gr.themes.Default(primary_hue="indigo", neutral_hue="slate", font=SYSTEM_FONTS, font_mono=MONO_FONTS, radius_size="md"),
        "css_paths": looks.css_paths(),
        "head": looks.scripts(),
        "footer_links": ["api"],
        "run_history": False,
        "max_threads": len(settings.lanes) * STREAMS_AT_ONCE + 5 * MOST_AT_ONCE,  # a stream holds one; the rest is for everything else
        "server_name": settings.host,
        "server_port": settings.port or None,
        "share": settings.share or None,
        "auth": tuple(settings.auth.split(":", 1)) if settings.auth else None,
        "prevent_thread_lock": True,
        "quiet": True,
    }


# ---- layout


def _ask(lanes: int) -> Ask:
    with gr.Row(elem_id="ask"):
        prompt = gr.Textbox(
            label="Prompt", lines=1, max_lines=8, autofocus=True, elem_id="prompt", scale=1, min_width=280,
            placeholder="Ask something. Enter sends, Shift+Enter makes a new line.",
        )  # fmt: skip
        send = gr.Button("Send", variant="primary", elem_id="send", scale=0, min_width=120)
        stop = gr.Button("Stop both" if lanes == 2 else "Stop all", interactive=False, elem_id="stop-all", scale=0, min_width=120)
    hint = gr.HTML(elem_id="hint", visible=False)
    gr.Examples(
        [[text] for text in json.loads((ROOT / "examples" / "prompts.json").read_text("utf-8"))],
        inputs=[prompt], label="Examples", cache_examples=False, preload=False, api_visibility="private", elem_id="examples",
    )  # fmt: skip
    return Ask(prompt, send, stop, hint, _settings())


def _settings() -> list[Any]:
    """The request's settings, in the order of `Page.begin`: system, format, max new tokens, temperature, seed, mode."""
    with gr.Accordion("Settings", open=False, elem_id="settings"):
        with gr.Row():
            tokens = gr.Number(50, label="Max new tokens", info="Where an answer is cut off, if it has not ended by itself.", min_width=200)
            temperature = gr.Number(0, label="Temperature", step=0.1, info="0 is greedy: always the likeliest token. Up to 2.", min_width=200)
            seed = gr.Number(0, label="Seed", info="With a temperature, both lanes draw the same random numbers from it.", min_width=200)
        with gr.Row():
            format = gr.Radio(
                [("Chat template", "chat"), ("Raw completion", "raw")], value="chat", label="Prompt format",
                info="Chat wraps the prompt as the model was trained; raw lets it continue the text.", min_width=260,
            )  # fmt: skip
            mode = gr.Radio(
                MODES, value="auto", label="Mode",
                info="Together runs the lanes at once; in turn, one after the other, so that none slows another. Automatic: in turn where they share a device.",
                min_width=260,
            )  # fmt: skip
        system = gr.Textbox(label="System prompt", lines=1, max_lines=4, info="Optional instruction before the prompt; chat format only.", elem_id="system")
    return [system, format, tokens, temperature, seed, mode]


def _column(status: LaneStatus) -> Column:
    name = precision_words(LaneName.parse(status.key).precision)
    slug = status.key.replace(":", "-")
    with gr.Column(min_width=320, elem_classes="lane", elem_id=f"lane-{slug}"):
        head = gr.HTML(render.head(status), elem_classes="head")
        line = gr.HTML(render.idle_line(status), elem_classes="line")
        answer = gr.Chatbot(
            label=f"Answer, {name}", show_label=False, height=280, buttons=[], render_markdown=False, latex_delimiters=[], layout="panel",
            placeholder="The answer appears here.", elem_classes="answer", feedback_options=None, allow_file_downloads=False,
        )  # fmt: skip
        badges = gr.HTML(render.badges(status), elem_classes="badges")
        with gr.Row(elem_classes="lane-buttons"):
            stop = gr.Button(f"Stop {name}", size="sm", interactive=False, elem_classes="stop")
            retry = gr.Button(f"Try {name} again", size="sm", visible=False, elem_classes="retry")
    return Column(head, line, answer, badges, stop, retry)


# ---- wiring


def _wire(
    demo: gr.Blocks, page: Page, ask: Ask, columns: list[Column], box: ModelBox, verdict: gr.Markdown, timer: gr.Timer, results: Results, history: HistoryTab,
) -> None:  # fmt: skip
    watched = [*(part for column in columns for part in (column.head, column.line, column.badges, column.retry)), *box.outputs, timer]
    demo.load(page.load, outputs=watched, **QUICK)
    timer.tick(page.watch, outputs=watched, **QUICK)
    box.wire(demo, watched, QUICK)
    demo.unload(page.leave)

    begun = gr.on(
        [ask.send.click, ask.prompt.submit], page.begin, inputs=[ask.prompt, *ask.settings],
        outputs=[ask.hint, verdict, ask.send, ask.stop, timer, *[column.stop for column in columns]], **QUICK,
    )  # fmt: skip
    begun.success(results.hide, outputs=[results.box], **QUICK)
    history.wire(QUICK)
    for lane, column in zip(page.lanes, columns, strict=True):
        # "multiple": the next comparison may begin a moment before the browser has seen this branch end.
        begun.success(
            lane.stream, outputs=[column.head, column.line, column.answer, column.badges],
            concurrency_id=f"lane-{lane.key}", concurrency_limit=STREAMS_AT_ONCE, trigger_mode="multiple", show_progress="hidden", api_visibility="private",
        ).then(
            lane.finish, outputs=[verdict, ask.send, ask.stop, column.stop, column.head, column.retry, timer],
            trigger_mode="multiple", **QUICK,
        ).then(
            results.show, outputs=results.outputs, trigger_mode="multiple", **QUICK,
        ).then(
            history.refresh, inputs=history.inputs, outputs=history.refreshed, trigger_mode="multiple", **QUICK,
        )  # fmt: skip
        column.stop.click(lane.stop, **QUICK)
        column.retry.click(lane.retry, outputs=[column.head, column.line, column.retry, timer], **QUICK)
    ask.stop.click(page.stop, **QUICK)
