"""What `deploy` is asked for, checked without asking anybody: the Space's name, its hardware, what it shall serve, its variables and secrets.

In: the command's words, the environment. Out: an `Asked`, or WrongArguments in one sentence. A secret's value stands in no representation, and no
sentence holds what was given for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from inference.errors import WrongArguments
from inference.host.hardware import Hardware
from inference.settings import DEFAULT_MODEL, SMALL_MODEL, VARIABLES, Settings, from_env
from inference.sources import files

PROGRAM = "python -m inference deploy"
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
MOST_LETTERS = 96  # of NAME, as the Hub has it
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(?:/[\w.-]+\.gguf)?(?:@[\w./-]+)?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SECRET = re.compile(r"(?:^|_)(?:AUTH|TOKEN|KEY|SECRET|PASSWORD|PASSWD)$")
OWN = ("share", "host", "port")  # what a Space sets itself, or has no use for


@dataclass(frozen=True)
class Asked:
    """A Space as it shall be. `model` is MODEL_ID's value; `variables` and `secrets` are by name, what MODEL_ID and LANES say included."""

    space: str
    hardware: Hardware
    model: str
    variables: Mapping[str, str]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    private: bool = False
    replace: bool = False
    budget_s: float = 1800.0

    @property
    def owner(self) -> str:
        """Whose Space it is."""
        return self.space.partition("/")[0]

    @property
    def models(self) -> tuple[str, ...]:
        """Every model that it may be asked to load at its start."""
        settings = from_env(self.variables)
        return tuple(filter(None, (settings.model_id, settings.cpu_model_id, *settings.models)))

    def masked(self, text: str) -> str:
        """`text` without the values of secrets, which a log of the Space's may hold."""
        for value in sorted(self.secrets.values(), key=len, reverse=True):
            text = text.replace(value, "***") if len(value) > 3 else text
        return text


def check_name(space: str) -> str:
    """The Space's name, as the Hub takes it; raises WrongArguments."""
    parts = space.split("/")
    if len(parts) != 2 or not all(parts):
        raise WrongArguments(f"A Space is named OWNER/NAME, not {space!r}: OWNER is you or an organization. {PROGRAM} you/your-space --hardware cpu-basic")
    wrong = not all(map(NAME.fullmatch, parts)) or "--" in space or ".." in space or space.endswith(".git")
    if wrong or len(parts[1]) > MOST_LETTERS:
        raise WrongArguments(
            f"{space!r} can't be a Space's name: letters, digits, -, _ and . are allowed, no -- or .., and {MOST_LETTERS} letters at most. Choose another."
        )
    return space


def check_model(model: str) -> str:
    """A model that a Space can load too: a Hub id, or one that comes with this folder; raises WrongArguments."""
    if model in (DEFAULT_MODEL, SMALL_MODEL) or model.startswith("shape:"):
        return model
    if model.startswith(("/", ".", "~")) or files.at(model):
        raise WrongArguments(
            f"{model} is on this machine, and a Space can't reach it. Upload it first (hf upload you/your-model {model}), then name it: --model you/your-model"
        )
    if not HUB_ID.fullmatch(model):
        raise WrongArguments(f"{model!r} is no model of the Hub. Name one as owner/name, owner/name@revision or owner/name/file.gguf.")
    return model


def variables(given: Iterable[str], model: str, lanes: str | None) -> dict[str, str]:
    """--variable NAME=VALUE, with what the Space shall serve; raises WrongArguments for what our settings would refuse there."""
    found = {"MODEL_ID": model} | ({"LANES": lanes} if lanes else {})
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            raise WrongArguments(f"--variable {name!r} has no value. Write --variable {name}=VALUE.")
        _check_variable(name, "--variable")
        if SECRET.search(name):
            raise WrongArguments(f"{name} looks like a secret, and everybody can read a Space's variables. Give it as --secret {name}.")
        if name in ("MODEL_ID", "LANES") and found.get(name, value) != value:
            raise WrongArguments(f"{name} is given twice, by --variable and by --{'model' if name == 'MODEL_ID' else 'lanes'}. Give it once.")
        if name in {VARIABLES[setting] for setting in OWN}:
            raise WrongArguments(f"A Space sets {name} itself. Leave it out.")
        found[name] = value
    _check_settings(found)
    return found


def _check_settings(found: Mapping[str, str]) -> None:
    settings: Settings = from_env(found)
    settings.check_shapes()
    for model in filter(None, (settings.cpu_model_id, settings.base_model_id, *settings.models)):
        check_model(model)


def secrets(given: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """--secret NAME=VALUE, or NAME alone with its value from the environment; raises WrongArguments, which never holds a value."""
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        _check_variable(name if VARIABLE.fullmatch(name) else "...", "--secret")
        if not equals:
            value = environ.get(name, "")
        if not value:
            where = "is empty" if equals else "is not set in this environment"
            raise WrongArguments(f"The secret {name} {where}. Set the variable {name} here and give --secret {name}, or leave it out.")
        if not value.isprintable():
            raise WrongArguments(f"The secret {name} holds a character that can't be sent (a line break, or a byte of another encoding). Set it again.")
        found[name] = value
    if "AUTH" in found:
        from_env({"AUTH": found["AUTH"]})
    return found


def _check_variable(name: str, flag: str) -> None:
    if not VARIABLE.fullmatch(name):
        raise WrongArguments(f"{flag} {name!r} can't be a variable's name: letters, digits and _ are allowed, and no digit first.")
