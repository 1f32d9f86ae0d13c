"""The tab "Prompts file": every prompt on every lane, a row as each is done, a stop that keeps what is done.

In: an uploaded file and the settings. Out: progress, rows, medians, and the export of the series. The series runs in a
thread of its own; the listener only looks at it, twice a second, and ends it when nobody looks any more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import gradio as gr

from inference.engine.compare import names
from inference.errors import InferenceError
from inference.events import MAX_NEW_TOKENS_LIMIT, Request
from inference.progress import Progress
from inference.record.export import dump, to_csv
from inference.series import table
from inference.series.prompts import KINDS, read_prompts
from inference.series.series import Series
from inference.units import size
from ui.api import whole
from ui.badge import escape
from ui.download import FORMAT_CHOICES, Download, ready
from ui.handlers import FAULT, Page
from ui.tabs import Tabs, bytes_of

log = logging.getLogger(__name__)
LOOK_S = 0.5
MOST_PROMPTS = 1000
MOST_ROWS = 50  # sent anew after each prompt while a file runs
MOST_BYTES = 32 * 2**20  # of one tab's prompts and answers
FULL = f"A tab keeps {size(MOST_BYTES)} of them: download these, then run the rest of the file."
ABOUT = (
    "Upload a **txt** file (a prompt a line), or **csv** or **jsonl** with `prompt` and, if you like, `expected`. Each prompt is answered by every lane, "
    "greedily, in the chat format, after warm-ups that are not counted. A line that can't be used is named and left out. "
    f"The file is deleted from the server within two hours; the rows, up to {size(MOST_BYTES)} of them, are kept in its memory until you close or "
    "reload this tab, or until tabs used after it need the room."
)
WIDTHS = {"line": "60px", "prompt": "260px", "first token": "110px", "answer": "340px"}
MODES = [("Automatic", "auto"), ("Together", "together"), ("In turn", "in-turn")]


class PromptsTab:
    """The tab's components and listeners."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.series: Tabs[Series] = Tabs()
        gr.Markdown(ABOUT)
        with gr.Row():
            self.file = gr.File(label="Prompts file", file_types=list(KINDS), height=140, scale=2, min_width=280, elem_id="prompts-file")
            with gr.Column(min_width=240):
                self.tokens = gr.Number(50, label="Max new tokens for each", minimum=1, maximum=MAX_NEW_TOKENS_LIMIT)
                self.mode = gr.Radio(MODES, value="auto", label="Mode for each")
        with gr.Row(elem_id="series-buttons"):
            self.start = gr.Button("Run the file", variant="primary", elem_id="series-run")
            self.stop = gr.Button("Stop and keep", interactive=False, elem_id="series-stop")
        self.progress = gr.HTML(elem_id="series-progress")
        self.medians = gr.Markdown(sanitize_html=True, latex_delimiters=[], elem_id="series-medians")
        self.rows = gr.Dataframe(
            visible=False, datatype="str", interactive=False, wrap=True, max_height=460, elem_id="series-rows", label="Prompts", buttons=[]
        )
        with gr.Row():
            self.format = gr.Radio(FORMAT_CHOICES, value="csv", label="Export as", min_width=260)
            self.download = Download("prompts", elem_id="series-download", min_width=160)

    def wire(self, quick: dict[str, Any], at_once: int) -> None:
        """Connect the tab's listeners."""
        self.start.click(
            self.run, inputs=[self.file, self.tokens, self.mode],
            outputs=[self.progress, self.medians, self.rows, self.start, self.stop, self.download.button],
            concurrency_id="series", concurrency_limit=at_once, show_progress="hidden", api_visibility="private",
        )  # fmt: skip
        self.stop.click(self.end, **quick)
        self.download.wire(self.export, [self.format])

    def end(self, request: gr.Request) -> None:
        """Stop the tab's series at its next token; what is done is kept. Never waits."""
        if series := self.series.get(request.session_hash or ""):
            series.stop.set()

    def leave(self, request: gr.Request) -> None:
        """The tab was closed."""
        self.end(request)
        self.series.drop(request.session_hash or "")

    def export(self, format: str, request: gr.Request) -> list[str]:
        """What Download saves: the tab's series in a format, and the file's name."""
        series = self.series.get(request.session_hash or "")
        return self.download.named(in_format(series, format) if series and series.records else "", format)

    def run(self, path: str | None, max_new_tokens: Any, mode: str, request: gr.Request) -> Generator[list[Any]]:
        """Answer the file's prompts: progress, medians, rows, Run, Stop and Download, twice a second and at the end."""
        tab = request.session_hash or ""
        try:
            series, asked = self._accept(path, max_new_tokens, tab)
        except InferenceError as error:
            yield [f'<p role="alert" class="sentence">{escape(str(error))}</p>', *[gr.skip()] * 5]
            return
        watch = Watched(self.page, series, asked, mode)
        try:
            yield [watch.line(), "", gr.Dataframe(visible=False), gr.Button(interactive=False), gr.Button(interactive=True), ready(False)]
            shown = 0
            while watch.running():
                self.series.resize(tab, series, watch.size)
                new = len(series.records) > shown
                shown = len(series.records)
                last = [rows(series, MOST_ROWS), gr.skip(), gr.skip(), ready(True)] if new else [gr.skip()] * 4
                yield [watch.line(), gr.skip(), *last]
            self.series.resize(tab, series, watch.size)
            last = [gr.Button(interactive=True), gr.Button(interactive=False), ready(series.records)]
            yield [watch.line(), _medians(series), rows(series), *last]
        finally:
            series.stop.set()

    def _accept(self, path: str | None, max_new_tokens: Any, tab: str) -> tuple[Series, Request]:
        if not path:
            raise InferenceError("Choose a prompts file first.")
        prompts, skipped = read_prompts(Path(path), MOST_PROMPTS)
        request = Request(max((prompt.text for prompt in prompts), key=len), max_new_tokens=whole(max_new_tokens, "Max new tokens"))
        request.check()
        before = self.series.get(tab)
        if before and not before.stop.is_set():
            raise InferenceError("A file is still running here. Wait for it, or stop it first.")
        self.page.start()
        series = Series(prompts, skipped)
        self.series.put(tab, series, bytes_of(prompts))
        return series, request


def in_format(series: Series, format: str) -> str:
    """A series as Markdown, CSV or JSON."""
    if format == "markdown":
        return table.markdown(series)
    return to_csv(series.records) if format == "csv" else dump(series.as_json())


def rows(series: Series, most: int = MOST_PROMPTS) -> Any:
    """The table of the last `most` prompts that are done; nothing changes while none is."""
    records = list(series.records)  # the series may be going on
    shown = records[-most:]
    if not shown:
        return gr.skip()
    heads = table.prompt_heads(list(shown[0].lanes))
    return gr.Dataframe(
        value=[table.prompt_cells(record) for record in shown],
        headers=heads,
        visible=True,
        label="Prompts" if len(shown) == len(records) else f"The last {len(shown)} prompts; all of them at the end",
        column_widths=[WIDTHS.get(head.split(": ")[-1], "100px") for head in heads],
    )


def _medians(series: Series) -> str:
    return "\n\n".join([*table.median_markdown(series), *series.skipped.words()])


class Watched:
    """A series in a thread of its own, and how far it is in words."""

    def __init__(self, page: Page, series: Series, request: Request, mode: str) -> None:
        self._page, self._series, self._error, self._full = page, series, "", ""
        self.size = bytes_of(series.prompts)  # bytes, each record counted once
        self._lanes: dict[str, str] = {}
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, args=(request, mode), name="series", daemon=True)
        self._thread.start()

    def _run(self, request: Request, mode: str) -> None:
        try:
            for record in self._series.run(self._page.engine, request, mode, on_progress=self._note):
                self.size += bytes_of(record)
                if self.size > MOST_BYTES:
                    self._full = FULL
                    self._series.stop.set()
        except InferenceError as error:
            self._error = str(error)
        except Exception:
            log.exception("a series failed")
            self._error = FAULT

    def _note(self, lane: str, progress: Progress) -> None:
        self._lanes[lane] = progress.phase

    def running(self) -> bool:
        """Whether it goes on; waits a moment to find out."""
        self._thread.join(LOOK_S)
        return self._thread.is_alive()

    def line(self) -> str:
        """The progress bar with its words."""
        if self._error:
            return f'<p role="alert" class="sentence">{escape(self._error)}</p>'
        total, done = len(self._series.prompts), len(self._series.records)
        if self._thread.is_alive():
            stopping = "Stopping; " if self._series.stop.is_set() else ""
            known = names(self._page.engine)
            lanes = ", ".join(f"{known[lane]} {phase}" for lane, phase in list(self._lanes.items())) or "warming up"
            words, detail = f"{stopping}{done} of {total} prompts done", f"{lanes} · {time.monotonic() - self._began:.0f} s"
        else:
            words, detail = f"{table.how_far(self._series)} {self._full}".strip(), f"{time.monotonic() - self._began:.0f} s"
        return (
            f'<progress max="{total}" value="{done}" aria-label="Prompts done"></progress>'
            f'<div class="status"><span role="status" aria-live="polite">{escape(words)}</span><span class="clock" aria-hidden="true">{escape(detail)}</span></div>'
        )
