"""A 4-bit copy of a checkpoint, written after the first quantization and read from then on: less to read, nothing to quantize.

One copy per model, device and quantization in our cache, keyed by all it was made of. It is written a piece at a time, by whoever
calls `Writer.step` while nothing is asked, beside its place and moved there whole. A copy that can't be read just now is a good copy.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import re
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel

from inference.cache import manifest
from inference.cache.cache import Cache, Entry
from inference.cache.manifest import State
from inference.errors import InferenceError
from inference.events import Loading
from inference.host.machine import RamWatch
from inference.sources.at_hand import Checkpoint
from inference.sources.files import stamp, weights_files

log = logging.getLogger(__name__)
Load = Callable[[Checkpoint], PreTrainedModel]
PART_BYTES = 160 * 2**20
VERSIONS = ("torch", "transformers", "bitsandbytes", "accelerate", "safetensors")
IDLE_S = 3.0  # so long nothing was asked before a piece is begun: one takes up to seconds, which a prompt would wait for
AWAY_S = 0.3  # who asks at least so often whether to go on has done nothing else meanwhile
LAYER = re.compile(r".*?\.\d+\.")


def key_of(checkpoint: Checkpoint, arguments: dict[str, Any]) -> Any:
    """What a copy depends on: the files that shape the model, how it is quantized, and with which libraries."""
    weights = [(path.name, *stamp(path)) for path in weights_files(checkpoint.folder)]
    texts = [(path.name, manifest.digest(path)) for path in sorted(checkpoint.folder.glob("*.json")) if path.stat().st_size <= manifest.SMALL_BYTES]
    versions = {name: importlib.metadata.version(name) for name in VERSIONS}
    return json.loads(json.dumps([checkpoint.revision, weights, texts, _quantization(arguments), versions], default=str))


def entry_of(checkpoint: Checkpoint, arguments: dict[str, Any], cache: Cache) -> Entry:
    """The place of this checkpoint's copy for this device and quantization, there or not."""
    parts = [str(checkpoint.folder.resolve()), _quantization(arguments), arguments["device_map"]]
    name = re.sub(r"[^\w.-]+", "-", checkpoint.id.rstrip("/").rpartition("/")[2])[:48]
    return cache.entry("quantized", f"{name}-{hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:12]}")


def _quantization(arguments: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = arguments["quantization_config"].to_dict()
    return settings


def load_through(
    checkpoint: Checkpoint, arguments: dict[str, Any], cache: Cache, load: Load, report: Callable[[Loading], None]
) -> tuple[PreTrainedModel, Writer | None]:
    """(model, None) by `load` from its 4-bit copy where there is a good one, else (model, writer of the copy) from the checkpoint."""
    entry, key = entry_of(checkpoint, arguments, cache), key_of(checkpoint, arguments)
    entry.use()
    state = manifest.state(entry.path, key)
    if state is State.WHOLE:
        try:
            return load(replace(checkpoint, folder=entry.path)), None
        except (InferenceError, SafetensorError, RuntimeError, OSError, MemoryError) as error:
            if manifest.not_the_files(error):
                raise
            log.warning("the 4-bit copy %s can't be read: %s", entry.path, error)
            lacks_weights = isinstance(error, InferenceError) and error.__cause__ is None
            if lacks_weights or manifest.damaged(entry.path):
                state = State.DAMAGED
        if state is State.WHOLE:  # what failed may pass; the copy is kept
            return load(checkpoint), None
    if state is State.DAMAGED:
        log.warning("the 4-bit copy %s is damaged and is made anew", entry.path)
        report(Loading("the 4-bit copy in the cache is damaged: quantizing anew"))
        if lock := entry.try_lock():  # else another lane is making it anew already
            with lock:
                entry.discard()
    return (model := load(checkpoint)), Writer(model, entry, key, cache)


class Writer:
    """Writes the copy of a loaded model; a fault costs the next start its time and nothing else."""

    def __init__(self, model: PreTrainedModel, entry: Entry, key: Any, cache: Cache) -> None:
        self._entry, self._cache = entry, cache
        self._pieces = _write(model, entry, key)
        self._idle_since = self._asked_at = time.monotonic()

    def step(self) -> bool:
        """Write the next piece (some 160 MB, or one tensor that is larger) once nothing else was done for `IDLE_S`; whether there is more to do.

        Call it several times a second while nothing is asked: a gap tells of a run. Raises RuntimeError where the device is past use.
        """
        now = time.monotonic()
        if now - self._asked_at > AWAY_S:
            self._idle_since = now
        more = now - self._idle_since < IDLE_S or self._piece()
        self._asked_at = time.monotonic()
        return more

    def _piece(self) -> bool:
        try:
            with RamWatch.left_out():
                next(self._pieces)
            self._idle_since = time.monotonic()
            return True
        except StopIteration:
            self._cache.shrink()
        except (InferenceError, SafetensorError, OSError, RuntimeError, ValueError) as error:
            log.warning("no 4-bit copy was saved: %s", error)
            if isinstance(error, RuntimeError) and "cuda" in str(error).lower() and not manifest.not_the_files(error):
                raise  # it may be past use, which is for the lane's process to find out
        return False

    def close(self) -> None:
        """Write no more and leave nothing behind."""
        self._pieces.close()


def _write(model: PreTrainedModel, entry: Entry, key: Any) -> Generator[None]:
    with ExitStack() as held:
        lock = entry.try_lock()
        if lock is None:
            log.info("another lane is writing the 4-bit copy")
            return
        held.enter_context(lock)
        if manifest.state(entry.path, key) is State.WHOLE:
            return
        parts = _parts(model)
        folder = held.enter_context(entry.building(sum(map(_bytes, parts))))
        out, digests, weight_map = folder / "copy", dict[str, str](), dict[str, str]()
        out.mkdir()
        for number, part in enumerate(parts, 1):
            yield
            file = out / f"model-{number:05}-of-{len(parts):05}.safetensors"
            _save(model, part, folder / "part", file)
            digests[file.name] = manifest.digest(file)
            with safe_open(file, "pt") as tensors:
                weight_map |= dict.fromkeys(tensors.keys(), file.name)
        yield
        for path in (folder / "part").glob("*.json"):
            path.replace(out / path.name)
        (out / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        manifest.seal(out, key, digests)
        entry.put(out)


def _parts(model: PreTrainedModel) -> list[dict[str, torch.Tensor]]:
    """The state dict in parts of some `PART_BYTES`: a layer whole, and parameters that share their values in one part."""
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    groups: dict[str, dict[str, torch.Tensor]] = {}
    group_of: dict[int, str] = {}
    for name, tensor in model.state_dict().items():
        layer = LAYER.match(name)
        group = layer[0] if layer else name
        if name in parameters:
            group = group_of.setdefault(tensor.data_ptr(), group)
        groups.setdefault(group, {})[name] = tensor
    parts: list[dict[str, torch.Tensor]] = [{}]
    for tensors in groups.values():
        if parts[-1] and _bytes(parts[-1]) + _bytes(tensors) > PART_BYTES:
            parts.append({})
        parts[-1] |= tensors
    return parts


def _bytes(tensors: dict[str, torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def _save(model: PreTrainedModel, part: dict[str, torch.Tensor], folder: Path, file: Path) -> None:
    """Save some tensors of the model's state dict as transformers would, its configuration beside them in `folder`."""
    quantizer = model.hf_quantizer
    model.hf_quantizer = None  # with one, save_pretrained saves the whole model whatever it is given
    transformers.logging.disable_progress_bar()
    try:
        model.save_pretrained(folder, state_dict=part, max_shard_size="1TB")
    finally:
        transformers.logging.enable_progress_bar()
        model.hf_quantizer = quantizer
    (folder / "model.safetensors").replace(file)
