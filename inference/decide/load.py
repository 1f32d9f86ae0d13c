"""What `bench --clients` wrote: how each lane answers several visitors at once, put beside its evidence.

In: the JSON of that command, or its whole output, of which the JSON is the last line. Out: the lanes with their `clients`. A file that is none is a
WrongArguments with its name. Measures nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from inference.decide.evidence import Gathered
from inference.decide.model import Clients, Evidence
from inference.errors import WrongArguments
from inference.lanes import LaneName

GIVE = "Give what `python -m inference bench --clients 1,2,4,8` printed."


def with_load(found: Gathered, path: Path) -> Gathered:
    """The evidence with the measured loads of its lanes; raises WrongArguments for a file that is none, or of another model."""
    held = _held(path)
    model, servers_alone = held.get("model"), bool(held["clients"]) and all(lane.startswith("endpoint:") for lane in held["clients"])
    if isinstance(model, str) and model != found.model and not servers_alone:  # whose name for a model says nothing of ours
        raise WrongArguments(f"{path.name} is of {model}, and the records are of {found.model}. Give those of one model.")
    try:
        loads = {str(lane): _clients(rows) for lane, rows in held["clients"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise WrongArguments(f"{path.name} is damaged: a load lacks a figure, or it can be none ({error}). Measure again, or give another file.") from error
    lanes = tuple(replace(lane, clients=loads.get(lane.lane, ())) for lane in found.lanes)
    unknown = [lane for lane in loads if lane not in {each.lane for each in lanes}]
    told = [f"{path.name}: no record has {', '.join(unknown)}, so that load is left out."] if unknown else []
    told += _elsewhere(lanes, held.get("hardware"))
    return replace(found, lanes=lanes, remarks=(*found.remarks, *told))


def _elsewhere(lanes: Sequence[Evidence], machines: Any) -> list[str]:
    """Of each lane whose load was measured on another machine than its record, a sentence."""
    found = []
    for lane in lanes:
        machine = machines.get(lane.lane) if isinstance(machines, dict) and lane.clients else None
        if isinstance(machine, str) and not LaneName.parse(lane.lane).elsewhere and not lane.hardware.startswith(machine):
            found.append(f"{lane.lane}: its load was measured on {machine}, its record on {lane.hardware}.")
    return found


def _held(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongArguments(f"{path} can't be read ({getattr(error, 'strerror', None) or 'not UTF-8 text'}). {GIVE}") from error
    for part in (text, text.rpartition("\n")[2]):
        try:
            held = json.loads(part)
        except (ValueError, RecursionError):
            continue
        if isinstance(held, dict) and isinstance(held.get("clients"), dict):
            return held
    raise WrongArguments(f"{path.name} holds no measured load. {GIVE}")


def _clients(rows: Sequence[Any]) -> tuple[Clients, ...]:
    """A lane's loads by number of clients; one at which no answer came is a failed one. Raises KeyError, TypeError or ValueError."""
    found = [_row(row) for row in rows]
    return tuple(sorted(found, key=lambda each: each.clients))


def _row(row: Any) -> Clients:
    first, total = (_held_against(row[name]) for name in ("first_token_s", "total_s"))
    failed, rate = int(row.get("failed") or 0), row["answers_per_min"]
    if first is None or total is None or rate is None:  # nobody was answered
        return Clients(int(row["clients"]), math.inf, math.inf, 0.0, 0, max(1, failed))
    tokens = row.get("new_tokens")
    found = Clients(int(row["clients"]), float(first), float(total), float(rate), int(row["n"]), failed, None if tokens is None else float(tokens))
    spans = (found.first_token_p95_s, found.total_p95_s, found.new_tokens or 0.0)
    if not (found.clients > 0 and found.n > 0 <= failed and 0 < found.answers_per_min < math.inf and all(0 <= span < math.inf for span in spans)):
        raise ValueError(f"{found.clients} clients")
    return found


def _held_against(spread: Any) -> Any:
    """What a limit is held against: the p95, the largest of answers too few to have one."""
    return spread.get("max") if spread.get("p95") is None else spread["p95"]
