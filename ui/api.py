"""The endpoint `/compare`: one prompt in, the record of the comparison out, for clients of the page.

Also turns the loosely typed values of forms and clients into a `Request`. Runs through the same engine and queue
as the page's visitors do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from inference.engine.compare import compare as run_comparison
from inference.engine.engine import Engine
from inference.errors import InferenceError
from inference.events import MODES, Request
from inference.quality.answers import scored_or_why_not
from inference.record.export import as_json
from ui.callers import Callers, Told

MODE_CHOICES = [("Automatic", "auto"), ("Together", "together"), ("In turn", "in-turn")]


def build_request(prompt: Any, system: Any, format: Any, max_new_tokens: Any, temperature: Any, seed: Any) -> Request:
    """A checked Request; raises InferenceError with one sentence for a value that can't be used."""
    request = Request(
        prompt=text(prompt, "prompt"),
        system=text(system, "system prompt"),
        format=text(format, "prompt format"),
        max_new_tokens=whole(max_new_tokens, "Max new tokens"),
        temperature=number(temperature, "Temperature"),
        seed=whole(seed, "The seed"),
    )
    request.check()
    return request


def text(value: Any, name: str) -> str:
    """`value` as text; nothing counts as empty."""
    if value is None or isinstance(value, str):
        return value or ""
    raise InferenceError(f"The {name} must be text, not {type(value).__name__}.")


def number(value: Any, name: str) -> float:
    """`value` as a number; raises InferenceError for an empty field or anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise InferenceError(f"{name} must be a number. Fill it in and send again.")


def whole(value: Any, name: str) -> int:
    """`value` as a whole number; raises InferenceError."""
    found = number(value, name)
    if found != found or found in (float("inf"), float("-inf")) or found != int(found):
        raise InferenceError(f"{name} must be a whole number, not {found}.")
    return int(found)


def compare_endpoint(engine: Engine, start: Callable[[], None], callers: Callers) -> Callable[..., dict[str, Any]]:
    """The function behind `/compare` over this engine; a run ends when its caller goes away."""

    def compare(
        caller: gr.Request,
        prompt: str,
        system: str = "",
        format: str = "chat",
        max_new_tokens: int = 50,
        temperature: float = 0.0,
        seed: int = 0,
        mode: str = "auto",
        quality: bool = False,
    ) -> dict[str, Any]:
        """Answer one prompt on the page's lanes and return the record of the comparison (schema gpu-vs-cpu/2; a run's `path` is under `decode_path`)."""
        start()
        try:
            if mode not in MODES:
                raise InferenceError(f"Unknown mode {mode!r}. Use one of: {', '.join(MODES)}.")
            request = build_request(prompt, system, format, max_new_tokens, temperature, seed)
            with callers.calling(caller, request) as gone:
                record = run_comparison(
                    engine, request, mode=mode, on_progress=Told(engine), quality=gone.unless(scored_or_why_not) if quality else None, stop=gone
                )
            return safe_for_clients(as_json(record))
        except InferenceError as error:
            raise gr.Error(str(error), print_exception=False) from error

    return compare


def safe_for_clients(record: dict[str, Any]) -> dict[str, Any]:
    """A record as JSON with each run's `path` under `decode_path`: gradio_client takes any object with a text `path` for a file and fetches it."""
    for lane in record["lanes"].values():
        lane["runs"] = [{**run, "path": None, "decode_path": run.get("path")} for run in lane["runs"]]
    return record
