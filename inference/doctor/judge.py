"""A model before it is loaded, judged for each lane: what it is, whether it fits, which way it will decode, what it lacks; then what was measured.

In: a name, lanes that can run here, settings. Out: lines, and whether every lane could load it. All from configuration and headers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from transformers import PreTrainedModel

from inference.cpu import install
from inference.cuda.packed import check_sizes
from inference.doctor import here, spaces
from inference.doctor.look import NotSeen, Seen, see
from inference.errors import InferenceError
from inference.fast import FastWays, first_line
from inference.host import temporary
from inference.lane import config, measured
from inference.models import loading, was_four_bit
from inference.models.loading import Plan
from inference.parts.reader import read_parts
from inference.settings import Settings
from inference.sources.at_hand import Checkpoint
from inference.sources.files import TOKENIZERS, json_object
from inference.space.prices import catalog
from inference.units import size, two_sizes

log = logging.getLogger(__name__)
WORDS = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "U8": "uint8 (packed)"}
TEMPLATES = ("chat_template.jinja", "chat_template.json")


def judge(name: str, lanes: Collection[str], settings: Settings, free: Mapping[str, int] | None = None) -> tuple[list[str], bool]:
    """Lines about the model, and True when each of the lanes can load it; `free` is what each lane has, in bytes (read now if not given)."""
    free = free or {lane: loading.free_bytes(lane) for lane in lanes}
    with temporary.folder("gpu-vs-cpu-doctor-") as work:
        try:
            seen = see(name, settings, work)
            lines, well = _lacks(seen)
        except NotSeen as error:
            return [f"  {error}"], True
        except Exception as error:  # noqa: BLE001 - of files that hold what nobody foresaw; each is a model that can't be loaded
            return [f"  {name} can't be loaded: {first_line(error)}"], False
        judged = [_lane(seen, lane, settings, have) for lane, have in free.items() if lane in lanes]
        plans = [plan for _, plan, _ in judged if plan]
        return [
            f"  {seen.name}: {seen.kind}, {seen.where}", *(_what(seen, plans[0]) if plans else ()), *_values(seen), *lines,
            *(line for said, _, _ in judged for line in said), *_spaces(seen, plans, settings),
        ], well and all(fits for _, _, fits in judged)  # fmt: skip


def _spaces(seen: Seen, plans: Sequence[Plan], settings: Settings) -> list[str]:
    """The Spaces that it fits on; nothing where a lane can't load it, or loads another."""
    if not plans or settings.cpu_model_id:
        return []
    try:
        taken = spaces.needs(seen, settings, {plan.lane: plan.need for plan in plans})
    except Exception:
        log.info("%s is not judged for Spaces", seen.name, exc_info=True)
        return []
    return spaces.lines(taken, catalog())


def _what(seen: Seen, plan: Plan) -> list[str]:
    """Its class, size and dtypes, and what of its files is left out."""
    model, found = plan.found.model, plan.found
    bytes_of = Counter[str]()
    for stored in seen.tensors.values():
        bytes_of[WORDS.get(stored.dtype, stored.dtype)] += stored.bytes
    dtypes = ", ".join(f"{size(count)} of {dtype}" for dtype, count in bytes_of.most_common())
    lines = [f"  {type(model).__name__}, {sum(part.numel() for part in model.parameters()):,} parameters: {dtypes}"]
    if other := len(found.left) - len(found.stray):
        lines.append(f"  multimodal: its text model is loaded; {other} tensors of its other parts are not")
    if found.stray:
        lines.append(f"  {len(found.stray)} tensors have no place in the model and are not used (the first: {found.stray[0]})")
    if missing := _missing(plan):
        lines.append(f"  lacks {len(missing)} of the weights that its architecture needs (the first: {missing[0]})")
    return lines


def _missing(plan: Plan) -> list[str]:
    """The parameters that no tensor of the files becomes, those left out that take another's values."""
    model = plan.found.model
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    return sorted({name for name, _ in model.named_parameters()} - set(plan.found.places.values()) - set(tied))


def _values(seen: Seen) -> list[str]:
    told = was_four_bit.found(seen.here) if seen.here else None
    return [f"  {told.words}"] if told else []


def _lacks(seen: Seen) -> tuple[list[str], bool]:
    """What is missing beside the weights, and whether it can do without."""
    if not seen.folders:  # its tokenizer is made with it
        return [], True
    for name in config.SMALL:
        if folder := next((folder for folder in seen.folders if (folder / name).exists()), None):
            config.check_files(Checkpoint(seen.name, folder), name)
    names = {file.name for folder in seen.folders for file in folder.iterdir()}
    if names.isdisjoint(TOKENIZERS):
        return ["  lacks a tokenizer (tokenizer.json): save it beside the weights (save_pretrained)"], False
    lines = [] if "tokenizer.json" in names else ["  lacks tokenizer.json: its tokenizer is rebuilt from its vocabulary"]
    if names.isdisjoint(TEMPLATES) and not any(_template_in(folder / "tokenizer_config.json") for folder in seen.folders):
        lines.append("  lacks a chat template: prompts are given as they are (raw)")
    return lines, True


def _template_in(file: Path) -> bool:
    return file.exists() and bool(json_object(file, file.parent.name).get("chat_template"))


def _lane(seen: Seen, lane: str, settings: Settings, have: int) -> tuple[list[str], Plan | None, bool]:
    """(lines, what would be loaded, whether it fits)."""
    ways = FastWays(lane, settings.fast)
    try:
        plan = loading.plan(seen.name, seen.config, seen.tensors, lane, ways)
    except Exception as error:  # noqa: BLE001 - what transformers makes of a configuration that it doesn't check
        return [f"  {lane}: can't be loaded: {first_line(error)}"], None, False
    need = plan.need.peak_bytes + loading.margin_bytes(lane)
    verdict = "fits" if need <= have else "does not fit"
    parts = f"{size(plan.need.weights_bytes)} of weights, {size(plan.need.peak_bytes)} at most while loading, the rest for the work"
    needs, free = two_sizes(need, have)
    lines = [f"  {lane}: {verdict}, needs {needs} of {free} free ({parts})", f"    decodes {_path(plan, ways)}"]
    if seen.here and (held := measured.read(settings, seen.here, lane)):
        lines.append(f"    measured here on {held.day}: {size(held.weights_bytes)} of weights, {size(held.peak_bytes)} at most while loading")
    return lines, plan, need <= have and not _missing(plan)


def _path(plan: Plan, ways: FastWays) -> str:
    """Which way it will decode, and why not a faster one."""
    way = next((name for name in FORMS if name in ways.names), None)
    if way is None:
        return "eagerly: this lane has no faster path"
    reason = here.why_not(way, ways)
    try:
        FORMS[way](plan.found.model)
    except InferenceError as error:
        reason = reason or str(error)
    except Exception as error:  # noqa: BLE001 - a lane answers eagerly whatever a faster path raises
        reason = reason or first_line(error)
    return f"eagerly ({way}: {reason})" if reason else f"by the {way} path"


def _graph_form(model: PreTrainedModel) -> None:
    check_sizes(read_parts(model))


FORMS: dict[str, Callable[[PreTrainedModel], None]] = {"cuda-graph": _graph_form, install.STEP: install.check_form}
