"""The page's model in words, and which others may be chosen: any on one's own machine, only those of `MODELS` where strangers come.

In: settings, the engine's `ModelStatus`, the lanes' status. Out: names to choose from, a sentence for one that may not be, what the model
box shows. Changes nothing, and knows no checkpoint: whether there is such a model, its load says.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import gradio as gr

from inference.errors import WrongArguments
from inference.lanes import LaneName
from inference.settings import DEFAULT_MODEL, Settings
from inference.status import LOADING_STATES, LaneStatus, ModelStatus
from ui.badge import escape
from ui.comparison.render import loading_words

MOST_USED = 20
MOST_CHARACTERS = 1000
NAME_ONE = "Name a model first: a Hub id (owner/name), a folder, or shape:NAME."
NO_NAME = "That is no model's name: it has line breaks or signs that can't be shown, or is very long. Type it again."


class Models:
    """What may be chosen on one page."""

    def __init__(self, settings: Settings, environ: Mapping[str, str] = os.environ) -> None:
        self._listed = tuple(dict.fromkeys((*settings.models, settings.model_id)))
        self._used: list[str] = []
        self.open = not environ.get("SPACE_ID") and not (settings.share and not settings.auth)
        self.changeable = self.open or bool(settings.models)

    def names(self) -> list[str]:
        """The models to choose from: those listed and the first one; on one's own machine the default and those used last too."""
        more = (DEFAULT_MODEL, *reversed(self._used)) if self.open else ()
        return list(dict.fromkeys((*self._listed, *more)))

    def check(self, name: object) -> str:
        """`name` as it may be loaded; raises WrongArguments for one that may not be chosen here."""
        text = name.strip() if isinstance(name, str) else ""
        if not text:
            raise WrongArguments(NAME_ONE)
        if not text.isprintable() or len(text) > MOST_CHARACTERS:
            raise WrongArguments(NO_NAME)
        if not self.open and text not in (self._listed if self.changeable else ()):
            raise WrongArguments(f"{text} can't be chosen here. Choose one of: {', '.join(self._listed)}.")
        return text

    def note(self, name: str) -> None:
        """`name` is used: it can be chosen again."""
        self._used = [*[used for used in self._used if used != name], name][-MOST_USED:]

    def shown(self, model: ModelStatus, lanes: Iterable[LaneStatus]) -> list[Any]:
        """The box's line, what is said in it, Load and Cancel; nothing where there is no box."""
        if not self.changeable:
            return []
        lanes = list(lanes)
        words = said(model, lanes)
        return [
            gr.Accordion(label=line(model, lanes)), gr.HTML(words, visible=bool(words)),
            gr.Button(interactive=not model.changing), gr.Button(visible=model.phase == "loading"),
        ]  # fmt: skip


def line(model: ModelStatus, lanes: Iterable[LaneStatus] = ()) -> str:
    """The model and what it runs on in one line, closed or open."""
    words = "loading" if model.changing else "could not be loaded" if model.phase == "failed" else "change"
    return " · ".join(filter(None, [f"Model: {model.name}", hardware(lanes), words]))


def hardware(lanes: Iterable[LaneStatus]) -> str:
    """What the lanes run on, as their processes say, each device once; empty until one has said it."""
    found: dict[str, str] = {}
    for status in lanes:
        if status.hello and status.hello.available and not status.title:
            on_cpu = status.hello.device == "cpu"
            name = str(status.hello.environment.get("cpu" if on_cpu else "gpu") or ("CPU" if on_cpu else "GPU"))
            threads = f", {status.facts.threads} threads" if on_cpu and status.facts and status.facts.threads else ""
            found[status.hello.device] = max(name + threads, found.get(status.hello.device, ""), key=len)
    return " and ".join(found.values())


def said(model: ModelStatus, lanes: Iterable[LaneStatus]) -> str:
    """What becomes of the last change: how far it is, or how it ended where that must be said."""
    if model.phase == "failed":
        return _sentence(f"{model.name} could not be loaded; the lane's column says why. Choose another, or {model.other} again.", "alert")
    if model.phase == "cancelled":
        return _sentence(f"The load of {model.other} was cancelled; {model.name} is used again. What was downloaded is kept.")
    if model.phase == "ending":
        return _sentence(f"Giving back the memory of {model.other}.")
    return _progress(lanes) if model.phase == "loading" else ""


def _progress(lanes: Iterable[LaneStatus]) -> str:
    kept = (lane for lane in lanes if lane.state in LOADING_STATES and LaneName.parse(lane.key).four_bit)
    loading = next((lane.progress for lane in kept if lane.progress), None)
    words, detail = loading_words(loading)
    bar = (
        f'<progress max="{loading.total:.0f}" value="{loading.done:.0f}" aria-label="Loaded"></progress>'
        if loading and loading.total
        else "<progress></progress>"
    )
    return f'{bar}<div class="status"><span role="status" aria-live="polite">{escape(words)}</span><span class="clock" aria-hidden="true">{escape(detail)}</span></div>'


def _sentence(words: str, role: str = "status") -> str:
    return f'<p role="{role}" class="said">{escape(words)}</p>'
