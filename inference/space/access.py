"""Whether the Space can read its model: there is such a one, and a locked or private one wants a token of its own there.

In: what was asked for, the names of the secrets that the Space has already. Out: nothing, or InferenceError in the words of a load.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from huggingface_hub import HfApi

from inference.errors import Refused
from inference.settings import DEFAULT_MODEL, SMALL_MODEL
from inference.sources import hub_faults
from inference.space.asked import Asked
from inference.space.session import time_outs

ANSWER_S = 30.0


def check_access(asked: Asked, there: Callable[[], Collection[str]]) -> None:
    """Ask the Hub for each model; raises InferenceError where there is none, or the Space could not read it. `there`: its secrets' names, asked if need be."""
    for name in dict.fromkeys(asked.models):
        if name in (DEFAULT_MODEL, SMALL_MODEL) or name.startswith("shape:"):
            continue
        rest, _, revision = name.partition("@")
        model = "/".join(rest.split("/")[:2])
        try:
            with time_outs(ANSWER_S):
                found = HfApi().model_info(model, revision=revision or None)
        except hub_faults.FAULTS as error:
            raise hub_faults.told(error, model, revision or None) from None
        file = "/".join(rest.split("/")[2:])
        if file and file not in {one.rfilename for one in found.siblings or ()}:
            raise Refused(f"{model} has no file {file}. Check --model.")
        if (found.private or found.gated) and "HF_TOKEN" not in asked.secrets and "HF_TOKEN" not in there():
            kind = "private" if found.private else "locked"
            raise Refused(
                f"{model} is {kind}, and the Space would have no token to read it with. Set HF_TOKEN here to one that may only read it, and give --secret HF_TOKEN."
            )
