"""The record -> its summary: load, speed, memory and size as ratios, each word beside its numbers.

A ratio is other / reference, the reference being the FP32 lane on the CPU. Device effect and precision effect are kept
apart where the bridge lane was measured; without it no figure is credited to the quantization alone.
"""

from __future__ import annotations

from inference.record.figures import FIGURES, SPEED
from inference.record.model import Record
from inference.record.verdict import DEVICE_EFFECT, IT_TAKES, PRECISION_EFFECT

Lines = list[tuple[str, str]]


def summary_lines(record: Record) -> Lines:
    """(what, words with numbers) pairs; one pair that says why, where nothing may be compared."""
    lines: Lines = []
    if not record.verdict.pairs:
        lines.append(("Summary", f"no ratios: {IT_TAKES}"))
    for pair in record.verdict.pairs:
        other, reference = record.lanes[pair.other], record.lanes[pair.reference]
        lines.append(("Compared", f"{other.title()} with {reference.title()}"))
        lines += [(figure.title, words) for figure in FIGURES if (words := figure.compared(other, reference))]
    return lines + _effects(record) + _lengths(record)


def _effects(record: Record) -> Lines:
    verdict, lanes = record.verdict, record.lanes
    lines: Lines = []
    for title, known, (top, bottom) in (
        ("Device effect", verdict.device_effect, DEVICE_EFFECT),
        ("Precision effect", verdict.precision_effect, PRECISION_EFFECT),
    ):
        if known is not None:
            lines.append((title, f"{SPEED.compared(lanes[top], lanes[bottom])}, decode of {top} against {bottom}"))
    if not lines and len({lane.device for lane in lanes.values() if lane.n}) > 1:
        lines.append(("Effects", "device and precision differ at once; name the lane cuda:bf16 as well (--lanes) to get them apart"))
    return lines


def _lengths(record: Record) -> Lines:
    counts = {name: lane.ended_runs[-1].new_tokens for name, lane in record.lanes.items() if lane.n}
    if len(set(counts.values())) < 2:
        return []
    return [("Lengths differ", "the totals are of " + ", ".join(f"{n} tokens ({name})" for name, n in counts.items()))]
