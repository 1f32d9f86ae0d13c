"""A Hub id -> a folder with its files, downloaded. In: a name, a revision. Out: a snapshot in the Hub's own cache, or the sentence why not."""

from __future__ import annotations

import logging
from pathlib import Path

from huggingface_hub import errors as hub_errors
from huggingface_hub import snapshot_download
from huggingface_hub.utils import tqdm as hub_tqdm

from inference.cache import disk
from inference.errors import InferenceError
from inference.events import Loading, Report
from inference.sources.hub_cache import hub_cache

log = logging.getLogger(__name__)
WANTED = ["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors"]
UNWANTED = ["*/*", "consolidated*", "*.gguf"]


def fetch(name: str, revision: str | None, report: Report) -> Path:
    """The folder of the snapshot of `name` at `revision` (None: the newest), whose name is its commit; raises InferenceError in plain words."""
    report(Loading("asking the Hub for the model"))
    needed = 0
    try:
        needed = _download_bytes(name, revision)
        disk.check_room(hub_cache(), needed, name)
        return Path(
            snapshot_download(name, revision=revision, allow_patterns=WANTED, ignore_patterns=UNWANTED, tqdm_class=_progress_to(report), etag_timeout=5)
        )
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
        if disk.is_full(error):
            raise disk.full(hub_cache(), needed, name) from None
        raise InferenceError(f"The download of {name} broke off ({type(error).__name__}). What has arrived is kept; ask again to go on.") from None


def _download_bytes(name: str, revision: str | None) -> int:
    """What a download of `name` will add to the Hub's cache; 0 where the Hub can't be asked, which the download itself then tells."""
    try:
        planned = snapshot_download(name, revision=revision, allow_patterns=WANTED, ignore_patterns=UNWANTED, etag_timeout=5, dry_run=True)
    except hub_errors.DryRunError:
        return 0
    return sum(file.file_size or 0 for file in planned if file.will_download)


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
