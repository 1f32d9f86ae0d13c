"""What loads on this machine came to, a small file for each model and lane in our cache: `doctor` sets it beside what it predicts."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from inference.errors import InferenceError
from inference.events import LaneFacts, LoadFigures
from inference.settings import Settings
from inference.sources import files

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measured:
    """Bytes at rest and at most while loading, as a load's figures have them, and the day."""

    weights_bytes: int | None
    peak_bytes: int | None
    day: str


def note(settings: Settings, folder: Path, lane: str, facts: LaneFacts, figures: LoadFigures) -> None:
    """Keep what the load of the checkpoint in `folder` came to; where that can't be written the log says so."""
    peak = figures.peak_vram.reserved if figures.peak_vram else figures.peak_ram_bytes
    file = _file(settings, folder, lane)
    unfinished = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(exist_ok=True)
        unfinished.write_text(json.dumps(asdict(Measured(facts.weights_bytes, peak, time.strftime("%Y-%m-%d")))))
        unfinished.replace(file)
    except OSError as error:
        log.warning("what this load came to is not noted: %s", error)
        with contextlib.suppress(OSError):
            unfinished.unlink()


def read(settings: Settings, folder: Path, lane: str) -> Measured | None:
    """What the last load of the checkpoint in `folder` on `lane` came to, if there was one."""
    try:
        return Measured(**json.loads(_file(settings, folder, lane).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _file(settings: Settings, folder: Path, lane: str) -> Path:
    name = hashlib.sha256(f"{folder.resolve()} {lane} {_weights(folder)}".encode()).hexdigest()[:20]
    return settings.cache_path() / "measured" / f"{name}.json"


def _weights(folder: Path) -> list[tuple[str, int]]:
    """Name and bytes of each file of weights: another model in the same folder has loads of its own."""
    try:
        return [(file.name, file.stat().st_size) for file in files.weights_files(folder)]
    except (OSError, InferenceError):  # gone or changed since it was read
        return []
