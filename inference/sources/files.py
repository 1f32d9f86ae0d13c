"""Which of a checkpoint's files are read, what they are together, and by what one knows them again. In: a folder, or names. Standard library only."""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from inference.cache import manifest
from inference.errors import InferenceError

# the first of these that is there is what transformers reads; an index names its files
SINGLE_OR_INDEX = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")  # what peft writes
# transformers would put an adapter that lies beside whole weights on top of them: with this keyword of from_pretrained it looks where none is
NO_ADAPTER = {"adapter_kwargs": {"subfolder": "no-adapter"}}
# one of them is there once a download has ended
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model", "tekken.json")
# a link to nothing in the place of one of these would be passed over without a word, a folder would end in a trace
WATCHED = (
    "config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "tokenizer.json", "tokenizer.model",
    *SINGLE_OR_INDEX, *ADAPTER,
)  # fmt: skip
LFS_POINTER = b"version https://git-lfs"
WITH_A_MARK = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
NOWHERE = "a link to a file that is not there. Of a snapshot in the Hub's cache copy what it links to as well: cp -rL."
QUOTED = 80
PIECES, PIECE_BYTES = 256, 4096  # of a large file; 1 MiB in all
BESIDE_WEIGHTS = (".json", ".jinja", ".txt", ".model", ".tiktoken")  # configuration, tokenizer, chat template


class Kind(StrEnum):
    """What a folder's files are together, by their names."""

    MODEL = "whole model"
    ADAPTER = "adapter"
    PICKLE = "weights as pickle"
    GGUF = "GGUF"
    NOTHING = "no model"


def at(name: str) -> Path | None:
    """The file or folder that `name` is the path of; None for every other name, such as a Hub id."""
    try:
        path = Path(name).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError):  # longer than a path can be; ~ of a user who isn't there
        return None


def check_there(folder: Path, name: str) -> None:
    """Raise InferenceError, naming it, for a file of the model in `folder` that is a link to none, or a folder."""
    for file in (folder / each for each in WATCHED):
        if leads_nowhere(file):
            raise InferenceError(f"{file.name} of {name} is {NOWHERE}")
        if file.is_dir():
            raise InferenceError(
                f"{file.name} of {name} is a folder, as Docker makes where a file that it is to mount is not there. Put the file in its place."
            )


def leads_nowhere(file: Path) -> bool:
    """Whether it is a link to a file that is not there."""
    return file.is_symlink() and not file.exists()


def written_over(mapped: Mapping[Path, os.stat_result]) -> Path | None:
    """One of these files, each as it was when its pages became a model's memory, that was written to since; one that another took the place of was not."""
    for file, was in mapped.items():
        with contextlib.suppress(OSError):
            now = file.stat()
            if os.path.samestat(now, was) and (now.st_size, now.st_mtime_ns) != (was.st_size, was.st_mtime_ns):
                return file
    return None


def kind_of(names: Collection[str]) -> Kind:
    """What these files are: whole weights win over an adapter that lies beside them."""
    if not {"model.safetensors", "model.safetensors.index.json"}.isdisjoint(names):
        return Kind.MODEL
    if "adapter_config.json" in names:
        return Kind.ADAPTER if ADAPTER[1] in names else Kind.PICKLE
    if not set(SINGLE_OR_INDEX[2:]).isdisjoint(names):
        return Kind.PICKLE
    return Kind.GGUF if any(name.endswith(".gguf") for name in names) else Kind.NOTHING


def beside_weights(names: Collection[str]) -> list[str]:
    """The small files that a checkpoint is read with; no index among them, and no code."""
    return sorted(name for name in names if name.endswith(BESIDE_WEIGHTS) and not name.endswith(".index.json"))


def by_number(name: str) -> list[tuple[int, str]]:
    """A folder's name to sort by, checkpoint-1000 after checkpoint-500."""
    return [(int(part or 0), text) for text, part in re.findall(r"(\D*)(\d*)", name)]


def json_object(file: Path, name: str) -> dict[str, Any]:
    """What a JSON file of the model `name` holds; raises InferenceError, naming the file, where it is no whole object."""
    try:
        return parsed(file.read_bytes())
    except ValueError as error:
        raise InferenceError(f"{file.name} of {name} is {error}. Fetch or copy that file again.") from error


def parsed(raw: bytes) -> dict[str, Any]:
    """A JSON object; raises ValueError with what it is instead."""
    if raw.startswith(LFS_POINTER):
        raise ValueError("a Git LFS pointer, not the file itself (git lfs pull fetches it)")
    if raw.startswith(WITH_A_MARK):  # transformers passes over such a generation_config.json without a word, and can't read any other
        raise ValueError("not saved as plain UTF-8 but with a byte order mark, as some editors on Windows do (save it without one)")
    if not raw.strip():
        raise ValueError("empty")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError("cut off or damaged: no whole JSON") from None
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def quoted(value: Any) -> str:
    """A value out of a file as a sentence shows it: its first `QUOTED` characters."""
    text = str(value)
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}..."


def indexed(index: bytes) -> list[str]:
    """The files that an index of weights names, each beside it or below; raises ValueError with what it is instead."""
    places = parsed(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise ValueError("no index: its weight_map names no files")
    names = sorted(set(places.values()))
    if strange := [name for name in names if not PurePosixPath(name).name or name.startswith("/") or ".." in PurePosixPath(name).parts]:
        raise ValueError(f"no index of files in its own folder: it names {strange[0][:80]!r}")
    return names


def weights_files(folder: Path) -> list[Path]:
    """The files that the model's weights are read from, as transformers chooses them; others beside them don't count. Raises InferenceError."""
    chosen = next((folder / name for name in SINGLE_OR_INDEX if (folder / name).exists()), None)
    if chosen is None:
        return sorted(file for file in folder.glob("*.safetensors") if file.name != ADAPTER[1])
    if chosen.suffix != ".json":
        return [chosen]
    try:
        return [folder / name for name in indexed(chosen.read_bytes())]
    except ValueError as error:
        raise InferenceError(f"{chosen.name} of {folder.name} is {error}. Fetch or copy that file again.") from error


def is_whole(folder: Path) -> bool:
    """Whether a model with its own weights is there under their usual names, whatever lies beside it."""
    return (folder / "config.json").exists() and any((folder / name).exists() for name in SINGLE_OR_INDEX)


def identity(folder: Path) -> list[Any]:
    """By what a checkpoint's files, or the one file that it is, are known again: digests of the small ones, size and time of the rest."""
    if folder.is_file():
        return [_known_by(folder)]
    texts = {folder / name for name in beside_weights([file.name for file in folder.iterdir()])}
    return [_known_by(file) for file in sorted({*texts, *weights_files(folder)})]


def _known_by(file: Path) -> list[Any]:
    if file.stat().st_size <= manifest.SMALL_BYTES:
        return [file.name, manifest.digest(file)]
    return [file.name, *stamp(file)]


def stamp(file: Path) -> list[Any]:
    """By what a large file is known again without reading all of it: its size, its time, and a digest of pieces all over it.

    Its time alone is nothing to go by: copies may keep it, images of containers are made with one time for all files, and a model that was trained on is as long as before.
    """
    found = file.stat()
    taken = hashlib.sha256()
    with file.open("rb", buffering=0) as stream:
        for number in range(PIECES):
            stream.seek(number * max(0, found.st_size - PIECE_BYTES) // (PIECES - 1))
            taken.update(stream.read(PIECE_BYTES))
    return [found.st_size, found.st_mtime_ns, taken.hexdigest()]
