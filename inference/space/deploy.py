"""The Space is made or brought up to date, watched until it runs, and asked one prompt: a step after the other, each said as it is done.

In: what was asked for, the files, the Hub. Out: the record of the answer, or the sentence at which it stopped. What can be checked is checked
before anything is made; `done` holds what was, for whoever stops it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from huggingface_hub import constants, get_token

from inference.errors import InferenceError, Refused
from inference.space import ask, files, model, prices, session, watch
from inference.space.asked import Asked
from inference.space.files import SpaceFile
from inference.space.hub import Account, Existing, Hub
from inference.units import count, size

ANSWER_S = 60.0  # a commit of some hundred files takes the Hub a while
ASLEEP = ("PAUSED", "STOPPED", "SLEEPING", "RUNTIME_ERROR")


class Deploy:
    """One deployment; `say` takes a sentence or a stage as it comes."""

    def __init__(self, asked: Asked, found: Sequence[SpaceFile], say: Callable[[str], None]) -> None:
        self.asked, self.files, self.say = asked, list(found), say
        self.hub = Hub(asked)
        self.done: list[str] = []

    def run(self, prompt: str) -> dict[str, Any] | None:
        """All of it; the record of the answer, None where it was not to be waited for. Raises InferenceError."""
        with session.time_outs(ANSWER_S):
            self._on_the_hub()
        if not self.asked.budget_s:
            return None
        self.say(f'Asking it "{prompt}"')
        return ask.ask(self.asked, prompt, get_token())

    def _on_the_hub(self) -> None:
        account = self.hub.account()
        check_account(account, self.asked)
        there = self.hub.look()
        if there is not None:
            check_ours(there, self.asked)
        self._check_model(there)
        before = self._made(there)
        commit = self._uploaded(there)
        self._on_its_hardware(there)
        if self.asked.budget_s:
            same = there is not None and commit == there.commit
            watch.until_it_runs(self.hub, self.asked, commit, "" if same else before, self.say)
            self._did("it runs")

    def _check_model(self, there: Existing | None) -> None:
        self.say(f"Judging {self.asked.model} for {self.asked.hardware.name}")
        model.check_access(self.asked, self.hub.secret_names if there else frozenset)
        catalog = prices.catalog()
        judged = model.judged(self.asked, offline=False)
        judged.check(self.asked, catalog)
        chosen = catalog.named(self.asked.hardware.name)
        self.say(f"{chosen}: {chosen.price()} ({catalog.dated()}).")
        for line in filter(None, (*judged.lines(self.asked), judged.warning(self.asked, catalog))):
            self.say(f"{line.rstrip('.')}.")

    def _made(self, there: Existing | None) -> str:
        """Make it, or set what an existing one shall have; its stage before anything is uploaded."""
        if there is None:
            self.hub.create()
            self._did(f"the Space {self.asked.space} made on {self.asked.hardware.name}, with its variables and secrets")
            return self.hub.state().stage
        if self.asked.private and not there.private:
            self.hub.make_private()
            self._did("made private")
        for name, value in self.asked.variables.items():
            self.hub.set_variable(name, value)
            self._did(f"variable {name} set")
        for name, value in self.asked.secrets.items():
            self.hub.set_secret(name, value)
            self._did(f"secret {name} set")
        return there.state.stage

    def _uploaded(self, there: Existing | None) -> str:
        gone = files.to_delete(set(there.files), self.files, self.asked.replace) if there else []
        total = sum(file.bytes for file in self.files)
        self.say(f"Uploading {count(len(self.files), 'file')}, {size(total)}")
        commit = self.hub.upload(self.files, gone, there.commit if there else None)
        self._did(f"{count(len(self.files), 'file')} uploaded ({size(total)})" + (f", {len(gone)} removed" if gone else ""))
        return commit

    def _on_its_hardware(self, there: Existing | None) -> None:
        if there is None:
            return
        if self.asked.hardware.flavor not in (there.state.requested, there.state.hardware):
            self.hub.request_hardware()
            self._did(f"{self.asked.hardware.name} asked for")
        if there.state.stage in ASLEEP:
            self.hub.restart()
            self._did("started")

    def _did(self, what: str) -> None:
        self.done.append(what)
        self.say(f"{what[0].upper()}{what[1:]}.")


def check_account(account: Account, asked: Asked) -> None:
    """Raise InferenceError where the token can't make that Space."""
    if account.writes is False:
        raise InferenceError(
            f"The token that is set (of {account.name}) may not write {asked.space}. Make one that may at {constants.ENDPOINT}/settings/tokens, then: hf auth login."
        )
    if asked.owner not in account.owners:
        raise InferenceError(
            f"The token that is set is of {account.name}, who may not make Spaces of {asked.owner}. Name one of: {', '.join(account.owners)}; or use another token."
        )


def check_ours(there: Existing, asked: Asked) -> None:
    """Raise Refused where the Space is something else, and was not said to be replaced."""
    others = there.files - {".gitattributes", "README.md"}
    if asked.replace or (there.sdk in ("gradio", "") and (not others or set(files.OURS) <= others)):
        return
    what = f"its sdk is {there.sdk}" if there.sdk not in ("gradio", "") else f"it has other files, such as {min(others)}"
    raise Refused(
        f"There is a Space {asked.space} already, and it is not this page: {what}. Choose another name, or give --replace: then its files are removed "
        "(they stay in its history)."
    )
