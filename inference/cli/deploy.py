"""`python -m inference deploy`: what was asked for is checked, then listed (`--dry-run`) or done (`space/deploy.py`).

Each step goes to stderr as it is done, the Space's address and its first answer to stdout. Stopped, it says what was done by then.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
from typing import Any

from inference import terminal
from inference.cli.exits import FAILED
from inference.cli.progress import Line
from inference.ends import readable
from inference.errors import InferenceError, WrongArguments
from inference.fast import first_line
from inference.host import hardware
from inference.host.child import ROOT
from inference.settings import Settings
from inference.space import asked, files, model, plan
from inference.space.asked import Asked
from inference.units import rate, seconds


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Deploy as the options say; returns the exit code, raises InferenceError."""
    wanted = _asked(options, settings)
    found = files.collect(ROOT, wanted)
    if options.dry_run:
        print(terminal.printable(plan.told(wanted, found, model.judged(wanted, offline=True), hardware.from_file())))
        return 0
    return _deploy(wanted, found, options.prompt)


def _asked(options: argparse.Namespace, settings: Settings) -> Asked:
    if not (math.isfinite(options.wait) and options.wait >= 0):
        raise WrongArguments(f"--wait must be a number of minutes, 0 or more, not {options.wait:g}.")
    name = asked.check_model(settings.model_id)
    return Asked(
        asked.check_name(options.space), hardware.from_file().named(options.hardware), name,
        asked.variables(options.variable, name, options.lanes), asked.secrets(options.secret, os.environ),
        options.private, options.replace, options.wait * 60,
    )  # fmt: skip


def _deploy(wanted: Asked, found: list[files.SpaceFile], prompt: str) -> int:
    from huggingface_hub.utils import disable_progress_bars

    from inference.space.deploy import Deploy
    from inference.space.watch import page

    for name in ("httpx", "httpx2", "huggingface_hub"):  # what fails is told in a sentence
        logging.getLogger(name).setLevel(logging.ERROR)
    disable_progress_bars()
    line = Line()
    work = Deploy(wanted, found, line.say)
    try:
        record = work.run(prompt)
    except (InferenceError, KeyboardInterrupt):
        line.close()
        for told in _left(work.done, work.hub.unsure, page(wanted)):
            terminal.tell(told)
        raise
    line.close()
    print(page(wanted))
    try:
        return 0 if record is None or _answers(record) else FAILED
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:  # what runs there may be another program by now
        raise InferenceError(f"{wanted.space} runs, but its answer can't be read ({first_line(error)}). Open it and look at its lanes' cards.") from error


def _left(done: list[str], unsure: str, address: str) -> list[str]:
    """What a deployment that ended early leaves behind; `unsure`: a change that the Hub has not answered for."""
    if not done and not unsure:
        return ["Nothing was made or changed on the Hub."]
    lines = [f"Done by then: {'; '.join(done)}."] if done else []
    lines += [f"Not answered by then, so done or not: {unsure}."] if unsure else []
    return [*lines, f"Look at {address}: the same command goes on from what is there; the Space is paused or deleted in its settings."]


def _answers(record: dict[str, Any]) -> bool:
    """Print each lane's answer; True where one of them answered."""
    good = False
    for name, lane in record["lanes"].items():
        last = (lane.get("runs") or [{}])[-1]
        fault = last.get("error") or ("" if last else lane.get("reason"))
        if fault or not readable(last.get("text") or ""):
            print(terminal.printable(f"{name}: no answer; {fault or 'nothing readable came'}"))
            continue
        good = True
        figures = f"{rate(last.get('decode_tps'))}, first word {seconds(last.get('ttft_s'))}, total {seconds(last.get('total_s'))}"
        print(terminal.printable(f"{name}: {figures}\n  {last['text'].strip()}"))
    return good
