"""What the Hub's own cache holds: where it is, and whether a model is whole there. In: a Hub id, a revision. Out: a folder, or None.

Asks no network. Standard library only, so that a lane's process can ask before its heavy imports.
"""

from __future__ import annotations

import os
from pathlib import Path

from inference.errors import InferenceError
from inference.sources.files import ADAPTER, TOKENIZERS, weights_files


def on_disk(name: str, revision: str | None = None, file: str | None = None) -> Path | None:
    """The snapshot of `name` that is there with its configuration, a tokenizer and all its weights, or as a whole adapter; its folder's name is its commit.

    With `file` that one is enough.
    """
    repository = hub_cache() / f"models--{name.replace('/', '--')}"
    try:
        folder = repository / "snapshots" / _commit(repository, revision or "main")
        whole = (folder / file).exists() if file else _whole_adapter(folder) or _whole_model(folder)
    except (OSError, ValueError, InferenceError):
        return None
    return folder if whole else None


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
            return Path(os.path.expandvars(os.environ[variable])).expanduser()
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.path.expandvars(home)).expanduser() / "hub"
