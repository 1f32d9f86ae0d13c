"""The named endpoints for programs: `/compare`, `/ask`, `/quality`, over HTTP, by gradio_client and as MCP tools.

In: plain values, checked as the page's own are. Out: plain values ready for JSON; every fault as `gr.Error`, one sentence. Runs
through the same engine and queue as the page's visitors do. Their docstrings are what a client is shown of them: every parameter
has its line there. No postponed annotations here: Gradio reads a return type as it stands.
"""

import inspect
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Literal

import gradio as gr

from inference.engine.compare import Runs, follow
from inference.engine.compare import compare as run_comparison
from inference.engine.engine import Engine
from inference.errors import InferenceError
from inference.events import MODES, Request
from inference.progress import Progress
from inference.quality.answers import AnswerQuality, one_answer, scored_or_why_not
from inference.record.build import build_record
from inference.record.export import as_json
from inference.record.model import Record
from inference.record.scores import Quality
from ui.api import build_request, yes_or_no
from ui.programs.callers import Callers, Gone, Told

log = logging.getLogger(__name__)
NAMES = ("compare", "ask", "quality")
FAULT = "Something went wrong in the page itself; its log has the trace. Ask again."
LEFT = "The caller went away before it was scored. Ask again."
FRAME_S = 0.2  # between two frames of a stream that is written
Format = Literal["chat", "raw"]
Mode = Literal["auto", "together", "in-turn"]


class Endpoints:
    """The endpoints over one engine; `start` is called at each, for the lanes may not have been started yet."""

    def __init__(self, engine: Engine, start: Callable[[], None], callers: Callers) -> None:
        self._engine, self._start, self._callers = engine, start, callers

    def serve(self, most_at_once: int) -> None:
        """Make them endpoints of the page that is being built, each with a line of its own."""
        for name in NAMES:
            gr.api(getattr(self, name), api_name=name, concurrency_limit=most_at_once, concurrency_id=name)

    def compare(
        self, caller: gr.Request, prompt: str, system: str = "", format: Format = "chat", max_new_tokens: int = 50, temperature: float = 0.0, seed: int = 0, mode: Mode = "auto",
        quality: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """Answer one prompt by every lane of the page (the model in 4 bits and in full precision) and measure each.

        Parameters:
            prompt: What to ask the model.
            system: An instruction before the prompt (a line of its own in a raw one); empty by default.
            format: "chat" (the default) wraps the prompt by the model's chat template, "raw" lets the model continue the text.
            max_new_tokens: Where an answer is cut off, from 1 to 4096 tokens; 50 by default.
            temperature: 0 (the default) always takes the likeliest token; up to 2 draws.
            seed: With a temperature, all lanes draw the same random numbers from it; 0 by default.
            mode: "together" runs the lanes at once, "in-turn" one after the other; "auto" (the default) in turn where they share a device.
            quality: Whether the lanes also score the full-precision answer, for how far 4 bits moved the model; off by default.

        Returns:
            The record of the comparison: under "lanes" each lane's answer, token ids and figures (times in seconds, memory in bytes, null where unknown, "error" where a lane failed), under "verdict" the ratios
        """
        with told():
            self._start()
            request = build_request(prompt, system, format, max_new_tokens, temperature, seed)
            how, scores = checked(mode), yes_or_no(quality, "quality")
            with self._callers.calling(caller, request) as gone:
                score = gone.unless(scored_or_why_not) if scores else None
                return for_clients(run_comparison(self._engine, request, mode=how, on_progress=Told(self._engine), quality=score, stop=gone))

    def ask(
        self, caller: gr.Request, prompt: str, lane: str = "", system: str = "", format: Format = "chat", max_new_tokens: int = 50, temperature: float = 0.0, seed: int = 0,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """Answer one prompt by one lane, streaming its text as it is written, and measure it.

        Parameters:
            prompt: What to ask the model.
            lane: Which lane answers: one that the page shows, such as "cpu:fp32", "cpu:nf4" or "cuda:nf4"; empty (the default) for the page's first.
            system: An instruction before the prompt (a line of its own in a raw one); empty by default.
            format: "chat" (the default) wraps the prompt by the model's chat template, "raw" lets the model continue the text.
            max_new_tokens: Where the answer is cut off, from 1 to 4096 tokens; 50 by default.
            temperature: 0 (the default) always takes the likeliest token; up to 2 draws.
            seed: With a temperature, the random numbers are drawn from it; 0 by default.

        Returns:
            Again and again: "lane", "phase" (such as queued, loading, decode, done), "position" in the queue, "text" so far, "new_tokens" so far; at the end "record" too, as /compare gives it, of this lane alone
        """
        with told():
            self._start()
            request = build_request(prompt, system, format, max_new_tokens, temperature, seed)
            key = lane_called(self._engine, lane)
            with self._callers.calling(caller, request) as gone:
                yield from self._asked(request, key, gone)

    def _asked(self, request: Request, key: str, gone: Gone) -> Iterator[dict[str, Any]]:
        comparison = self._engine.submit(request, (key,))
        progress = Progress(time.perf_counter())
        with closing(frames(follow(self._engine, comparison.runs[key]), gone)) as steps:
            for progress in steps:
                if not progress.ended:
                    yield frame(self._name(key), progress)
        if not progress.ended:
            return  # nobody waits for it
        if progress.fault:
            raise InferenceError(f"{self._name(key)}: {progress.fault}")
        record = build_record(self._engine.statuses_of(comparison), request, comparison.mode, {key: [progress]})
        yield frame(self._name(key), progress, record)

    def quality(
        self, caller: gr.Request, prompt: str, system: str = "", format: Format = "chat", max_new_tokens: int = 50, temperature: float = 0.0, seed: int = 0,
        positions: bool = True,
    ) -> dict[str, Any]:  # fmt: skip
        """How far 4 bits moved the model on one prompt: both lanes answer it, then both score the full-precision answer, token by token.

        Parameters:
            prompt: What to ask the model.
            system: An instruction before the prompt (a line of its own in a raw one); empty by default.
            format: "chat" (the default) wraps the prompt by the model's chat template, "raw" lets the model continue the text.
            max_new_tokens: Where an answer is cut off, from 1 to 4096 tokens; 50 by default.
            temperature: 0 (the default) always takes the likeliest token; up to 2 draws.
            seed: With a temperature, all lanes draw the same random numbers from it; 0 by default.
            positions: Whether to return what both lanes gave at each token of that answer; on by default.

        Returns:
            "record", as /compare gives it, its "quality" filled (divergences in nats, first_divergence where the answers part); "positions": for each token of the full-precision answer its id, text, divergence ("kld"), and what each lane held likeliest there
        """
        with told():
            self._start()
            request = build_request(prompt, system, format, max_new_tokens, temperature, seed)
            each_token = yes_or_no(positions, "positions")
            found: list[AnswerQuality] = []

            def score(engine: Engine, runs: Runs, greedy: bool) -> Quality:
                for key, run in runs.items():
                    if run.fault:
                        raise InferenceError(f"{self._name(key)}: {run.fault}")
                found.append(one_answer(engine, runs, greedy))
                return found[-1].record

            with self._callers.calling(caller, request) as gone:
                record = run_comparison(self._engine, request, on_progress=Told(self._engine), quality=gone.unless(score), stop=gone)
            if not found:
                raise InferenceError(LEFT)
            return {"record": for_clients(record), "positions": [*each_position(found[-1])] if each_token else None}

    def _name(self, key: str) -> str:
        return next(status.name for status in self._engine.status() if status.key == key)


def signatures() -> dict[str, inspect.Signature]:
    """What each endpoint takes from a client, by its name."""
    found = {}
    for name in NAMES:
        taken = inspect.signature(partial(getattr(Endpoints, name), None))  # less self, ...
        given = [parameter for parameter in taken.parameters.values() if parameter.annotation is not gr.Request]  # ... and what Gradio adds
        found[name] = taken.replace(parameters=given)
    return found


@contextmanager
def told() -> Iterator[None]:
    """Every fault as the sentence that a client gets; what nobody foresaw goes to the log with its trace."""
    try:
        yield
    except InferenceError as error:
        raise gr.Error(str(error), print_exception=False) from error
    except Exception as error:
        log.exception("an endpoint failed")
        raise gr.Error(FAULT, print_exception=False) from error


def checked(mode: object) -> str:
    """A mode that there is; raises InferenceError."""
    if mode not in MODES:
        raise InferenceError(f"Unknown mode {mode!r}. Use one of: {', '.join(MODES)}.")
    return str(mode)


def lane_called(engine: Engine, name: object) -> str:
    """The configured name of the lane that is called `name`, by its configured name or its process's; the first where it is empty."""
    statuses = engine.status()
    if name in ("", None):
        return statuses[0].key
    found = next((status.key for status in statuses if name in (status.key, status.name)), None)
    if found is None:
        raise InferenceError(f"This page has no lane {name!r}. Its lanes are: {', '.join(status.name for status in statuses)}.")
    return found


def frames(steps: Generator[Progress, None, None], gone: threading.Event) -> Generator[Progress, None, None]:
    """Of a run's steps the first, each with a new phase or place, one in FRAME_S while it is written, and the last; closing it, and `gone`, stop the run."""
    shown, shown_at = Progress(0.0, phase=""), 0.0
    with closing(steps):
        for step in steps:
            if gone.is_set():
                return
            now = time.perf_counter()
            moved = (step.phase, step.position) != (shown.phase, shown.position)
            if moved or step.ended or ((step.n, step.text) != (shown.n, shown.text) and now - shown_at >= FRAME_S):
                shown, shown_at = step, now
                yield step


def frame(lane: str, progress: Progress, record: Record | None = None) -> dict[str, Any]:
    """What a stream says of a run so far, and once it is over."""
    return {
        "lane": lane, "phase": progress.phase, "position": progress.position, "text": progress.text, "new_tokens": progress.n,
        "record": for_clients(record) if record else None,
    }  # fmt: skip


def for_clients(record: Record) -> dict[str, Any]:
    """A record as JSON with each run's `path` under `decode_path`: gradio_client takes any object with a text `path` for a file and fetches it."""
    found = as_json(record)
    for lane in found["lanes"].values():
        lane["runs"] = [{**run, "path": None, "decode_path": run.get("path")} for run in lane["runs"]]
    return found


def each_position(quality: AnswerQuality) -> Iterator[dict[str, Any]]:
    """For each token of the reference's answer what both lanes gave there; natural logarithms, divergence in nats."""
    reference, other = quality.reference, quality.other
    for place, token in enumerate(reference.ids):
        yield {
            "id": token, "text": reference.pieces[place] if reference.pieces else None, "kld": other.kld[place],
            "logprob_reference": -reference.nll[place], "logprob_other": -other.nll[place],
            "likeliest_reference": likeliest(reference.top(place)), "likeliest_other": likeliest(other.top(place)),
        }  # fmt: skip


def likeliest(top: list[tuple[int, float, str]]) -> dict[str, Any]:
    """The first of a lane's likeliest tokens, as (id, log-probability, text)."""
    token, logprob, text = top[0]
    return {"id": token, "text": text, "logprob": logprob}
