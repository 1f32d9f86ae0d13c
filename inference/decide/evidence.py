"""Records -> what they hold of each lane, its runs pooled, and what must be said of them.

In: records of one model, and figures of quality alone. Out: an `Evidence` a lane; equal first choices are weighted by positions, of random weights no
quality is kept. Of two models, or of one lane on two machines, nothing can be decided: a WrongArguments. Knows no price and no limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from inference.decide.model import Evidence
from inference.energy import of_an_answer
from inference.errors import WrongArguments
from inference.lanes import CUDA_BF16, REFERENCE, LaneName
from inference.record.figures import fetching_s
from inference.record.missing import why
from inference.record.model import LaneRecord, Record, RunRecord, over
from inference.record.read import Scored
from inference.record.scores import Quality
from inference.series.expected import is_right
from inference.units import count

WAY = "contains"  # the way of being right that counts answers lost
ELSEWHERE = "A server elsewhere: its times are taken here, with the network in them."
ALIKE = "--tokens N makes them alike"
T = TypeVar("T")
Measured = Sequence[tuple[Record, LaneRecord]]  # one lane, in each record that has it


@dataclass(frozen=True)
class Gathered:
    """What was measured of each lane of one model, and what must be said of all of it."""

    model: str
    lanes: tuple[Evidence, ...]
    remarks: tuple[str, ...] = ()


def gather(records: Sequence[Record], scored: Sequence[Scored] = ()) -> Gathered:
    """The evidence of all lanes; raises WrongArguments where there is no record, or they can't be of one decision."""
    once, alone = _once(records, lambda record: (record.created, record.request.prompt)), _once(scored)
    if not once:
        raise WrongArguments("There is no record to decide by, only the quality. Make one: python -m inference compare --prompts FILE --json FILE.")
    model = _model(once, alone)
    qualities = [record.quality for record in once if isinstance(record.quality, Quality)] + [each.quality for each in alone]
    by_lane: dict[str, list[tuple[Record, LaneRecord]]] = {}
    for record in once:
        for name, lane in record.lanes.items():
            by_lane.setdefault(name, []).append((record, lane))
    reference = _reference(qualities, tuple(by_lane))
    timed = [_evidence(name, each) for name, each in by_lane.items()]
    lanes = tuple(_with_answers(_with_quality(lane, qualities, reference), once, reference) for lane in timed)
    twice = len(records) + len(scored) - len(once) - len(alone)
    return Gathered(model, lanes, tuple(_remarks(by_lane, twice)))


def _once(found: Sequence[T], key: Callable[[T], Hashable] = lambda _: None) -> list[T]:
    """Each once, however often a file was given; only those of one `key` are held against each other."""
    kept: list[T] = []
    alike: dict[Hashable, list[T]] = {}
    for each in found:
        if each not in (known := alike.setdefault(key(each), [])):
            known.append(each)
            kept.append(each)
    return kept


def _model(records: Sequence[Record], scored: Sequence[Scored]) -> str:
    """What all are of; a server's own name for its model says nothing of ours."""
    here = [record.model for record in records if any(not lane.elsewhere for lane in record.lanes.values())]
    found = dict.fromkeys((model.id, model.revision, model.adapter) for model in here or [record.model for record in records])
    known = [key for key in found if key[0] is not None]
    ids = {key[0] for key in known}
    told = [str(key[0]) if len(ids) == len(known) else _whole_name(*key) for key in known]
    told += dict.fromkeys(each.model for each in scored if each.model is not None and ids and each.model not in ids)
    if len(told) > 1:
        raise WrongArguments(f"The records are of {len(told)} models: {', '.join(told)}. Give those of one.")
    return told[0] if told else "unknown"


def _whole_name(model: str | None, revision: str | None, adapter: str | None) -> str:
    return f"{model}{f' at {revision}' if revision else ''}{f' with {adapter}' if adapter else ''}"


def _evidence(name: str, measured: Measured) -> Evidence:
    """The times of one lane, of its counted runs in all records; warm ones only, where there are any."""
    _, last = next((each for each in reversed(measured) if each[1].device), measured[-1])
    hardware = _hardware(name, measured)
    asked = [(run, record.request.prompt) for record, lane in measured for run in lane.runs]
    of_counted = [(run, prompt) for run, prompt in asked if run.counted and run.ttft_s is not None and run.total_s]
    of_warm = [(run, prompt) for run, prompt in of_counted if run.warm is not False] or of_counted
    runs, counted, warm = ([run for run, _ in each] for each in (asked, of_counted, of_warm))
    return Evidence(
        lane=name, title=last.title(name), device=last.device, hardware=hardware,
        ttft_s=tuple(run.ttft_s for run in warm if run.ttft_s is not None), total_s=tuple(run.total_s for run in warm if run.total_s is not None),
        tpot_s=tuple(run.tpot_s for run in warm if run.tpot_s is not None), new_tokens=tuple(run.new_tokens for run in warm if run.new_tokens is not None),
        load_s=_load_s(measured), memory_bytes=_memory(measured), energy_j=_energy_j(warm), noise=any("noise" in (lane.note or "") for _, lane in measured),
        prompts=frozenset(prompt for _, prompt in of_warm), notes=tuple(_notes(last, runs, counted, warm)), why_not=None if counted else _why_not(last, runs),
    )  # fmt: skip


def _hardware(name: str, measured: Measured) -> str:
    """Where the lane ran, as its process said; raises WrongArguments where that is two machines."""
    found: dict[str, None] = {}
    for record, lane in measured:
        if lane.elsewhere or LaneName.parse(name).elsewhere:
            return "a server elsewhere"
        on_gpu = (lane.device or LaneName.parse(name).device) == "cuda"
        machine = record.environment.gpu if on_gpu else record.environment.cpu
        if lane.n and machine:
            found[machine if on_gpu or lane.threads is None else f"{machine}, {count(lane.threads, 'thread')}"] = None
    if len(found) > 1:
        raise WrongArguments(f"{name} was measured on {len(found)} machines: {'; '.join(found)}. Give the records of one of them.")
    return next(iter(found), "unknown")


def _memory(measured: Measured) -> int | None:
    """What must fit: the VRAM that it reserved at most; of a CPU lane what is its own at rest, since mapped files in a peak are the system's to take back."""
    found = [lane.peak_vram("reserved") if lane.on_gpu else lane.at_rest_bytes for _, lane in measured]
    return max((int(each) for each in found if each), default=None)


def _energy_j(runs: Sequence[RunRecord]) -> float | None:
    """The joules of an answer, where the runs are long enough for their counter."""
    found = of_an_answer(run.energy for run in runs)
    return found.joules if found else None


def _load_s(measured: Measured) -> float | None:
    """The median of the loads, each once though all records of a series tell it, fetching left out; of cold ones where there are any: a machine that wakes has nothing in memory."""
    loads = _once([lane.load for _, lane in measured if lane.load])
    return over(load.total_s - fetching_s(load) for load in [load for load in loads if load.cold] or loads)


def _why_not(lane: LaneRecord, runs: Sequence[RunRecord]) -> str:
    """Why nothing was measured of a lane, in words."""
    error = next((run.error for run in reversed(runs) if run.error), None) or (None if lane.available else lane.reason)
    return f"it was not measured: {error}" if error else f"it was not measured: {why(lane, 'total_s')}."


def _notes(lane: LaneRecord, runs: Sequence[RunRecord], counted: Sequence[RunRecord], used: Sequence[RunRecord]) -> list[str]:
    """What must be said of a lane's runs, a sentence each."""
    n, contended, cut = len(used), sum(run.alone is False for run in used), sum(run.finish_reason == "length" for run in used)
    cold = sum(run.warm is False for run in used)
    found = [
        (len(counted) - n, f"{_runs(len(counted) - n)} not counted, since cold: the first since the load, which a later visitor does not pay."),
        (cold, f"{_of(cold, n)} cold, the first since the load, and none warm: a later visitor waits less."),
        (contended, f"{_of(contended, n)} contended: another lane was at work at the same time, so alone it may be faster."),
        (cut, f"{_of(cut, n, 'answer')} cut at the token limit; a whole one takes longer."),
        (counted and len(runs) - len(counted), f"{_runs(len(runs) - len(counted))} not counted: failed, stopped or without figures."),
        (lane.elsewhere, ELSEWHERE),
        (bool(lane.note) and not lane.elsewhere, f"weights: {lane.note}."),
    ]
    return [words for there, words in found if there]


def _of(some: int, n: int, what: str = "run") -> str:
    return f"{some} of {count(n, what)} {'was' if some == 1 else 'were'}"


def _runs(n: int) -> str:
    return f"{count(n, 'run')} {'was' if n == 1 else 'were'}"


def _remarks(by_lane: dict[str, list[tuple[Record, LaneRecord]]], twice: int) -> list[str]:
    """What must be said of all records together."""
    asked = {name: sorted({record.request.max_new_tokens for record, lane in each if lane.n}) for name, each in by_lane.items()}
    prompts = {name: frozenset(record.request.prompt for record, lane in each if lane.n) for name, each in by_lane.items()}
    limits, found = sorted({limit for each in asked.values() for limit in each}), []
    if len(limits) > 1:
        told = ", ".join(f"{name} at {' and '.join(map(str, each))}" for name, each in asked.items() if each)
        found.append(f"The records cut answers at unlike numbers of tokens ({told}), so their totals are of unlike answers; {ALIKE}.")
    if len({each for each in prompts.values() if each}) > 1:
        told = ", ".join(f"{name} {len(each)}" for name, each in prompts.items() if each)
        found.append(f"The lanes were not asked the same prompts ({told}), so part of what sets them apart may be the prompts.")
    if twice:
        found.append(f"{count(twice, 'record')} given more than once counted once.")
    return found


# ---- quality


def _reference(qualities: Sequence[Quality], lanes: Sequence[str]) -> str | None:
    """The lane that all quality was measured against, else the one that would be; raises WrongArguments where there are two."""
    found = sorted({quality.reference for quality in qualities})
    if len(found) > 1:
        raise WrongArguments(f"The quality was measured against {' and against '.join(found)}. Give the figures of one reference.")
    return next(iter(found), next((str(name) for name in (REFERENCE, CUDA_BF16) if str(name) in lanes), None))


def _with_quality(lane: Evidence, qualities: Sequence[Quality], reference: str | None) -> Evidence:
    """The evidence with the lane's quality over all of `qualities`; as it is where there is none of it."""
    lane = replace(lane, is_reference=lane.lane == reference)
    if lane.noise or lane.is_reference:
        return lane
    figures = [quality.lanes[lane.lane] for quality in qualities if lane.lane in quality.lanes]
    figures = [each for each in figures if each.positions and not math.isnan(each.top1_agreement)]
    if positions := sum(each.positions for each in figures):
        agreement = sum(each.positions * each.top1_agreement for each in figures) / positions
        error = math.sqrt(sum((each.positions * each.top1_se) ** 2 for each in figures)) / positions
        error = error or 2 / (positions + 4)  # of all or none: half of Wilson's interval of two standard errors, which has a width there too
        lane = replace(lane, agreement=agreement, agreement_se=error, positions=positions)
    flips = [quality.expected[WAY] for quality in qualities if quality.other == lane.lane and quality.expected and WAY in quality.expected]
    if expected := sum(each.answers for each in flips):
        lane = replace(lane, lost=sum(len(each.right_to_wrong) for each in flips), expected=expected)
    return lane


def _with_answers(lane: Evidence, records: Sequence[Record], reference: str | None) -> Evidence:
    """The evidence with the expected answers that the lane lost in the records themselves, where quality tells of none: of a server too."""
    if lane.noise or lane.is_reference or lane.expected:
        return lane
    pairs = []
    for record in records:
        runs = [record.lanes[name].ended_runs for name in (reference or "", lane.lane) if name in record.lanes]
        if record.row and record.row.expected and len(runs) == 2 and all(runs):
            pairs.append([is_right(each[-1].text, record.row.expected, WAY) for each in runs])
    return replace(lane, lost=sum(before and not after for before, after in pairs), expected=len(pairs)) if pairs else lane
