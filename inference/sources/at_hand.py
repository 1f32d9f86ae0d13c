"""A model's name -> its folder, where that can be said without fetching anything: local folders, and what the caches hold whole.

In: a name, settings. Out: a checkpoint, None (it must be fetched or made: `checkpoints.py`), or a sentence. Standard library only, so
that a lane's process can ask before its heavy imports.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from inference.cache import cache, made
from inference.cache.made import Made
from inference.cache.manifest import State
from inference.errors import InferenceError
from inference.gguf import convert
from inference.settings import DEFAULT_MODEL, SMALL_MODEL, Settings
from inference.sources import adapter, default_model, files, shapes
from inference.sources.adapter import Adapter
from inference.sources.hub_cache import lacking, on_disk
from inference.sources.pickles import pickled, pickles_refused

CONVERTED_FORMAT = 3  # of what `gguf` and `pickles.py` write
COMMIT = re.compile(r"[0-9a-f]{40}")
WITHOUT = "A model of the Hub is named without what stands around it: set MODEL_ID to"
USUAL = f"Set MODEL_ID to an existing one or to a Hub id such as {SMALL_MODEL}."
# of a model's page, or of one of its files; with what stands around a name elsewhere, or with a slash too many
ADDRESS = re.compile(
    r"(?:(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/|hf://(?:models/)?)?(?P<id>\w[\w.-]*/\w[\w.-]*?)(?:\.git)?"
    r"(?::(?P<tag>[\w.-]+))?(?:@(?P<at>[^/?#]+))?(?:/(?:tree|blob|resolve|commit)/(?P<revision>[^/?#]+))?(?P<inside>/[^?#]*?)?/*(?:[?#].*)?"
)
NO_MODELS = re.compile(r"(.*(huggingface|hf)\.co/)?(spaces|datasets|models|docs|collections)/.*|[./~].*")


@dataclass(frozen=True)
class Checkpoint:
    """A model's files on disk; `note` is what must be said wherever its answers are shown.

    `adapter`: what was merged into it; `base`: the model that it was tuned from, by the name that MODEL_ID would give it, where known;
    `own_tokenizer`: whether the adapter brought one.
    """

    id: str
    folder: Path
    revision: str | None = None
    note: str | None = None
    adapter: str | None = None
    base: str | None = None
    own_tokenizer: bool = False

    @property
    def name(self) -> str:
        """What MODEL_ID must say to mean this and no later revision."""
        return f"{self.id}@{self.revision}" if self.revision and COMMIT.fullmatch(self.revision) else self.id


@dataclass(frozen=True)
class HubName:
    """A Hub id, one of its files if that was asked for, and the branch, tag or commit: owner/name[/file.gguf][@revision]."""

    id: str
    file: str | None
    revision: str | None

    @classmethod
    def of(cls, name: str) -> HubName:
        """What `name` says, if it is no path."""
        rest, _, revision = name.partition("@")
        owner, _, file = rest.rpartition("/") if rest.endswith(".gguf") and rest.count("/") == 2 else (rest, "", "")
        return cls(owner, file or None, revision or None)

    def at(self, folder: Path) -> Checkpoint:
        """What it means once `folder` is its snapshot."""
        return Checkpoint(f"{self.id}/{self.file}", folder / self.file, folder.name) if self.file else Checkpoint(self.id, folder, folder.name)


def at_hand(name: str, settings: Settings) -> Checkpoint | None:
    """The checkpoint that `name` means, if nothing need be fetched or written; raises InferenceError where it can't be one.

    Its entry of our cache, there or to come, is this process's in use from now on.
    """
    if name.startswith("shape:"):
        return _shape(name, settings)
    if path := place_of(name):
        if entry := cache.of(settings).holding(path):
            entry.use()
        files.check_there(path, name)
        return whole(Checkpoint(name, path), settings)
    hub = HubName.of(name)
    if name.startswith(("/", ".", "~")) or hub.id.count("/") > 1:
        raise InferenceError(f"There is no folder or file {name}. {_meant(name)}")
    if name in default_model.NOTES:
        return _small(name, settings)
    pinned = hub.revision and COMMIT.fullmatch(hub.revision)  # a branch may have moved: the Hub is asked
    return on_hub(hub, settings) if pinned else None


def _meant(name: str) -> str:
    """What MODEL_ID must say to mean the model of an address, or one in a folder of its repository."""
    found = None if NO_MODELS.fullmatch(name) else ADDRESS.fullmatch(name)
    if found is None:
        return USUAL
    model, revision = found["id"], found["revision"] or found["at"]
    at = f"@{unquote(revision)}" if revision and revision != "main" else ""
    inside = "" if name.startswith("http") and not revision else (found["inside"] or "").strip("/")
    folder, _, file = inside.rpartition("/")
    one = file.endswith(".gguf")
    place = inside if one or "." not in file[1:] else folder  # another file's name stands for its folder
    if found["tag"]:
        return f"{WITHOUT} {model}/FILE.gguf, with the whole name of one of its files."
    if not place or (one and not folder):
        return f"{WITHOUT} {model}{'/' + file if one else ''}{at}."
    fetch = f"hf download {model}{f' --revision {at[1:]}' if at else ''} --include '{place if one else f'{place}/*'}' --local-dir FOLDER"
    return f"{USUAL} What is in a folder of the Hub's {model} must be fetched first ({fetch}): then set MODEL_ID to FOLDER/{place}."


def place_of(name: str) -> Path | None:
    """The file or folder that `name` means; None for a Hub id: the default model's adapter is ours."""
    return default_model.MENU if name == DEFAULT_MODEL else files.at(name)


def on_hub(hub: HubName, settings: Settings) -> Checkpoint | None:
    """The checkpoint in the Hub's own cache, if it is whole there and nothing need be made of it."""
    folder = on_disk(hub.id, hub.revision, hub.file)
    return whole(hub.at(folder), settings) if folder and (hub.file or not lacking(folder)) else None


def whole(found: Checkpoint, settings: Settings) -> Checkpoint | None:
    """The checkpoint in a folder or file; None for one that is still to be merged or converted. Raises InferenceError where it can't be one."""
    if adapter.is_adapter(found.folder):
        tuned = adapter_in(found, settings)
        base = base_at_hand(tuned, settings)
        if base is None:
            return None
        place = merged(tuned, base, settings)
        place.entry.use()
        return of_merged(tuned, base, place) if place.state is State.WHOLE else None
    if found.folder.is_file():
        convert.check(found.id, found.folder)
    elif not pickled(found.folder):
        return local(found, settings)
    elif not settings.allow_pickle:
        raise pickles_refused(found.id)
    place = converted(found, settings)
    place.entry.use()
    return of_converted(found, place, settings) if place.state is State.WHOLE else None


def converted(found: Checkpoint, settings: Settings) -> Made:
    """Where a checkpoint of another format is kept as safetensors, there or not."""
    key = [CONVERTED_FORMAT, files.identity(found.folder)]
    return made.place(cache.of(settings), "converted", found.id, [str(found.folder.resolve())], key)


def of_converted(found: Checkpoint, place: Made, settings: Settings) -> Checkpoint:
    """The converted checkpoint, which is there."""
    there = local(replace(found, folder=place.entry.path), settings)
    return replace(there, note=place.note)


def adapter_in(found: Checkpoint, settings: Settings) -> Adapter:
    """The adapter in a folder; raises InferenceError where it can't be merged."""
    base = default_model.PACKAGED if found.id == DEFAULT_MODEL else settings.base_model_id
    return adapter.read(found.id, found.folder, found.revision, base)


def base_at_hand(tuned: Adapter, settings: Settings) -> Checkpoint | None:
    """The base of an adapter, if it need not be fetched: one that the Hub's cache holds is taken as it is, it doesn't change with time."""
    path = files.at(tuned.base)
    if path and adapter.is_adapter(path):
        adapter.check_base(tuned, path)
    try:
        base = at_hand(tuned.base, settings) or (None if path else on_hub(HubName.of(tuned.base), settings))
    except InferenceError as error:
        raise adapter.no_base(tuned, error) from error
    if base:
        adapter.check_base(tuned, base.folder)
    return base


def merged(tuned: Adapter, base: Checkpoint, settings: Settings) -> Made:
    """Where an adapter merged into its base is kept, there or not."""
    return adapter.merged(tuned, base.folder, base.revision, cache.of(settings))


def of_merged(tuned: Adapter, base: Checkpoint, place: Made) -> Checkpoint:
    """The merged checkpoint, which is there."""
    note = "; ".join(filter(None, [place.note, base.note]))
    own_tokenizer = any((tuned.folder / name).exists() for name in files.TOKENIZERS)
    return Checkpoint(tuned.id, place.entry.path, tuned.revision, note, tuned.what, base.name, own_tokenizer)


def local(found: Checkpoint, settings: Settings) -> Checkpoint:
    """A folder with a whole model; raises InferenceError where something is missing."""
    name, folder = found.id, found.folder
    if not (folder / "config.json").exists():
        for file, what in ((adapter.CONFIG, "adapters"), ("config.json", "models")):
            if inner := sorted((path.parent.name for path in folder.glob(f"*/{file}")), key=files.by_number):
                raise InferenceError(
                    f"{name} holds {what} in folders of their own ({', '.join(inner[-5:])}). Point MODEL_ID at one: {name.rstrip('/')}/{inner[-1]}."
                )
        raise InferenceError(f"{name} has no config.json, so it is no model folder. Point MODEL_ID at the folder that save_pretrained wrote.")
    if not files.weights_files(folder):
        raise InferenceError(f"{name} has a config.json but no weights (*.safetensors). Copy the weights there, or point MODEL_ID at a complete folder.")
    note = None
    if (folder / shapes.MARK).exists():
        note = files.json_object(folder / shapes.MARK, name).get("note")
    base = settings.base_model_id
    return replace(found, note=note, base=base if base not in {"", found.id, found.name} else None)


def _small(name: str, settings: Settings) -> Checkpoint | None:
    if name == SMALL_MODEL and (folder := on_disk(name)) and not lacking(folder):
        return Checkpoint(name, folder, folder.name)
    entry = default_model.entry(cache.of(settings))
    entry.use()  # before it is looked at: what is found must still be there when it is read
    if default_model.state(entry.path) is not State.WHOLE:
        return None
    return Checkpoint(name, entry.path, default_model.REVISION, default_model.NOTES[name])


def _shape(name: str, settings: Settings) -> Checkpoint | None:
    entry = shapes.entry(name.removeprefix("shape:"), cache.of(settings))
    entry.use()
    if shapes.state(entry.path) is not State.WHOLE:
        return None
    return local(Checkpoint(name, entry.path), settings)
