"""Whether the Space can read its model, and whether that fits its hardware, by the figures that admit a load: asked of a process of `doctor`, which has torch.

In: what was asked for. Out: a `Judged`, or InferenceError, in the words of a load, where there is no such model or its 4-bit lane would be refused
there. `offline`: the Hub is not asked, and a model that is not on this machine is not judged.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass

from huggingface_hub import HfApi

from inference.errors import InferenceError, Refused
from inference.host import child
from inference.host.hardware import Catalog, Fit, LaneNeed
from inference.settings import DEFAULT_MODEL, SMALL_MODEL, VARIABLES
from inference.sources import hub_faults
from inference.space.asked import Asked
from inference.space.session import time_outs

LONGEST_S = 300.0
ANSWER_S = 30.0


@dataclass(frozen=True)
class Judged:
    """How each lane fits; without any, `unknown` says why that can't be said."""

    fits: tuple[Fit, ...]
    needs: dict[str, LaneNeed]
    unknown: str = ""

    def lines(self, asked: Asked) -> list[str]:
        """What is told of it."""
        return [str(fit) for fit in self.fits] or [f"whether {asked.model} fits is not known: {self.unknown}"]

    def check(self, asked: Asked, catalog: Catalog) -> None:
        """Raise Refused where the 4-bit lane does not fit; the FP32 one alone is refused by the page, which says so."""
        four_bit = next((fit for fit in self.fits if fit.lane.endswith("nf4")), None)
        if four_bit is not None and four_bit.fits is False:
            other = next((one for one in catalog.fitting(self.needs) if one.gpu or not asked.hardware.gpu), None)
            advice = f"Choose --hardware {other.name} ({other.price()}, {catalog.dated()})" if other else "Choose a smaller model"
            raise Refused(f"{asked.model} does not fit on {asked.hardware.name}: {four_bit}. {advice}.")

    def warning(self, asked: Asked, catalog: Catalog) -> str:
        """What will be refused there though the Space runs; empty where all fits."""
        refused = [fit for fit in self.fits if fit.fits is False and not fit.lane.endswith("nf4")]
        if not refused:
            return ""
        other = next((one for one in catalog.fitting(self.needs) if bool(one.gpu) == bool(asked.hardware.gpu)), None)
        lanes = " and ".join(f"the {fit.lane.partition(':')[2].upper()} lane" for fit in refused)
        together = f": {'both' if len(self.fits) == 2 else 'all'} fit on {other.name} ({other.price()})" if other else ""
        return f"The page will refuse {lanes} on {asked.hardware.name} ({'; '.join(map(str, refused))}){together}."


def judged(asked: Asked, offline: bool) -> Judged:
    """The model on its hardware; raises Refused where it can't be loaded at all."""
    others = {name: "" for name in VARIABLES.values() if not name.startswith("CACHE_")}  # of this machine's page, not of the Space
    more = {**others, **asked.variables, **({"HF_HUB_OFFLINE": "1"} if offline else {})}
    command = [sys.executable, "-m", "inference.doctor.spaces"]
    try:
        # a session of its own: Ctrl+C is for this process, which ends that one
        done = subprocess.run(command, env=child.environment(**more), capture_output=True, text=True, timeout=LONGEST_S, start_new_session=True)
        said = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Judged((), {}, f"it was not judged within {LONGEST_S:g} s")
    except ValueError:
        return Judged((), {}, f"the process that judges it ended with {done.returncode}")
    if said["refused"] and not offline:
        raise InferenceError(said["refused"])
    if why := said["unseen"] or (said["refused"] and "it is not on this machine, and a dry run asks no network"):
        return Judged((), {}, why)
    needs = {lane: LaneNeed(**need) for lane, need in said["needs"].items()}
    return Judged(asked.hardware.fit(needs), needs)


def on_the_hub(name: str) -> bool:
    """Whether a model is read from the Hub, and not from a package or made by ourselves."""
    return name not in (DEFAULT_MODEL, SMALL_MODEL) and not name.startswith("shape:")


def check_access(asked: Asked, there: Callable[[], Collection[str]]) -> None:
    """Ask the Hub for each model; raises InferenceError where there is none, or the Space could not read it. `there`: its secrets' names, asked if need be."""
    for name in dict.fromkeys(asked.models):
        if not on_the_hub(name):
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
