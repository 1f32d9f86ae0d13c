"""A 4-bit copy of a checkpoint, saved after the first quantization and read from then on: less to read, nothing to quantize.

One copy per model and lane in our cache, keyed by the files, the quantization settings and the library versions;
written beside and moved into place, so a half-written one is never seen; a damaged one is thrown away.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import PreTrainedModel

from inference.errors import InferenceError
from inference.models.checkpoints import Checkpoint

log = logging.getLogger(__name__)
KEY_FILE = "copy-of.json"


def key_of(checkpoint: Checkpoint, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a copy depends on: the checkpoint's files, how they are quantized, and with which libraries."""
    files = sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in checkpoint.folder.glob("*.safetensors"))
    quantization = arguments["quantization_config"].to_dict()
    versions = {name: importlib.metadata.version(name) for name in ("transformers", "bitsandbytes")}
    return json.loads(json.dumps([checkpoint.revision, files, quantization, versions], default=str))


def place_of(checkpoint: Checkpoint, cache: Path) -> Path:
    """The folder of this checkpoint's copy, there or not."""
    name = hashlib.sha256(str(checkpoint.folder.resolve()).encode()).hexdigest()[:16]
    return cache / "quantized" / name


def usable(place: Path, key: Any) -> bool:
    """Whether the copy at `place` is there and was made of the same things."""
    try:
        return bool(json.loads((place / KEY_FILE).read_text()) == key)
    except (OSError, ValueError):
        return False


def discard(place: Path) -> None:
    """Throw a copy away."""
    shutil.rmtree(place, ignore_errors=True)


def save_beside(model: PreTrainedModel, place: Path, key: Any) -> threading.Thread:
    """Write the copy in a thread; a failure costs the next start its time and nothing else."""
    thread = threading.Thread(target=_save, args=(model, place, key), name="quantized-copy", daemon=True)
    thread.start()
    return thread


def _save(model: PreTrainedModel, place: Path, key: Any) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".copy-") as temporary:
            out = Path(temporary) / "copy"
            model.save_pretrained(out)
            (out / KEY_FILE).write_text(json.dumps(key))
            discard(place)
            os.replace(out, place)
    except (OSError, RuntimeError, ValueError) as error:
        log.warning("no 4-bit copy was saved: %s", error)


def load_through(checkpoint: Checkpoint, arguments: dict[str, Any], cache: Path, load: Callable[[Checkpoint], PreTrainedModel]) -> PreTrainedModel:
    """The model by `load`: from its 4-bit copy where there is a good one, else from the checkpoint, and then a copy is saved beside."""
    key, place = key_of(checkpoint, arguments), place_of(checkpoint, cache)
    if usable(place, key):
        try:
            return load(replace(checkpoint, folder=place))
        except (InferenceError, SafetensorError, RuntimeError) as error:
            log.warning("the 4-bit copy is damaged and is made anew: %s", error)
            discard(place)
    model = load(checkpoint)
    save_beside(model, place, key)
    return model
