"""A Hub id -> what is there, its small files and tensors without a download, and a folder with just the files that are read.

In: a name, a revision. Out: a snapshot in the Hub's own cache, or the sentence why not (`hub_faults.py`). Every request has a time-out,
and what brings nothing for `SILENT_S` is given up: a Hub that accepts and is silent holds nobody up.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import HfApi, constants, get_session, hf_hub_url, hf_raise_for_status, set_client_factory, snapshot_download
from huggingface_hub.errors import SafetensorsParsingError
from huggingface_hub.hf_api import RepoSibling
from huggingface_hub.utils import build_hf_headers
from huggingface_hub.utils import tqdm as hub_tqdm

from inference.cache import disk, manifest
from inference.errors import InferenceError, Refused
from inference.events import Loading, Report
from inference.host.patience import Watch
from inference.sources import hub_cache, hub_faults
from inference.sources.files import ADAPTER, SINGLE_OR_INDEX, Kind, beside_weights, by_number, indexed, kind_of
from inference.sources.headers import Stored
from inference.sources.pickles import pickles_refused

log = logging.getLogger(__name__)
SILENT_S = 120.0  # the library hands on 10 MB at a time: at less than 87 kB/s a download counts as silent
SMALL_BYTES = 2**20  # what is read to judge a model: configurations and templates, not a vocabulary
NO_TENSORS = (2).to_bytes(8, "little") + b"{}"  # a safetensors file


@dataclass(frozen=True)
class Remote:
    """A file on the Hub; `blob` is its name in the Hub's cache, `sha256` what its content must have, where the Hub says so."""

    bytes: int
    blob: str | None
    sha256: str | None = None


@dataclass(frozen=True)
class Listing:
    """A model's files on the Hub at one commit, those in its top folder."""

    name: str
    commit: str
    files: dict[str, Remote]
    folders: tuple[str, ...] = ()  # below it, that hold a model or an adapter of their own


class Fetched(NamedTuple):
    """A snapshot's folder, whose name is its commit, and what must be said of how it was had."""

    folder: Path
    note: str | None = None


def listing(name: str, revision: str | None) -> Listing:
    """What the Hub has of `name`; one request, not repeated. Raises InferenceError in plain words."""
    with _faults_told(name, revision):
        _with_time_outs()
        found = HfApi().model_info(name, revision=revision, files_metadata=True, timeout=_time_out())
        if not found.sha:
            raise ValueError("the Hub named no commit")
        siblings = found.siblings or []
        files = {file.rfilename: _remote(file) for file in siblings if "/" not in file.rfilename}
        folders = {file.rfilename.rpartition("/")[0] for file in siblings if file.rfilename.endswith(("/config.json", "/adapter_config.json"))}
        return Listing(name, found.sha, files, tuple(sorted(folders, key=by_number)))


def _remote(file: RepoSibling) -> Remote:
    return Remote(file.size or 0, file.lfs.sha256, file.lfs.sha256) if file.lfs else Remote(file.size or 0, file.blob_id)


def read(found: Listing, file: str) -> bytes:
    """A small file's content, kept nowhere. Raises InferenceError in plain words, also where the model is locked."""
    with _faults_told(found.name, None):
        response = get_session().get(hf_hub_url(found.name, file, revision=found.commit), headers=build_hf_headers(), timeout=_time_out())
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


def fetch(name: str, revision: str | None, report: Report, file: str | None = None, pickles: bool = False) -> Fetched:
    """The snapshot of `name` at `revision` (None: the newest); raises InferenceError in plain words.

    `file`: that one alone; `pickles`: weights that are there as pickle only are fetched too.
    Where the Hub can't be asked, or gives nothing that can be loaded, a whole snapshot that is here already is taken.
    """
    report(Loading("asking the Hub for the model"))
    watch = Watch(SILENT_S, _silent)
    try:
        found = watch.run(lambda: listing(name, revision))
        files = watch.run(lambda: one(found, file) if file else wanted(found, pickles))
    except InferenceError as error:
        if not (kept := hub_cache.on_disk(name, revision, file)):
            raise
        log.warning("%s The copy on this machine is used.", error)
        why = "gave nothing that can be loaded (the log says why)" if isinstance(error, Refused) else "could not be asked"
        return Fetched(kept, _as_it_was(kept, revision, why))
    new = [file for file in files if not hub_cache.is_here(*_kept(found, file))]
    for cut in new:
        hub_cache.drop_cut(*_kept(found, cut))
    if needed := missing_bytes(found, new):
        hub_cache.sweep(name)
        disk.check_room(hub_cache.hub_cache(), needed, name)
        hub_cache.check_writable()
    on_others = functools.partial(report, Loading("another program is downloading it"))
    folder = watch.run(lambda: _download(found, files, _progress(needed, report, watch), needed), lambda: hub_cache.pieces_bytes(name), on_others)
    _check(found, folder, files, new, report)
    hub_cache.note_ref(name, revision or "main", found.commit)
    return Fetched(folder)


def _as_it_was(folder: Path, revision: str | None, why: str) -> str | None:
    """What must be said of a snapshot that was taken because of what the Hub did; nothing where the settings say not to ask it."""
    meant = revision == folder.name or constants.HF_HUB_OFFLINE
    said = [] if meant else [f"the Hub {why}: this is {revision or 'main'} as this machine last had it ({folder.name[:12]})"]
    if lacks := hub_cache.lacking(folder):
        said.append(f"its copy on this machine lacks {', '.join(lacks[:3])}")
    return "; ".join(said) or None


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
        raise pickles_refused(found.name)
    if kind is Kind.GGUF:
        first = min(name for name in found.files if name.endswith(".gguf"))
        raise Refused(f"{found.name} holds GGUF files alone. Set MODEL_ID to one of them, such as {found.name}/{first}.")
    if kind is Kind.NOTHING and found.folders:
        raise Refused(in_folders(found.name, found.folders))
    if kind is Kind.NOTHING or (kind is not Kind.ADAPTER and "config.json" not in found.files):
        raise Refused(f"{found.name} holds no model that can be loaded (config.json and model.safetensors), but {names or 'nothing'}. Check MODEL_ID.")
    read(found, "adapter_config.json" if kind is Kind.ADAPTER else "config.json")  # a locked model refuses its files, not its list
    chosen = [] if kind is Kind.ADAPTER else [_single_or_index(found)]
    return [*beside_weights(found.files), *sorted({*chosen, *weights(found)})]


def in_folders(name: str, folders: Sequence[str]) -> str:
    """The sentence for a model in a folder of its repository."""
    return (
        f"{name} holds what can be loaded in folders of their own ({', '.join(folders[-5:])}), and a model of the Hub is read from the top one. Fetch one "
        f"(hf download {name} --include '{folders[-1]}/*' --local-dir FOLDER) and set MODEL_ID to FOLDER/{folders[-1]}."
    )


def skim(found: Listing, folder: Path) -> None:
    """Write the model's small files into `folder`, and a stand-in without content for every other one."""
    for file, remote in found.files.items():
        small = remote.bytes <= SMALL_BYTES and file in beside_weights(found.files)
        (folder / file).write_bytes(read(found, file) if small else NO_TENSORS if file.endswith(".safetensors") else b"")


def missing_bytes(found: Listing, chosen: list[str]) -> int:
    """Of these files, what the Hub's cache does not hold yet."""
    return sum(found.files[file].bytes for file in chosen if not hub_cache.is_here(*_kept(found, file)))


def _single_or_index(found: Listing) -> str:
    """The file that says where the weights are, as transformers chooses it."""
    return next(file for file in SINGLE_OR_INDEX if file in found.files)


def _download(found: Listing, files: list[str], progress: type[hub_tqdm], needed: int) -> Path:
    """These files of the commit that was listed: asked for by a branch, the library may give another commit, or what it has of an older one."""
    exactly = [glob.escape(file) for file in files]
    place = hub_cache.hub_cache()  # said, since the library takes an empty HF_HUB_CACHE for the working folder
    try:
        folder = snapshot_download(found.name, revision=found.commit, cache_dir=place, allow_patterns=exactly, tqdm_class=progress, etag_timeout=_time_out())
    except hub_faults.FAULTS as error:
        log.warning("the download of %s failed\n%s", found.name, hub_faults.trace(error))
        if disk.is_full(error):
            raise disk.full(place, needed, found.name) from None
        if isinstance(error, OSError) and error.errno in disk.UNWRITABLE:
            raise hub_cache.unwritable(error) from None
        raise _broken_off(found, hub_faults.why(error)) from None
    return Path(folder)


def _broken_off(found: Listing, why: str) -> InferenceError:
    return InferenceError(f"The download of {found.name} broke off ({why}). The files that came whole are kept; ask again to go on.")


def _check(found: Listing, folder: Path, files: list[str], new: list[str], report: Report) -> None:
    """Raise InferenceError unless all `files` are there and the `new` ones hold what the Hub says that they do; one that does not is removed."""
    if lacks := [file for file in files if not (folder / file).exists()]:
        raise _broken_off(found, f"{lacks[0]} did not come")
    named = [(folder / file, found.files[file].sha256) for file in new if found.files[file].sha256]
    for number, (path, sha256) in enumerate(named, 1):
        report(Loading("checking what was downloaded", number, len(named), "files"))
        if manifest.digest(path) != sha256:
            content = path.resolve()
            path.unlink()
            content.unlink(missing_ok=True)
            raise _broken_off(found, f"{path.name} came with other content than the Hub says it has (SHA-256), so it was removed")


@contextlib.contextmanager
def _faults_told(name: str, revision: str | None) -> Iterator[None]:
    try:
        yield
    except hub_faults.FAULTS as error:
        log.warning("the Hub was asked for %s in vain\n%s", name, hub_faults.trace(error))
        raise hub_faults.told(error, name, revision) from None


def _silent() -> InferenceError:
    log.warning("the Hub has sent nothing for %g s: given up", SILENT_S)
    return InferenceError(
        f"The Hugging Face Hub ({hub_faults.endpoint()}) has sent nothing for {SILENT_S:g} s. "
        "The files that came whole are kept; ask again to go on, or set MODEL_ID to a local folder."
    )


def _progress(total: int, report: Report, watch: Watch) -> type[hub_tqdm]:
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


def _kept(found: Listing, file: str) -> tuple[str, str, str, str | None, int]:
    return found.name, found.commit, file, found.files[file].blob, found.files[file].bytes
