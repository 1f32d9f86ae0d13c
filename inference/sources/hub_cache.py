"""The Hub's own cache: where it is, whether a model is whole there, what may be written. In: a Hub id, a revision. Out: a folder, or None.

Asks no network. Standard library only, so that a lane's process can ask before its heavy imports.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from pathlib import Path

from inference.errors import InferenceError, Refused
from inference.sources.files import ADAPTER, TOKENIZERS, beside_weights, weights_files

LEFT_OVER_S = 3600.0  # a download that lives has written to its file since
PIECES = "*.incomplete"  # what a download that goes on has written so far


def on_disk(name: str, revision: str | None = None, file: str | None = None) -> Path | None:
    """The snapshot of `name` that is there with its configuration, a tokenizer and all its weights, or as a whole adapter; its folder's name is its commit.

    With `file` that one is enough.
    """
    repository = repository_of(name)
    try:
        folder = repository / "snapshots" / _commit(repository, revision or "main")
        whole = (folder / file).exists() if file else _whole_adapter(folder) or _whole_model(folder)
    except (OSError, ValueError, InferenceError):
        return None
    return folder if whole else None


def lacking(folder: Path) -> list[str]:
    """Of the files that a snapshot's list names, where the library kept one: the small ones that are not there, since whoever fetched it took others or
    was interrupted, and those that are cut."""
    try:
        listed = json.loads((folder.parent.parent / "trees" / f"{folder.name}.json").read_text())["files"]
        sizes = {name: int(of["size"]) for name, of in listed.items() if "/" not in name}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    there = {name: _bytes_of(folder / name) for name in sizes}
    return sorted({name for name in beside_weights(sizes) if there[name] is None} | {name for name, size in sizes.items() if there[name] not in (None, size)})


def is_here(name: str, commit: str, file: str, blob: str | None, size: int) -> bool:
    """Whether a file of a commit, or its content under the name of another commit's, is here and as long as it must be (0: as the Hub does not say)."""
    found = [_bytes_of(place) for place in _places(name, commit, file, blob)]
    return any(there is not None and size in (0, there) for there in found)


def drop_cut(name: str, commit: str, file: str, blob: str | None, size: int) -> None:
    """Remove what is here of a file and shorter or longer than it must be, as a crash leaves it: the library takes whatever is there for the file."""
    for place in _places(name, commit, file, blob):
        if size and _bytes_of(place) not in (None, size):
            with contextlib.suppress(OSError):
                place.unlink()


def _places(name: str, commit: str, file: str, blob: str | None) -> list[Path]:
    repository = repository_of(name)
    return [repository / "snapshots" / commit / file, *([repository / "blobs" / blob] if blob else [])]


def _bytes_of(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


def note_ref(name: str, revision: str, commit: str) -> None:
    """Note for later what a branch or tag stood for, as the library does: it is fetched by its commit, so that no other one comes."""
    ref = repository_of(name) / "refs" / revision
    if revision == commit or ".." in ref.parts:
        return
    with contextlib.suppress(OSError):  # of a cache that can be read only
        if ref.exists() and ref.read_text() == commit:
            return
        ref.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=ref.parent, prefix=f"{ref.name}.", suffix=".tmp", delete=False) as new:
            new.write(commit)
        os.replace(new.name, ref)


def pieces_bytes(name: str) -> int:
    """What downloads of `name` that go on, in whichever program, have written so far."""
    total = 0
    for file in (repository_of(name) / "blobs").glob(PIECES):
        with contextlib.suppress(OSError):
            total += file.stat().st_size
    return total


def sweep(name: str) -> None:
    """Remove what downloads of `name` that were killed have left: the library begins them anew."""
    for file in (repository_of(name) / "blobs").glob(PIECES):
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > LEFT_OVER_S:
                file.unlink()


def check_writable() -> None:
    """Raise Refused where nothing can be written to the Hub's cache."""
    folder = hub_cache()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise unwritable(error) from error


def unwritable(error: OSError) -> Refused:
    """The sentence for a place in the Hub's cache that can't be written."""
    where = f"{hub_cache()}, where downloads from the Hub go, can't be written"
    return Refused(f"{where} ({error.strerror}: {error.filename}). Set HF_HUB_CACHE or HF_HOME to a folder that can.")


def repository_of(name: str) -> Path:
    """The folder of a model in the Hub's cache."""
    return hub_cache() / f"models--{name.replace('/', '--')}"


def _whole_adapter(folder: Path) -> bool:
    return all((folder / file).exists() for file in ADAPTER)


def _whole_model(folder: Path) -> bool:
    files = weights_files(folder)
    tokenizer = any((folder / file).exists() for file in TOKENIZERS)
    return (folder / "config.json").exists() and tokenizer and bool(files) and all(file.exists() for file in files)


def _commit(repository: Path, revision: str) -> str:
    """What a branch, a tag or a commit stands for: the Hub's cache notes the first two under refs."""
    if (repository / "snapshots" / revision).is_dir():
        return revision
    return (repository / "refs" / revision).read_text().strip()


def hub_cache() -> Path:
    """Where huggingface_hub keeps its downloads, by its own rules."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.path.expanduser(os.path.expandvars(os.environ[variable])))
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.path.expanduser(os.path.expandvars(home))) / "hub"  # which leaves ~ as it is for whom the system knows no home of
