"""Records from the JSON that `export.py`, a file of prompts and `quality` write: the way back, each value checked for its kind.

In: a file. Out: the records in it, or the figures of quality with their model. Unknown keys are ignored, and a value that may be unknown may be
missing. A file that is none of ours, of another version, or damaged is a WrongArguments with its name. Measures nothing.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

from inference import ends
from inference.errors import WrongArguments
from inference.record.model import SCHEMA, Record
from inference.record.scores import Quality
from inference.record.verdict import DEVICE_EFFECT, PRECISION_EFFECT

PROMPTS_SCHEMA = "gpu-vs-cpu-prompts/2"  # `series.Series.as_json`, which holds records
GIVE = "Give what `python -m inference compare --json FILE` or `quality --json FILE` wrote."
NOT_NEGATIVE = ("_s", "_tps", "_bytes", "_tokens", "positions")
LARGEST = 2**63
WORDS: Mapping[Any, str] = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}


class _Damaged(Exception):
    """A place in a file, and what is wrong there."""


@dataclass(frozen=True)
class Scored:
    """What `quality` wrote: the figures, and the model as the command was given it."""

    quality: Quality
    model: str | None = None


@dataclass(frozen=True)
class Held:
    """What a file holds: records, or figures of quality alone."""

    records: tuple[Record, ...] = ()
    scored: tuple[Scored, ...] = ()


def read(path: Path) -> Held:
    """What a file holds; raises WrongArguments, with its name, where that is nothing of ours or not whole."""
    held = _json(path)
    if isinstance(held, dict) and "schema" not in held and isinstance(held.get("clients"), dict):
        raise WrongArguments(f"{path.name} is what `bench --clients` wrote, a load: give it by --load {path.name}, beside a record.")
    try:
        if isinstance(held, dict) and "schema" not in held and isinstance(held.get("quality"), dict):
            model = held["quality"].get("model")
            return Held(scored=(Scored(_built(Quality, held["quality"], "quality"), model if isinstance(model, str) else None),))
        if isinstance(held, dict) and held.get("schema") == PROMPTS_SCHEMA:
            held = held.get("records")
        several = held if isinstance(held, list) else [held]
        return Held(tuple(_record(each, path.name, f"record {n}: " if len(several) > 1 else "") for n, each in enumerate(several, 1)))
    except _Damaged as fault:
        raise WrongArguments(f"{path.name} is damaged: {fault}. Measure again, or give another file.") from fault


def _json(path: Path) -> Any:
    """The values in a file; raises WrongArguments."""
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or error) if isinstance(error, OSError) else "not UTF-8 text"
        raise WrongArguments(f"{path} can't be read ({reason}). {GIVE}") from error
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        where = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) and text.strip() else ""
        raise WrongArguments(f"{path.name} is not JSON, or not all of it{where}. {GIVE}") from error


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _record(held: Any, name: str, where: str) -> Record:
    """One record; raises WrongArguments where it is of another kind or version, _Damaged where it is not whole."""
    schema = held.get("schema") if isinstance(held, dict) else None
    if schema == SCHEMA:
        record: Record = _built(Record, held, where)
        _check_parts(record, where)
        return record
    ours, _, version = SCHEMA.partition("/")
    kind, _, other = schema.partition("/") if isinstance(schema, str) else ("", "", "")
    if kind in (ours, PROMPTS_SCHEMA.partition("/")[0]) and other.isdecimal():
        age = "an older" if int(other) < int(version) else "a newer"
        raise WrongArguments(f"{name} was written by {age} version of this program ({schema}); this one reads {SCHEMA}. Measure again.")
    what = f"of a kind that is not known here ({schema!r})" if schema is not None else "no record of a comparison"
    raise WrongArguments(f"{name} is {what}. {GIVE}")


def _check_parts(record: Record, where: str) -> None:
    """Raise _Damaged where one part of a record speaks of another that is not there."""
    for name, lane in record.lanes.items():
        if unknown := [run.finish_reason for run in lane.runs if run.finish_reason not in ends.WORDS]:
            raise _Damaged(f"{where}lanes.{name} has a run that ended in a way that is not known ({unknown[0]!r})")
        if lane.n != len(lane.ended_runs):
            raise _Damaged(f"{where}lanes.{name}.n is not the number of its runs that came to their end")
    verdict = record.verdict
    effects = [(verdict.device_effect, DEVICE_EFFECT), (verdict.precision_effect, PRECISION_EFFECT)]
    compared = [(pair.reference, pair.other) for pair in verdict.pairs] + [lanes for effect, lanes in effects if effect is not None]
    if lacking := [name for lanes in compared for name in lanes if name not in record.lanes or not record.lanes[name].n]:
        raise _Damaged(f"{where}verdict speaks of {lacking[0]!r}, which has no whole answer")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _built(kind: Any, held: Any, where: str) -> Any:
    """A dataclass of the values of an object; what may be unknown or has a default may be missing."""
    if not isinstance(held, dict):
        raise _Damaged(f"{where or 'the file'} is not an object")
    if kind is Quality:  # the first lane's figures stand at its top
        held = {**held, "figures": held}
    values, at = {}, f"{where}." if where and not where.endswith(": ") else where
    for field in fields(kind):
        hint = _hints(kind)[field.name]
        if field.name in held:
            values[field.name] = _value(hint, held[field.name], f"{at}{field.name}")
        elif types.NoneType in get_args(hint):
            values[field.name] = None
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _Damaged(f"it lacks {at}{field.name}")
    return kind(**values)


def _value(kind: Any, held: Any, where: str) -> Any:
    """A value of JSON as what the dataclass holds there."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if held is None and types.NoneType in inner else _value(_alternative(inner, held), held, where)
    if is_dataclass(kind):
        return _built(kind, held, where)
    if origin is tuple:
        return tuple(_value(inner[0], each, f"{where}[{n}]") for n, each in enumerate(_checked(list, held, where)))
    if origin is not None:  # a mapping by names
        return {key: _value(inner[1], each, f"{where}.{key}") for key, each in _checked(dict, held, where).items()}
    return held if kind is Any else _plain(kind, held, where)


def _alternative(kinds: tuple[Any, ...], held: Any) -> Any:
    """Of the kinds that may stand in one place the one of this value: an `error` alone, or the figures."""
    known = [kind for kind in kinds if kind is not types.NoneType]
    if not isinstance(held, dict):
        return known[0]
    of_faults = [kind for kind in known if is_dataclass(kind) and "error" in {field.name for field in fields(kind)}]
    figures = [kind for kind in known if kind not in of_faults]
    return (of_faults if of_faults and "error" in held else figures)[0]


def _checked(kind: type, held: Any, where: str) -> Any:
    if not isinstance(held, kind):
        raise _Damaged(f"{where} is not {'a list' if kind is list else 'an object'}")
    return held


def _plain(kind: Any, held: Any, where: str) -> Any:
    """A number, a truth or a text; a number that JSON has no word for was written as unknown."""
    if kind is float and held is None:
        return math.nan
    right = isinstance(held, (int, float) if kind is float else kind) and (kind is bool or not isinstance(held, bool))
    if not right:
        raise _Damaged(f"{where} is not {WORDS[kind]}")
    if kind in (int, float) and not abs(held) < LARGEST:
        raise _Damaged(f"{where} is larger than anything that is measured")
    if kind in (int, float) and where.endswith(NOT_NEGATIVE) and held < 0:
        raise _Damaged(f"{where} is negative")
    return float(held) if kind is float else held
