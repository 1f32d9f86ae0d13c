"""The Hub's calls that a Space is made by, their faults in words (`faults.py`); they are made within `session.time_outs`.

In: what was asked for, files. Out: frozen dataclasses. Only huggingface_hub's HfApi is used, with its token, which stands in no sentence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, SpaceStage, get_token
from huggingface_hub.errors import RepositoryNotFoundError

from inference.space import faults, session
from inference.space.asked import Asked
from inference.space.files import SpaceFile

UPLOAD_S = 900.0
LOG_S = 15.0  # the library reads a log until it is silent for 5 s
LOG_LINES = 20
MESSAGE = "Deploy the page"


@dataclass(frozen=True)
class Account:
    """Whom the token belongs to. `writes`: None where the token does not say; `owners`: its name and the organizations it may write in."""

    name: str
    writes: bool | None
    owners: tuple[str, ...]


@dataclass(frozen=True)
class Existing:
    """The Space as it is on the Hub before it is changed."""

    sdk: str
    files: frozenset[str]
    commit: str
    private: bool
    state: State


@dataclass(frozen=True)
class State:
    """What the Space is doing: `stage` in the Hub's word; `commit`: of what runs, None where the Hub does not say; `message`: of a failure."""

    stage: str
    hardware: str | None
    requested: str | None
    commit: str | None
    message: str


class Hub:
    """The Hub, for one Space."""

    def __init__(self, asked: Asked) -> None:
        self.unsure = ""  # the change that was sent, until its answer has come: it may be done or not
        self._asked = asked
        self._api = HfApi()

    def account(self) -> Account:
        """Whose token it is; raises InferenceError where there is none or the Hub doesn't take it."""
        if not get_token():
            raise faults.no_token()
        with self._told("asking whose token it is"):
            found = self._api.whoami()
            token = (found.get("auth") or {}).get("accessToken") or {}
            owners = [one["name"] for one in found.get("orgs") or () if one.get("roleInOrg") != "read"]
            return Account(found["name"], _writes(token, self._asked), (found["name"], *owners))

    def look(self) -> Existing | None:
        """The Space, if there is one."""
        with self._told("looking for the Space"):
            try:
                found = self._api.space_info(self._asked.space)
            except RepositoryNotFoundError as error:
                if error.response.status_code == 401:  # of a token, not of a Space
                    raise
                return None
            files = frozenset(one.rfilename for one in found.siblings or ())
            return Existing(found.sdk or "", files, found.sha or "", bool(found.private), self.state())

    def state(self) -> State:
        """What it is doing."""
        with self._told("asking what the Space is doing"):
            found = self._api.get_space_runtime(self._asked.space)
            stage = found.stage.value if isinstance(found.stage, SpaceStage) else found.stage
            raw = found.raw
            return State(stage, _text(found.hardware), _text(found.requested_hardware), raw.get("sha"), str(raw.get("errorMessage") or ""))

    def secret_names(self) -> frozenset[str]:
        """The secrets that it has already, as far as this library can ask."""
        with self._told("asking for the names of its secrets"):
            return frozenset(self._api.get_space_secrets(self._asked.space) if hasattr(self._api, "get_space_secrets") else ())

    def create(self) -> None:
        """Make the Space with its hardware, variables and secrets, all at once: what is refused leaves nothing behind."""
        asked = self._asked
        with self._changes("making the Space"):
            self._api.create_repo(
                asked.space, repo_type="space", space_sdk="gradio", space_hardware=asked.hardware.flavor, private=asked.private or None,
                space_variables=[{"key": key, "value": value} for key, value in asked.variables.items()],
                space_secrets=[{"key": key, "value": value} for key, value in asked.secrets.items()] or None,
            )  # fmt: skip

    def make_private(self) -> None:
        with self._changes("making the Space private"):
            self._api.update_repo_settings(self._asked.space, private=True, repo_type="space")

    def set_variable(self, name: str, value: str) -> None:
        with self._changes(f"setting the variable {name}"):
            self._api.add_space_variable(self._asked.space, name, value)

    def set_secret(self, name: str, value: str) -> None:
        with self._changes(f"setting the secret {name}"):
            self._api.add_space_secret(self._asked.space, name, value)

    def upload(self, files: Sequence[SpaceFile], gone: Sequence[str], parent: str | None) -> str:
        """One commit of these files, without those that are `gone`; its id. `parent`: the commit that it must follow."""
        operations = [CommitOperationAdd(file.path, file.content) for file in files] + [CommitOperationDelete(path) for path in gone]
        with self._changes("uploading the files"):
            commit = session.within(
                UPLOAD_S,
                lambda: self._api.create_commit(self._asked.space, operations, commit_message=MESSAGE, repo_type="space", parent_commit=parent or None),
            )
            return commit.oid

    def request_hardware(self) -> None:
        with self._changes(f"asking for {self._asked.hardware.name}"):
            self._api.request_space_hardware(self._asked.space, self._asked.hardware.flavor)

    def restart(self) -> None:
        with self._changes("starting the Space"):
            self._api.restart_space(self._asked.space)

    def last_lines(self, build: bool) -> list[str]:
        """The end of the build's log, or of the run's, without secrets; empty where the Hub gives none."""
        try:
            said = session.within(LOG_S, lambda: deque(self._api.fetch_space_logs(self._asked.space, build=build), maxlen=LOG_LINES))
        except faults.FAULTS:  # the failure itself is told; AttributeError, of a library older than this call, too
            return []
        return [line for part in said for line in self._asked.masked(part).splitlines() if line.strip()][-LOG_LINES:]

    @contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        try:
            yield
        except faults.FAULTS as error:
            if faults.refused(error):
                self.unsure = ""
            raise faults.told(error, doing, self._asked) from None

    @contextmanager
    def _changes(self, doing: str) -> Iterator[None]:
        self.unsure = doing
        with self._told(doing):
            yield
        self.unsure = ""


def _writes(token: dict[str, object], asked: Asked) -> bool | None:
    """Whether a token may write the Space, as far as it says."""
    role = token.get("role")
    if role in ("read", "write"):
        return role == "write"
    fine = token.get("fineGrained")
    scoped = fine.get("scoped") if isinstance(fine, dict) else None
    if not isinstance(scoped, list):
        return None
    for one in scoped:
        entity, may = one.get("entity") or {}, one.get("permissions") or ()
        if entity.get("name") in (asked.owner, asked.space) and any(str(right).startswith("repo.write") for right in may):
            return True
    return False


def _text(value: object) -> str | None:
    return None if value is None else str(getattr(value, "value", value))
