"""The page: layout first, then wiring; one column per lane of the engine.

`prompt -> begin -> a stream per lane -> finish -> verdict`: one short event accepts a comparison, then each lane's
branch streams on its own, so that a slow lane never paces a fast one. Starts no process; `start` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr
from fastapi.exceptions import RequestValidationError

from inference.engine.engine import Engine
from inference.series.prompts import MOST_BYTES
from inference.settings import Settings
from ui import links, looks, private
from ui.bodies import bounded, own_folder
from ui.comparison import board
from ui.comparison.columns import LOOK_S, Column, card
from ui.comparison.composer import TOKENS, Ask, ask
from ui.comparison.handlers import Page
from ui.comparison.model_box import ModelBox
from ui.comparison.results import Results
from ui.decide.tab import TITLE as WHICH
from ui.decide.tab import DecideTab
from ui.definitions import popovers
from ui.fork.box import Fork
from ui.fork.viewer import ForkViewer
from ui.history.tab import HistoryTab
from ui.preview import preview
from ui.programs.beats import lasting
from ui.programs.callers import Callers
from ui.programs.calls import calls, unreadable
from ui.programs.doors import closed
from ui.programs.endpoints import Endpoints, signatures
from ui.programs.once import once
from ui.prompts.tab import SAMPLE, PromptsTab
from ui.tabs import MOST_TABS
from ui.visitors import trusted_proxies

TITLE = "Does 4-bit cost you speed or quality?"
INTRO = "The same model twice: squeezed to 4 bits, and in full precision. One prompt, both answers side by side, every figure measured."
FORMATTED = '<button type="button" class="quiet" id="formatted" aria-pressed="false">Formatted</button>'
NO_ROBOTS = '<meta name="robots" content="noindex">'  # a link lent for a week
MOST_AT_ONCE = 16
STREAMS_AT_ONCE = 64  # a lane: visitors who are shown their place in the line; more than these wait unseen, and are answered too
KEEP_UPLOADS_S = 3600
QUICK: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
SYSTEM_FONTS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif")
MONO_FONTS = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


@dataclass(frozen=True)
class Board:
    """The scoreboard and what can be done with it."""

    board: gr.HTML
    again: gr.Button
    go_on: gr.Button


def build(engine: Engine, start: Callable[[], None] = lambda: None) -> gr.Blocks:
    """The page over `engine`; `start` (called again and again) starts it when the first visitor comes."""
    own_folder()  # each component asks where it is
    page = Page(engine, start)
    with gr.Blocks(title=TITLE, analytics_enabled=None, delete_cache=(KEEP_UPLOADS_S, KEEP_UPLOADS_S)) as demo:
        # Rows and columns are there at once, what is in them comes later: so they keep its place, and nothing moves.
        with gr.Column(elem_id="head"):
            gr.Markdown(f"# {TITLE}\n{INTRO}", elem_id="intro")
            box = ModelBox(page)
        with gr.Tab("One prompt"):
            asked = ask()
            board_box = _board(page)
            statuses = {status.key: status for status in engine.status()}
            keys = [lane.key for lane in page.lanes]
            with gr.Row(elem_id="lanes", elem_classes=f"lanes-{min(len(keys), 4)}"):
                columns = [card(statuses[key], keys, TOKENS) for key in keys]
            fork = Fork(ForkViewer(page))
            results = Results(page)
        with gr.Tab("Prompts file"):
            prompts = PromptsTab(page)
        with gr.Tab("History"):
            history = HistoryTab(page)
        with gr.Tab(WHICH) as which:
            decide = DecideTab(page, prompts)
        gr.HTML(popovers(), elem_id="definitions")
        _wire(demo, page, asked, board_box, columns, box, gr.Timer(LOOK_S), results, history)
        fork.wire(board_box.board, results, history, QUICK, MOST_AT_ONCE)
        prompts.wire(QUICK, MOST_AT_ONCE)
        decide.wire(which, QUICK)
        callers = Callers(page.visitors)
        Endpoints(engine, start, callers).serve(MOST_AT_ONCE)
        for leave in (prompts.leave, decide.leave, callers.leave, _forget(demo)):
            demo.unload(leave)
    demo.queue(max_size=256)
    private.calm(demo)
    private.lean_sessions(demo)
    private.fetch_nothing()
    return demo


def _forget(demo: gr.Blocks) -> Callable[[gr.Request], None]:
    """What lets go of a closed tab, as the last of its listeners: each of the others would have its session made anew."""

    def forget(visitor: gr.Request) -> None:
        private.forget(demo, visitor.session_hash or "")

    return forget


def _board(page: Page) -> Board:
    """The scoreboard and its buttons."""
    with gr.Column(elem_id="board-place"):
        shown = gr.HTML(board.empty([lane.key for lane in page.lanes]), elem_id="board")
    with gr.Row(elem_id="board-tools"):
        again = gr.Button("Run again", size="sm", interactive=False, elem_id="again", scale=0, min_width=120)
        go_on = gr.Button("Go on", size="sm", visible=False, elem_id="go-on", scale=0, min_width=160)
        gr.HTML(FORMATTED, elem_id="formatted-row")
    return Board(shown, again, go_on)


def launch_options(settings: Settings) -> dict[str, Any]:
    """What `demo.launch` needs for this page: looks, limits, address; run history off, so prompts stay out of localStorage."""
    if settings.mcp:
        private.json_for_mcp()
    return {
        "theme": gr.themes.Default(primary_hue="indigo", neutral_hue="slate", font=SYSTEM_FONTS, font_mono=MONO_FONTS, radius_size="md"),
        "css_paths": looks.css_paths(),
        "head": looks.head() + (NO_ROBOTS if settings.share else ""),
        "favicon_path": looks.FOLDER / "favicon.svg",
        "app_kwargs": {
            "middleware": [closed(), lasting(), once(), calls(signatures()), bounded(), preview(TITLE, INTRO, looks.FOLDER / "preview.png")],
            "exception_handlers": {RequestValidationError: unreadable},
        },
        "footer_links": ["api"],
        "run_history": False,
        "state_session_capacity": MOST_TABS,
        "max_threads": len(settings.lanes) * STREAMS_AT_ONCE + 7 * MOST_AT_ONCE,  # a stream holds one; the rest is for everything else
        "allowed_paths": [str(SAMPLE)],  # the sample file, wherever the page was started from
        "enable_monitoring": False,  # who asked what and when, for anybody
        "num_workers": 0,  # processes of Gradio's (GRADIO_NUM_WORKERS) that would serve uploads and files past our bounds
        "ssr_mode": False,  # a web server of Node's (GRADIO_SSR_MODE) before ours
        "mcp_server": settings.mcp,
        "server_name": f"[{settings.host}]" if ":" in settings.host else settings.host,  # as an address has it
        "server_port": settings.port or None,
        "max_file_size": MOST_BYTES,
        "share": False,  # `sharing.open_link` makes it, once the page is there
        "auth": tuple(settings.auth.split(":", 1)) if settings.auth else None,
        "prevent_thread_lock": True,
        "quiet": True,
    }


def launch(demo: gr.Blocks, settings: Settings) -> str:
    """Serve the page, with its web server told whom to believe; its address on this machine. Raises OSError where it can't be served."""
    private.believe(trusted_proxies(settings))
    with private.unproxied():
        return str(demo.launch(**launch_options(settings))[1])


# ---- wiring


def _wire(
    demo: gr.Blocks, page: Page, asked: Ask, board_box: Board, columns: list[Column], box: ModelBox, timer: gr.Timer, results: Results, history: HistoryTab,
) -> None:  # fmt: skip
    watched = [*(part for column in columns for part in (column.top, column.foot, column.retry)), *box.outputs, timer]
    demo.load(page.load, outputs=watched, **QUICK)
    filled = [asked.prompt, *asked.settings]
    demo.load(page.linked, outputs=[*filled, asked.hint], **QUICK)
    asked.link.click(None, inputs=filled, js=links.to_script(), api_visibility="private")
    timer.tick(page.watch, outputs=watched, **QUICK)
    box.wire(demo, watched, QUICK)
    demo.unload(page.leave)

    begun = gr.on(
        [asked.send.click, asked.prompt.submit, board_box.again.click, board_box.go_on.click], page.press, inputs=filled,
        outputs=[asked.hint, board_box.board, asked.send, board_box.again, board_box.go_on, timer,
                 *[column.stop for column in columns], *[column.answer for column in columns], *[column.pretty for column in columns]], **QUICK | private.IDENTIFIED,
    )  # fmt: skip
    begun.success(results.hide, outputs=results.outputs[:2], **QUICK)
    history.wire(QUICK, filled)
    over = [board_box.board, asked.send, board_box.again, board_box.go_on]
    for lane, column in zip(page.lanes, columns, strict=True):
        # "multiple": the next comparison may begin a moment before the browser has seen this branch end.
        ended = begun.success(
            lane.stream, outputs=[column.top, column.answer, column.foot],
            concurrency_id=f"lane-{lane.key}", concurrency_limit=STREAMS_AT_ONCE, trigger_mode="multiple", show_progress="hidden", api_visibility="private",
        ).then(
            lane.finish, outputs=[*over, column.pretty, column.stop, column.retry, timer], trigger_mode="multiple", **QUICK,
        ).then(
            results.show, outputs=results.outputs, trigger_mode="multiple", **QUICK,
        )  # fmt: skip
        history.list_after(ended, QUICK)
        column.stop.click(lane.stop, **QUICK)
        column.retry.click(lane.retry, outputs=[column.top, column.foot, column.retry, timer], **QUICK)
