"""The lanes of a record against its reference lane: ratios, effects, where the answers part, the sentence that tells it, and the summary.

A ratio is other / reference, the reference being the FP32 lane on the CPU, or bf16 on the GPU where that one is not among the lanes; only runs that came to their end count, by themselves
or at the token limit, and which of the two is told. Device effect and precision effect are kept apart where the bridge lane was
measured; without it no figure is credited to the quantization alone. In: the record's lanes. Out: its `verdict`, and words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from inference import lanes as names
from inference.record.figures import FIGURES, FIRST_TOKEN, SPEED, WEIGHTS, ratio
from inference.record.model import LaneRecord, Pair, Record, RunRecord, Verdict
from inference.units import count

REFERENCE = str(names.REFERENCE)
IT_TAKES = f"it takes two answers that were neither stopped nor failed, one of them of the lane {REFERENCE}, or {names.CUDA_BF16} where that is not among them"
# what the two effects are the ratio of, in decode: only one thing changes in each
DEVICE_EFFECT = (str(names.CUDA_BF16), REFERENCE)
PRECISION_EFFECT = (str(names.CUDA_NF4), str(names.CUDA_BF16))
AT_THE_CLIENT = "It is a server elsewhere: its times are taken here, so the network is in them."
Lines = list[tuple[str, str]]


def verdict(lanes: Mapping[str, LaneRecord]) -> Verdict:
    """The record's `verdict`; `identical` and `first_divergence` hold for all pairs, and again for each."""
    name_of_it = reference_of(lanes)
    reference = lanes.get(name_of_it)
    pairs: tuple[Pair, ...] = ()
    if reference and reference.n:
        pairs = tuple(_pair(name, lane, name_of_it, reference) for name, lane in lanes.items() if name != name_of_it and lane.n)
    return Verdict(
        pairs=pairs,
        device_effect=_effect(lanes, *DEVICE_EFFECT),
        precision_effect=_effect(lanes, *PRECISION_EFFECT),
        identical=all(pair.identical for pair in pairs) if pairs else None,
        first_divergence=min((pair.first_divergence for pair in pairs if pair.first_divergence is not None), default=None),
    )


def reference_of(lanes: Iterable[str]) -> str:
    """The lane that the others are held against; the FP32 one where there is none to be one."""
    there = set(lanes)
    return next((str(name) for name in names.REFERENCES if str(name) in there), REFERENCE)


def subject(record: Record) -> str:
    """What was compared, as a heading: "4-bit against full precision" where it was just that, else the lanes."""
    lanes = [names.LaneName.parse(name) for name in record.lanes]
    if any(lane.four_bit for lane in lanes) and any(lane.full for lane in lanes) and all(lane.four_bit or lane.full for lane in lanes):
        return "4-bit against full precision"
    return " against ".join(lane.title(name) for name, lane in record.lanes.items())


def _pair(name: str, lane: LaneRecord, name_of_it: str, reference: LaneRecord) -> Pair:
    ours, theirs = reference.ended_runs[-1], lane.ended_runs[-1]
    if ours.token_ids is None or theirs.token_ids is None:
        apart, identical = None, ours.text == theirs.text
    else:
        apart = first_difference(ours.token_ids, theirs.token_ids)
        identical = apart is None
    ratios = {figure.short: figure.ratio(lane, reference) for figure in FIGURES if figure.short}
    return Pair(reference=name_of_it, other=name, identical=identical, first_divergence=apart, **ratios)


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Index of the first differing id of two answers, the shorter one's length where one continues the other, None if equal."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))


def _effect(lanes: Mapping[str, LaneRecord], top: str, bottom: str) -> float | None:
    if top not in lanes or bottom not in lanes:
        return None
    return ratio(SPEED.read(lanes[top]), SPEED.read(lanes[bottom]))


def verdict_text(record: Record) -> str:
    """One Markdown paragraph: who was faster at what, by how much, and whether the answers are the same."""
    pairs = record.verdict.pairs
    if not pairs:
        return f"No speed-up is shown: {IT_TAKES}."
    return " ".join([*(_pair_text(record, pair) for pair in pairs), _answers_text(record)])


def _pair_text(record: Record, pair: Pair) -> str:
    other, reference = record.lanes[pair.other], record.lanes[pair.reference]
    parts = []
    for figure, verb in ((SPEED, "wrote"), (FIRST_TOKEN, "gave its first token")):
        if found := figure.ratio(other, reference):
            parts.append(f"{verb} **{figure.ratio_words(found)}** ({figure.numbers(other, reference)})")
    if found := WEIGHTS.ratio(other, reference):
        parts.append(f"holds its weights in **{found:.2f} times** the memory ({WEIGHTS.numbers(other, reference)})")
    told = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + "".join(parts[-1:])
    sentence = f"{other.title()} {told}, compared with {reference.title()}."
    if other.elsewhere:
        sentence += f" {AT_THE_CLIENT}"
    elif other.device != reference.device:
        what = "quantization" if names.LaneName.parse(pair.other).four_bit else "precision"
        sentence += f" Device and precision differ at once here, so the speed is not the {what}'s doing."
    return sentence


def _answers_text(record: Record) -> str:
    pairs = record.verdict.pairs
    if len(pairs) == 1:
        told = f"The answers {_apart(record, pairs[0])}."
    else:
        each = (f"the one of {record.lanes[pair.other].title()} and it {_apart(record, pair)}" for pair in pairs)
        told = f"Held against the answer of {record.lanes[pairs[0].reference].title()}, " + "; ".join(each) + "."
    told += _cut(record)
    if record.verdict.identical:
        return told
    counts = sorted({run.new_tokens for run in _last_runs(record).values() if run.new_tokens is not None})
    length = f" The answers have different lengths ({' and '.join(map(str, counts))} tokens)." if len(counts) > 1 else ""
    return f"{told}{length} One answer says nothing on quality."


def _apart(record: Record, pair: Pair) -> str:
    if record.lanes[pair.other].elsewhere:
        return "are the same text" if pair.identical else "are different texts"
    return "are identical, token for token" if pair.first_divergence is None else f"part at token {pair.first_divergence + 1}"


def _last_runs(record: Record) -> dict[str, RunRecord]:
    """The run of each compared lane that its answer is taken from, by name."""
    compared = dict.fromkeys(name for pair in record.verdict.pairs for name in (pair.reference, pair.other))
    return {name: record.lanes[name].ended_runs[-1] for name in compared}


def cut_at(record: Record, runs: Iterable[RunRecord], before: str = "") -> str:
    """Where answers were cut: at the limit that was asked, which a server's own may be under."""
    limit = record.request.max_new_tokens
    own = any(run.finish_reason == "length" and run.token_ids is None and run.new_tokens not in (None, limit) for run in runs)
    return "the token limit" if own else f"{before}{count(limit)}"


def _cut(record: Record) -> str:
    """Which answers did not end by themselves: a cut one is no whole answer, however equal."""
    runs = _last_runs(record)
    cut = [record.lanes[name].title() for name, run in runs.items() if run.finish_reason == "length"]
    limit = "cut at " + cut_at(record, runs.values(), "the limit of ")
    if not cut:
        return ""
    if len(cut) < len(runs):
        return f" The answer of {' and that of '.join(cut)} {'was' if len(cut) == 1 else 'were'} {limit}."
    return f" {'Both' if len(cut) == 2 else 'All'} were {limit}."


def summary_lines(record: Record) -> Lines:
    """(what, words with numbers) pairs; one pair that says why, where nothing may be compared."""
    lines: Lines = []
    if not record.verdict.pairs:
        lines.append(("Summary", f"no ratios: {IT_TAKES}"))
    for pair in record.verdict.pairs:
        other, reference = record.lanes[pair.other], record.lanes[pair.reference]
        lines.append(("Compared", f"{other.title()} with {reference.title()}"))
        lines += [(figure.title, words) for figure in FIGURES if (words := figure.compared(other, reference))]
        lines += [("Times", AT_THE_CLIENT)] if other.elsewhere else []
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
    if not lines and any(lanes[pair.other].device != lanes[pair.reference].device for pair in verdict.pairs if not lanes[pair.other].elsewhere):
        apart = "it takes a whole answer of cuda:bf16" if str(names.CUDA_BF16) in lanes else "name the lane cuda:bf16 as well (--lanes)"
        lines.append(("Effects", f"device and precision differ at once; {apart} to get them apart"))
    return lines


def _lengths(record: Record) -> Lines:
    known = {name: {run.new_tokens for run in lane.ended_runs if run.new_tokens is not None} for name, lane in record.lanes.items()}
    counts = {name: sorted(each) for name, each in known.items() if each}
    if len(set[int]().union(*counts.values())) < 2:
        return []
    each = (f"{' or '.join(map(str, lengths))} token{'s' * (lengths != [1])} ({name})" for name, lengths in counts.items())
    return [("Lengths differ", f"the totals are of {', '.join(each)}")]
