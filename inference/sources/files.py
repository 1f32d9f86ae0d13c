"""Which of a checkpoint's files are read, and by what one knows them again. In: a folder. Out: paths, an identity. Standard library only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from inference.cache import manifest

# the first of these that is there is what transformers reads; an index names its files
SINGLE_OR_INDEX = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")  # what peft writes
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")  # one of them is there once a download has ended
TEXTS = ("*.json", "*.jinja", "*.txt", "*.model")
# transformers would put an adapter that lies beside whole weights on top of them: with this keyword of from_pretrained it looks where none is
NO_ADAPTER = {"adapter_kwargs": {"subfolder": "no-adapter"}}


def weights_files(folder: Path) -> list[Path]:
    """The files that the model's weights are read from, as transformers chooses them; others beside them don't count."""
    chosen = next((folder / name for name in SINGLE_OR_INDEX if (folder / name).exists()), None)
    if chosen is None:
        return sorted(file for file in folder.glob("*.safetensors") if file.name != ADAPTER[1])
    if chosen.suffix != ".json":
        return [chosen]
    return [folder / name for name in sorted(set(json.loads(chosen.read_text())["weight_map"].values()))]


def is_whole(folder: Path) -> bool:
    """Whether a model with its own weights is there, whatever lies beside it."""
    return (folder / "config.json").exists() and bool(weights_files(folder))


def identity(folder: Path) -> list[Any]:
    """By what a checkpoint's files are known again: digests of the small ones, size and time of the rest."""
    texts = {file for pattern in TEXTS for file in folder.glob(pattern)}
    return [_known_by(file) for file in sorted({*texts, *weights_files(folder)})]


def _known_by(file: Path) -> list[Any]:
    found = file.stat()
    small = found.st_size <= manifest.SMALL_BYTES
    return [file.name, manifest.digest(file)] if small else [file.name, found.st_size, found.st_mtime_ns]
