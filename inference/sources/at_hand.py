"""A model's name -> its folder, where that can be said without fetching anything: local folders, and what the caches hold whole.

In: a name, settings. Out: a checkpoint, None (it must be fetched: `checkpoints.py`), or a sentence. Standard library only, so that a
lane's process can ask before its heavy imports.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from inference.cache import cache
from inference.cache.manifest import State
from inference.errors import InferenceError
from inference.settings import DEFAULT_MODEL, Settings
from inference.sources import default_model, shapes
from inference.sources.hub_cache import on_disk


@dataclass(frozen=True)
class Checkpoint:
    """A model's files on disk; `note` is what must be said wherever its answers are shown.

    `adapter`: what was merged into it; `base`: the model that it was tuned from, by the name that MODEL_ID would give it, where known.
    """

    id: str
    folder: Path
    revision: str | None = None
    note: str | None = None
    adapter: str | None = None
    base: str | None = None


def at_hand(name: str, settings: Settings) -> Checkpoint | None:
    """The checkpoint that `name` means, if nothing need be fetched or written; raises InferenceError where it can't be one.

    Its entry of our cache, there or to come, is this process's in use from now on.
    """
    if name.startswith("shape:"):
        return _shape(name, settings)
    path = Path(name).expanduser()
    if path.is_dir():
        if entry := cache.of(settings).holding(path):
            entry.use()
        return local(name, path)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise InferenceError(f"There is no folder {name}. Set MODEL_ID to an existing folder or to a Hub id such as {DEFAULT_MODEL}.")
    return _default(settings) if name == DEFAULT_MODEL else None


def local(name: str, folder: Path) -> Checkpoint:
    """A folder with a whole model; raises InferenceError for an adapter or where something is missing."""
    if (folder / "adapter_config.json").exists():
        raise InferenceError(
            f"{name} holds an adapter, not a whole model. Merge it into its base model (peft: merge_and_unload) and point MODEL_ID at the merged folder."
        )
    if not (folder / "config.json").exists():
        raise InferenceError(f"{name} has no config.json, so it is no model folder. Point MODEL_ID at the folder that save_pretrained wrote.")
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("pytorch_model*.bin")):
        raise InferenceError(f"{name} has a config.json but no weights (*.safetensors). Copy the weights there, or point MODEL_ID at a complete folder.")
    note = None
    if (folder / shapes.MARK).exists():
        note = json.loads((folder / shapes.MARK).read_text())["note"]
    return Checkpoint(name, folder, None, note)


def _default(settings: Settings) -> Checkpoint | None:
    if folder := on_disk(DEFAULT_MODEL):
        return Checkpoint(DEFAULT_MODEL, folder, folder.name)
    entry = default_model.entry(cache.of(settings))
    entry.use()  # before it is looked at: what is found must still be there when it is read
    if default_model.state(entry.path) is not State.WHOLE:
        return None
    return Checkpoint(DEFAULT_MODEL, entry.path, default_model.REVISION, default_model.NOTE)


def _shape(name: str, settings: Settings) -> Checkpoint | None:
    entry = shapes.entry(name.removeprefix("shape:"), cache.of(settings))
    entry.use()
    if shapes.state(entry.path) is not State.WHOLE:
        return None
    return Checkpoint(name, entry.path, None, local(name, entry.path).note)
