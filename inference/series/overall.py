"""All records of a series -> who won over all of them, in the scoreboard's own facts, and how the lanes are called there.

In: records of one set of lanes. Out: one record that holds all their runs, facts, names. Knows no engine and no page.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from inference.lanes import DEVICES, LaneName, plain_title
from inference.record import scoreboard
from inference.record.model import LaneRecord, Pair, Record, RunFigures
from inference.record.quality import could_show
from inference.record.scoreboard import Fact
from inference.record.scores import Flips
from inference.record.verdict import verdict
from inference.series.expected import flips
from inference.series.series import LaneMedians
from inference.units import UNKNOWN

CHANCE = 0.05  # how often chance alone may split right answers so: more often, nobody is better


def lane_titles(record: Record) -> dict[str, str]:
    """Each lane as a heading for everybody: "4-bit (NF4)", and with its device where two are of one precision."""
    precisions = {name: lane.precision or LaneName.parse(name).precision for name, lane in record.lanes.items()}
    plain = {name: record.lanes[name].server or plain_title(precision) for name, precision in precisions.items()}
    devices = {name: DEVICES.get(lane.device or LaneName.parse(name).device, "") for name, lane in record.lanes.items()}
    alike = {name for name in plain if list(plain.values()).count(plain[name]) > 1}
    return {name: f"{title}, {devices[name]}" if name in alike and devices[name] else title for name, title in plain.items()}


def overall(records: Sequence[Record]) -> Record:
    """The last record with each lane's runs of all of them, and the figures over these; its verdict on the answers is of the last prompt."""
    lanes = {name: _over_all(lane, [record.lanes[name] for record in records if name in record.lanes]) for name, lane in records[-1].lanes.items()}
    return replace(records[-1], lanes=lanes, verdict=verdict(lanes))


def _over_all(last: LaneRecord, each: Sequence[LaneRecord]) -> LaneRecord:
    runs = tuple(run for lane in each for run in lane.runs)
    counted = [run for run in runs if run.counted]
    loaded = next((lane for lane in reversed(each) if lane.precision or lane.elsewhere), last)
    median, low, high = (RunFigures.over(counted, way) for way in (statistics.median, min, max))
    return replace(loaded, runs=runs, n=len(counted), median=median, min=low, max=high)


def facts(records: Sequence[Record], medians: dict[str, LaneMedians]) -> tuple[Fact, ...]:
    """Who is faster over all prompts, how many answers are the same, and how many hold what was expected; empty but for two lanes."""
    if not records:
        return ()
    whole = overall(records)
    figures = scoreboard.facts(whole)[:-1]
    return (*figures, *_same(records), *_right(whole, records, medians)) if figures else ()


def beside(records: Sequence[Record], told: Sequence[Fact]) -> str:
    """What must be said beside the facts `told` of all these, and of more than two lanes who writes fastest; where nothing is held together, why nobody won."""
    whole = overall(records)
    parts = [scoreboard.caveat(whole), _unlike_prompts(whole, records), _could_show(whole, records) if told else ""]
    return scoreboard.no_winner(whole) or " ".join(filter(None, parts))


def _unlike_prompts(whole: Record, records: Sequence[Record]) -> str:
    """Where a lane failed at prompts that another one answered: a longer prompt takes longer, so their figures are of unlike things."""
    held = dict.fromkeys(lane for pair in whole.verdict.pairs for lane in (pair.other, pair.reference))
    answered = {lane: [number for number, record in enumerate(records) if lane in record.lanes and record.lanes[lane].n] for lane in held}
    if len(set(map(tuple, answered.values()))) < 2:
        return ""
    told = ", ".join(f"{scoreboard.name(whole, lane)} {len(numbers)} of {len(records)}" for lane, numbers in answered.items())
    return f"The lanes did not answer the same prompts ({told}), so part of what sets their figures apart may be the prompts."


def _could_show(whole: Record, records: Sequence[Record]) -> str:
    """How large a change of right answers these prompts could have shown; empty where no two answers are held against an expected one."""
    found = _flips(whole, records)
    words = could_show(found.answers, found.resolution) if found and found.resolution else ""
    return f"{words[:1].upper()}{words[1:]}." if words else ""


def _flips(whole: Record, records: Sequence[Record]) -> Flips | None:
    """What the first pair of lanes made of the prompts that both answered and something is expected of; None without any."""
    pair = next(iter(whole.verdict.pairs), None)
    judged = [record for record in records if pair and record.row and record.row.expected and _counted(record, pair)]
    if not pair or not judged:
        return None
    reference, other = ([record.lanes[lane].ended_runs[-1].text for record in judged] for lane in (pair.reference, pair.other))
    return flips(reference, other, [record.row.expected or "" for record in judged if record.row], "contains")


def _counted(record: Record, pair: Pair) -> bool:
    return all(lane in record.lanes and record.lanes[lane].n for lane in (pair.reference, pair.other))


def _same(records: Sequence[Record]) -> list[Fact]:
    held = [pair.identical for record in records for pair in record.verdict.pairs]
    if not held:
        return [Fact(scoreboard.TITLES[-1], f"{UNKNOWN}: no prompt was answered by both")]
    if len(held) == sum(held):
        return [Fact(scoreboard.TITLES[-1], f"All {len(held)} the same" if len(held) > 1 else "The same")]
    return [Fact(scoreboard.TITLES[-1], f"{sum(held)} of {len(held)} the same")]


def _judged(record: Record, lane: str) -> int:
    """How many of a lane's answers to a prompt something is expected of."""
    return record.lanes[lane].n if lane in record.lanes and record.row and record.row.expected else 0


def _right(whole: Record, records: Sequence[Record], medians: dict[str, LaneMedians]) -> list[Fact]:
    judged = {name: found for name, found in medians.items() if found.expected}
    if not judged:
        return []
    most = max(found.hold_expected for found in judged.values())
    best = [name for name, found in judged.items() if found.hold_expected == most]
    alike = len({tuple(_judged(record, name) for record in records) for name in judged}) == 1  # of other prompts nobody is better
    told = ", ".join(f"{scoreboard.name(whole, name)} {found.hold_expected} of {found.expected}" for name, found in judged.items())
    flipped = _flips(whole, records)
    sure = flipped is not None and flipped.mcnemar_p < CHANCE
    return [Fact("Right answers", told, best[0] if sure and alike and len(best) == 1 < len(judged) else None)]
