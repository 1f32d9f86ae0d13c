"""A Hub id -> what is there, its small files and tensors without a download, and a folder with just the files that are read.

In: a name, a revision. Out: a snapshot in the Hub's own cache, or the sentence why not (`hub_faults.py`). Every request has a time-out,
and what brings nothing for `SILENT_S` is given up: a Hub that accepts and is silent holds nobody up.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import HfApi, constants, get_session, hf_hub_url, hf_raise_for_status, set_client_factory, snapshot_download
from huggingface_hub.errors import SafetensorsParsingError
from huggingface_hub.utils import build_hf_headers
from huggingface_hub.utils import tqdm as hub_tqdm

from inference.cache import disk
from inference.errors import InferenceError, Refused
from inference.events import Loading, Report
from inference.sources import formats, hub_faults
from inference.sources.files import ADAPTER, SINGLE_OR_INDEX, Kind, beside_weights, indexed, kind_of
from inference.sources.headers import Stored
from inference.sources.hub_cache import hub_cache, on_disk

log = logging.getLogger(__name__)
Result = TypeVar("Result")
SILENT_S = 120.0  # the library hands on 10 MB at a time: at less than 87 kB/s a download counts as silent
SMALL_BYTES = 2**20  # what is read to judge a model: configurations and templates, not a vocabulary
NO_TENSORS = (2).to_bytes(8, "little") + b"{}"  # a safetensors file
LEFT_OVER_S = 3600.0  # a download that lives has written to its file since


@dataclass(frozen=True)
class Remote:
    """A file on the Hub; `blob` is its name in the Hub's cache."""

    bytes: int
    blob: str | None


@dataclass(frozen=True)
class Listing:
    """A model's files on the Hub at one commit, those in its top folder."""

    name: str
    commit: str
    files: dict[str, Remote]


def listing(name: str, revision: str | None) -> Listing:
    """What the Hub has of `name`; one request, not repeated. Raises InferenceError in plain words."""
    with _faults_told(name, revision):
        _with_time_outs()
        found = HfApi().model_info(name, revision=revision, files_metadata=True, timeout=_time_out())
        siblings = [file for file in found.siblings or () if "/" not in file.rfilename]
        files = {file.rfilename: Remote(file.size or 0, file.lfs.sha256 if file.lfs else file.blob_id) for file in siblings}
        if not found.sha:
            raise ValueError("the Hub named no commit")
        return Listing(name, found.sha, files)


def read(found: Listing, file: str) -> bytes:
    """A small file's content, kept nowhere. Raises InferenceError in plain words, also where the model is locked."""
    with _faults_told(found.name, None):
        url = hf_hub_url(found.name, file, revision=found.commit)
        response = get_session().get(url, headers=build_hf_headers(), timeout=_time_out())
        hf_raise_for_status(response)
        return bytes(response.content)


def weights(found: Listing) -> list[str]:
    """The files that hold the weights of a whole model or an adapter; raises Refused where some of them are not there."""
    if kind_of(found.files) is Kind.ADAPTER:
        return [ADAPTER[1]]
    chosen = _single_or_index(found)
    if not chosen.endswith(".json"):
        return [chosen]
    try:
        named = indexed(read(found, chosen))
    except ValueError as error:
        raise Refused(f"{found.name}: {chosen} is {error}. Ask its authors to upload it again, or set MODEL_ID to another model.") from None
    if missing := [file for file in named if file not in found.files]:
        raise Refused(f"{found.name} lacks {missing[0]}, which its {chosen} names. Ask its authors to upload it, or set MODEL_ID to another model.")
    return named


def tensors(found: Listing, files: list[str]) -> dict[str, Stored]:
    """Every tensor in these safetensors files by name, read off their first bytes."""
    stored: dict[str, Stored] = {}
    with _faults_told(found.name, None):
        for file in files:
            try:
                header = HfApi().parse_safetensors_file_metadata(found.name, file, revision=found.commit, timeout=_time_out())
            except SafetensorsParsingError:
                raise Refused(f"{found.name}: {file} is no safetensors file. Ask its authors to upload it again, or set MODEL_ID to another model.") from None
            stored |= {name: Stored(tuple(tensor.shape), tensor.dtype) for name, tensor in header.tensors.items()}
    return stored


def fetch(name: str, revision: str | None, report: Report, file: str | None = None, pickles: bool = False) -> Path:
    """The folder of the snapshot of `name` at `revision` (None: the newest), whose name is its commit; raises InferenceError in plain words.

    `file`: that one alone; `pickles`: weights that are there as pickle only are fetched too.
    Where the Hub can't be asked, a whole snapshot that is here already is taken.
    """
    report(Loading("asking the Hub for the model"))
    watch = _Watch()
    try:
        found = watch.run(lambda: listing(name, revision))
        files = watch.run(lambda: one(found, file) if file else wanted(found, pickles))
    except InferenceError as error:
        if kept := on_disk(name, revision, file):
            log.warning("%s The copy on this machine is used.", error)
            return kept
        raise
    needed = missing_bytes(found, files)
    if needed:
        _sweep(name)
        disk.check_room(hub_cache(), needed, name)
        _check_writable()
    return watch.run(lambda: _download(found, revision, files, _progress(needed, report, watch), needed))


def one(found: Listing, file: str) -> list[str]:
    """That file alone; raises Refused where it is not there."""
    if file not in found.files:
        names = ", ".join(sorted(name for name in found.files if name.endswith(".gguf"))[:5])
        raise Refused(f"{found.name} has no file {file}, but {names or 'no GGUF file at all'}. Check MODEL_ID.")
    return [file]


def wanted(found: Listing, pickles: bool = False) -> list[str]:
    """The files that a load reads, and no others; raises InferenceError (Refused) where a load could not read them."""
    kind, names = kind_of(found.files), ", ".join(sorted(found.files)[:5])
    if kind is Kind.PICKLE and "adapter_config.json" in found.files:
        raise Refused(f"{found.name} is an adapter whose weights are a pickle (adapter_model.bin), which can run code. Save it again as {ADAPTER[1]}.")
    if kind is Kind.PICKLE and not pickles:
        raise formats.pickles_refused(found.name)
    if kind is Kind.GGUF:
        first = min(name for name in found.files if name.endswith(".gguf"))
        raise Refused(f"{found.name} holds GGUF files alone. Set MODEL_ID to one of them, such as {found.name}/{first}.")
    if kind is Kind.NOTHING or (kind is not Kind.ADAPTER and "config.json" not in found.files):
        raise Refused(f"{found.name} holds no model that can be loaded (config.json and model.safetensors), but {names or 'nothing'}. Check MODEL_ID.")
    read(found, "adapter_config.json" if kind is Kind.ADAPTER else "config.json")  # a locked model refuses its files, not its list
    chosen = [] if kind is Kind.ADAPTER else [_single_or_index(found)]
    return [*beside_weights(found.files), *sorted({*chosen, *weights(found)})]


def skim(found: Listing, folder: Path) -> None:
    """Write the model's small files into `folder`, and a stand-in without content for every other one."""
    for file, remote in found.files.items():
        small = remote.bytes <= SMALL_BYTES and file in beside_weights(found.files)
        (folder / file).write_bytes(read(found, file) if small else NO_TENSORS if file.endswith(".safetensors") else b"")


def missing_bytes(found: Listing, chosen: list[str]) -> int:
    """Of these files, what the Hub's cache does not hold yet."""
    return sum(found.files[file].bytes for file in chosen if not _is_here(found, file))


def _single_or_index(found: Listing) -> str:
    """The file that says where the weights are, as transformers chooses it."""
    return next(file for file in SINGLE_OR_INDEX if file in found.files)


def _download(found: Listing, revision: str | None, files: list[str], progress: type[hub_tqdm], needed: int) -> Path:
    exactly = [glob.escape(file) for file in files]
    try:
        folder = snapshot_download(found.name, revision=revision, allow_patterns=exactly, tqdm_class=progress, etag_timeout=_time_out())
    except hub_faults.FAULTS as error:
        log.warning("the download of %s failed\n%s", found.name, hub_faults.trace(error))
        if disk.is_full(error):
            raise disk.full(hub_cache(), needed, found.name) from None
        if isinstance(error, OSError) and error.errno in disk.UNWRITABLE:
            raise _unwritable(error) from None
        why = hub_faults.why(error)
        raise InferenceError(f"The download of {found.name} broke off ({why}). The files that came whole are kept; ask again to go on.") from None
    return Path(folder)


@contextlib.contextmanager
def _faults_told(name: str, revision: str | None) -> Iterator[None]:
    try:
        yield
    except hub_faults.FAULTS as error:
        log.warning("the Hub was asked for %s in vain\n%s", name, hub_faults.trace(error))
        raise hub_faults.told(error, name, revision) from None


class _Watch:
    """Runs work that waits for the network; gives it up, and lets it go on in its thread, where nothing moves for `SILENT_S`."""

    def __init__(self) -> None:
        self.moved()

    def moved(self) -> None:
        self._until = time.monotonic() + SILENT_S

    def run(self, work: Callable[[], Result]) -> Result:
        self.moved()
        future: Future[Result] = Future()
        threading.Thread(target=_settle, args=(future, work), name="hub", daemon=True).start()
        while not future.done():
            if (left := self._until - time.monotonic()) <= 0:
                log.warning("the Hub has sent nothing for %g s: given up", SILENT_S)
                raise InferenceError(
                    f"The Hugging Face Hub ({constants.ENDPOINT}) has sent nothing for {SILENT_S:g} s. "
                    "The files that came whole are kept; ask again to go on, or set MODEL_ID to a local folder."
                )
            wait([future], left)
        return future.result()


def _settle(future: Future[Result], work: Callable[[], Result]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
        future.set_exception(error)


def _progress(total: int, report: Report, watch: _Watch) -> type[hub_tqdm]:
    """A tqdm class that draws nothing and reports the bytes of all files as one download, which never goes back."""
    most = 0

    class Progress(hub_tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._count, self._bytes = 0, kwargs.get("unit") == "B"
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> None:
            nonlocal most
            self._count += int(n or 0)
            if self._bytes and self._count > most:
                most = self._count
                watch.moved()
                report(Loading("downloading", min(most, total), total, "bytes"))

    return Progress


@functools.cache
def _with_time_outs() -> None:
    """Give a time-out to the requests for which the library sets none."""
    default = get_session()

    def bound(request: Any) -> None:
        given = request.extensions.get("timeout", {})
        request.extensions["timeout"] = {step: given.get(step) or _time_out() for step in ("connect", "read", "write", "pool")}

    hooks = {**default.event_hooks, "request": [*default.event_hooks["request"], bound]}
    set_client_factory(lambda: type(default)(event_hooks=hooks, follow_redirects=True))


def _time_out() -> float:
    return constants.HF_HUB_ETAG_TIMEOUT


def _is_here(found: Listing, file: str) -> bool:
    repository, blob = _repository(found.name), found.files[file].blob
    return (repository / "snapshots" / found.commit / file).exists() or bool(blob and (repository / "blobs" / blob).exists())


def _repository(name: str) -> Path:
    return hub_cache() / f"models--{name.replace('/', '--')}"


def _sweep(name: str) -> None:
    """Remove what downloads that were killed have left: the library begins them anew."""
    for file in (_repository(name) / "blobs").glob("*.incomplete"):
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > LEFT_OVER_S:
                file.unlink()


def _check_writable() -> None:
    folder = hub_cache()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unwritable(error) from error


def _unwritable(error: OSError) -> Refused:
    where = f"{hub_cache()}, where downloads from the Hub go, can't be written"
    return Refused(f"{where} ({error.strerror}: {error.filename}). Set HF_HUB_CACHE or HF_HOME to a folder that can.")
