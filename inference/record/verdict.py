"""The lanes of a record against its reference lane: ratios, effects, where the answers part, and the sentence that tells it.

A ratio is other / reference, the reference being the FP32 lane on the CPU; only runs that ended by themselves count. In: the
record's lanes. Out: its `verdict`, and words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inference.record.lanes import ended_runs, lane_title
from inference.units import rate, seconds, size, times

REFERENCE = "cpu:fp32"


def verdict(lanes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The record's `verdict`; `identical` and `first_divergence` hold for all pairs, and again for each."""
    reference = lanes.get(REFERENCE)
    pairs = [_pair(name, lane, reference) for name, lane in lanes.items() if name != REFERENCE and lane["n"]] if reference and reference["n"] else []
    return {
        "pairs": pairs,
        "device_effect": _effect(lanes, "cuda:bf16", REFERENCE),
        "precision_effect": _effect(lanes, "cuda:nf4", "cuda:bf16"),
        "identical": all(pair["identical"] for pair in pairs) if pairs else None,
        "first_divergence": min((pair["first_divergence"] for pair in pairs if not pair["identical"]), default=None),
    }


def _pair(name: str, lane: dict[str, Any], reference: dict[str, Any]) -> dict[str, Any]:
    medians = {"total": "total_s", "decode": "decode_tps", "ttft": "ttft_s"}
    apart = first_difference(ended_runs(reference)[-1]["token_ids"], ended_runs(lane)[-1]["token_ids"])
    return {
        "reference": REFERENCE,
        "other": name,
        **{short: _divide(lane["median"][key], reference["median"][key]) for short, key in medians.items()},
        "load": _divide((lane["load"] or {}).get("total_s"), (reference["load"] or {}).get("total_s")),
        "memory": _divide(lane["weights_bytes"], reference["weights_bytes"]),
        "identical": apart is None,
        "first_divergence": apart,
    }


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Index of the first differing id of two answers, the shorter one's length where one continues the other, None if equal."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))


def _effect(lanes: dict[str, dict[str, Any]], top: str, bottom: str) -> float | None:
    if top not in lanes or bottom not in lanes:
        return None
    return _divide(lanes[top]["median"]["decode_tps"], lanes[bottom]["median"]["decode_tps"])


def _divide(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top is not None and bottom else None


def verdict_text(record: dict[str, Any]) -> str:
    """One Markdown paragraph: who was faster at what, by how much, and whether the answers are the same."""
    found = record["verdict"]
    if not found["pairs"]:
        return "No speed-up is shown: it takes two answers that ended by themselves."
    return " ".join(_pair_text(record, pair) for pair in found["pairs"]) + " " + _answers_text(record)


def _pair_text(record: dict[str, Any], pair: dict[str, Any]) -> str:
    other, reference = record["lanes"][pair["other"]], record["lanes"][pair["reference"]]
    parts = []
    if pair["decode"]:
        parts.append(f"wrote **{times(pair['decode'], 'faster', 'slower', 'about as fast')}** {_numbers(other, reference, 'decode_tps', rate)}")
    if pair["ttft"]:
        parts.append(f"gave its first token **{times(pair['ttft'], 'later', 'sooner', 'about as soon')}** {_numbers(other, reference, 'ttft_s', seconds)}")
    if pair["memory"]:
        held = f"({size(other['weights_bytes'])} against {size(reference['weights_bytes'])})"
        parts.append(f"holds its weights in **{pair['memory']:.2f} times** the memory {held}")
    sentence = f"{lane_title(other)} " + ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1] + f", compared with {lane_title(reference)}."
    if other["device"] != reference["device"]:
        sentence += " Device and precision differ at once here, so the speed is not the quantization's doing."
    return sentence


def _numbers(other: dict[str, Any], reference: dict[str, Any], key: str, words: Any) -> str:
    return f"({words(other['median'][key])} against {words(reference['median'][key])})"


def _answers_text(record: dict[str, Any]) -> str:
    pairs, lanes = record["verdict"]["pairs"], record["lanes"]
    if len(pairs) == 1:
        told = f"The answers {_apart(pairs[0])}."
    else:
        told = "Held against that answer, " + "; ".join(f"the one of {lane_title(lanes[pair['other']])} and it {_apart(pair)}" for pair in pairs) + "."
    if record["verdict"]["identical"]:
        return told
    counts = sorted({ended_runs(lanes[name])[-1]["new_tokens"] for pair in pairs for name in (pair["reference"], pair["other"])})
    length = f" The answers have different lengths ({' and '.join(map(str, counts))} tokens)." if len(counts) > 1 else ""
    return f"{told}{length} One answer says nothing on quality."


def _apart(pair: dict[str, Any]) -> str:
    return "are identical, token for token" if pair["identical"] else f"part at token {pair['first_divergence'] + 1}"
