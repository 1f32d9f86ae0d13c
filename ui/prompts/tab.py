"""The tab "Prompts file": every prompt on every lane, a row as each is done, a stop that keeps what is done.

In: an uploaded file and the settings. Out: progress, who won, rows, and the export of the series. A listener only looks at the
series, twice a second, and ends it when nobody looks any more; what it shows is drawn in `view.py`.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import gradio as gr

from inference.errors import InferenceError
from inference.events import MAX_NEW_TOKENS_LIMIT, Request
from inference.host.child import ROOT
from inference.record.export import dump
from inference.series import table
from inference.series.prompts import KINDS, LeftOut, Prompt, read_prompts
from inference.series.series import Series
from inference.units import count, size
from ui.api import MODE_CHOICES, whole
from ui.comparison.handlers import Page
from ui.download import FORMAT_CHOICES, Download, export, ready
from ui.prompts import view as series_view
from ui.prompts import watched
from ui.prompts.watched import Watched, alert, said
from ui.tabs import Tabs, bytes_of
from ui.visitors import Visit

MOST_PROMPTS = 1000
EXAMPLES = ROOT / "examples"
SAMPLE = EXAMPLES / "waiter.csv"
ABOUT = "Ask every prompt of a file on every lane: one row a prompt with all answers side by side, then who won over all of them."
FORMAT = "txt: a prompt a line. csv or jsonl: prompt and, if you like, expected."
NO_FILE = "Choose a file, or use the sample: 18 orders and questions for a waiter, 16 of them with an expected answer."
KEPT = (
    "All prompts are asked greedily, in the chat format, after warm-ups that are not counted. "
    f"The file is deleted from the server within two hours; the rows, up to {size(watched.MOST_BYTES)} of them, are kept in its memory until you close or "
    "reload this tab, or until tabs used after it need the room."
)
GONE = "The server has deleted the file meanwhile. Choose it again."
NOT_BEGUN = "The file could not be begun ({}). Wait until less goes on here, then run it again."
STILL_RUNNING = "A file is still running here. Wait for it, or stop it first."


class PromptsTab:
    """The tab's components and listeners."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.series: Tabs[Series] = Tabs()
        gr.Markdown(ABOUT, elem_id="series-about")
        with gr.Row(elem_id="series-ask"):
            with gr.Column(scale=3, min_width=280):
                self.file = gr.File(label=FORMAT, file_types=list(KINDS), height=150, elem_id="prompts-file")
                with gr.Row(elem_id="series-sample"):
                    self.sample = gr.Button("Use the sample file", size="sm", min_width=130, elem_id="sample-use")
                    self.save = Download("sample", label="Download the sample", size="sm", interactive=True, min_width=130, elem_id="sample-save")
            with gr.Column(scale=2, min_width=260):
                self.tokens = gr.Number(50, label="Max new tokens for each", minimum=1, maximum=MAX_NEW_TOKENS_LIMIT)
                self.mode = gr.Radio(MODE_CHOICES, value="auto", label="Mode for each")
                with gr.Row(elem_id="series-buttons"):
                    self.start = gr.Button("Run the file", variant="primary", interactive=False, elem_id="series-run", min_width=120)
                    self.stop = gr.Button("Stop and keep", interactive=False, elem_id="series-stop", min_width=120)
        self.progress = gr.HTML(said(NO_FILE), elem_id="series-progress")
        self.summary = gr.HTML(elem_id="series-medians")
        with gr.Row(visible=False, elem_id="series-view") as self.view:
            self.only = gr.Radio(series_view.ONLY, value="all", label="Rows to show", show_label=False, container=False, min_width=260)
            self.place = gr.HTML(elem_id="series-place")
            self.back = gr.Button("Earlier rows", size="sm", visible=False, min_width=110)
            self.on = gr.Button("Later rows", size="sm", visible=False, min_width=110)
        self.rows = gr.HTML(elem_id="series-rows")
        self.at = gr.State(0)
        with gr.Row(elem_id="series-export"):
            self.format = gr.Radio(FORMAT_CHOICES, value="csv", label="Export as", min_width=260)
            self.download = Download("prompts", elem_id="series-download", min_width=160)
        gr.Markdown(KEPT, elem_id="series-kept")
        self._paged: list[Any] = [self.rows, self.at, self.place, self.back, self.on]
        self.shown: list[Any] = [self.progress, self.summary, self.view, self.only, *self._paged, self.start, self.stop, self.download.button]

    def wire(self, quick: dict[str, Any], at_once: int) -> None:
        """Connect the tab's listeners."""
        self.file.change(self.look, inputs=[self.file], outputs=self.shown, **quick)
        self.sample.click(lambda: str(SAMPLE), outputs=[self.file], **quick)
        self.save.wire(lambda: [SAMPLE.read_text("utf-8"), SAMPLE.name], [])
        self.start.click(
            self.run, inputs=[self.file, self.tokens, self.mode], outputs=self.shown,
            concurrency_id="series", concurrency_limit=at_once, show_progress="hidden", api_visibility="private",
        )  # fmt: skip
        self.stop.click(self.end, **quick)
        for button, step in ((self.back, -1), (self.on, 1)):
            button.click(self._turn(step), inputs=[self.at, self.only], outputs=self._paged, **quick)
        self.only.input(self._turn(None), inputs=[self.at, self.only], outputs=self._paged, **quick)
        self.download.wire(self.export, [self.format])

    def _turn(self, step: int | None) -> Any:
        """A listener that shows the page `step` further on, the first where it is None."""

        def turn(at: int, only: str, request: gr.Request) -> list[Any]:
            series = self.series.get(request.session_hash or "")
            return paged(series, 0 if step is None else at + step, only) if series else [gr.skip()] * len(self._paged)

        return turn

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

    def look(self, path: str | None, request: gr.Request) -> list[Any]:
        """A file was chosen or taken away: what is in it, and whether it can be run; what is shown of an earlier one goes where it is refused."""
        tab = request.session_hash or ""
        before = self.series.get(tab)
        if before and not before.stop.is_set():
            return [gr.skip()] * len(self.shown)
        if not path:
            return self._only(gr.skip() if before else said(NO_FILE), can_run=False)
        try:
            return self._only(said(in_it(Path(path).name, *read_prompts(Path(path), MOST_PROMPTS))), can_run=True)
        except InferenceError as error:
            return self._refuse(str(error), tab)

    def _only(self, progress: Any, can_run: bool) -> list[Any]:
        return [progress, *[gr.skip()] * (len(self.shown) - 4), gr.Button(interactive=can_run), gr.skip(), gr.skip()]

    def _refuse(self, sentence: str, tab: str) -> list[Any]:
        """The sentence, and nothing left of an earlier file."""
        self.series.drop(tab)
        return [alert(sentence), *_nothing(), gr.Button(interactive=False), gr.Button(interactive=False), ready(False)]

    def run(self, path: str | None, max_new_tokens: Any, mode: str, request: gr.Request) -> Generator[list[Any]]:
        """Answer the file's prompts: all that is `shown`, twice a second and at the end."""
        tab = request.session_hash or ""
        before = self.series.get(tab)
        if before and not before.stop.is_set():
            yield [alert(STILL_RUNNING), *[gr.skip()] * (len(self.shown) - 1)]
            return
        try:
            series, watch, visit = self._accept(path, max_new_tokens, mode, request)
        except InferenceError as error:
            yield self._refuse(str(error), tab)[:-3] + [gr.Button(interactive=bool(path)), gr.skip(), ready(False)]
            return
        try:
            yield [watch.line(), *_nothing(), gr.Button(interactive=False), gr.Button(interactive=True), ready(False)]
            yield from self._follow(watch, series, tab)
        finally:
            series.stop.set()
            visit.over = lambda: not watch.alive

    def _follow(self, watch: Watched, series: Series, tab: str) -> Generator[list[Any]]:
        shown, same = 0, [gr.skip()] * (len(self.shown) - 1)
        while watch.running():
            self.series.resize(tab, series, watch.size)
            new, shown = len(series.records) - shown, len(series.records)
            yield [watch.line(), *([gr.skip(), gr.skip(), gr.skip(), *paged(series, None), gr.skip(), gr.skip(), ready(True)] if new else same)]
        self.series.resize(tab, series, watch.size)
        judged = any(prompt.expected for prompt in series.prompts)
        view = [gr.Row(visible=bool(series.records)), gr.Radio(series_view.ONLY if judged else series_view.ONLY[:-1], value="all")]
        last = [gr.Button(interactive=True), gr.Button(interactive=False), ready(series.records)]
        yield [watch.line(), series_view.summary(series), *view, *paged(series, 0), *last]

    def _accept(self, path: str | None, max_new_tokens: Any, mode: str, visitor: gr.Request) -> tuple[Series, Watched, Visit]:
        if not path:
            raise InferenceError("Choose a prompts file first.")
        if not Path(path).is_file():
            raise InferenceError(GONE)
        prompts, skipped = read_prompts(Path(path), MOST_PROMPTS)
        request = Request(max((prompt.text for prompt in prompts), key=len), max_new_tokens=whole(max_new_tokens, "Max new tokens"))
        request.check()
        self.page.start()
        visit = self.page.visitors.enter(visitor, request, rows=len(prompts))
        series = Series(prompts, skipped)
        try:
            watch = Watched(self.page.engine, series, request, mode)
        except RuntimeError as error:  # no thread for it
            visit.end()
            raise InferenceError(NOT_BEGUN.format(error)) from error
        self.series.put(visitor.session_hash or "", series, bytes_of(prompts))
        return series, watch, visit


def in_it(name: str, prompts: list[Prompt], left_out: LeftOut) -> str:
    """What a file holds, in a sentence or two."""
    hoped = sum(prompt.expected is not None for prompt in prompts)
    words = f"{name}: {count(len(prompts), 'prompt')}" + (f", {hoped} with an expected answer." if hoped else ".")
    return " ".join([words, *left_out.words()])


def paged(series: Series, page: int | None, only: str = "all") -> list[Any]:
    """A page of rows, its number, where it stands, and the buttons to the pages beside it."""
    found = series_view.rows(series, page, only)
    back, on = (gr.Button(interactive=there, visible=found.pages > 1) for there in (found.page > 0, found.page + 1 < found.pages))
    return [found.html, found.page, f'<p role="status">{found.words}</p>', back, on]


def _nothing() -> list[Any]:
    """No summary, no rows, no way through them."""
    return ["", gr.Row(visible=False), gr.skip(), "", 0, "", gr.skip(), gr.skip()]


def in_format(series: Series, format: str) -> str:
    """A series in a format of the page's; as Markdown and JSON with what is told of it as a whole."""
    if format == "markdown":
        return table.markdown(series)
    return dump(series.as_json()) if format == "json" else export(series.records, format)
