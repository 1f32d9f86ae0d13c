"""The record -> its summary: load, speed, memory and size as ratios, each word beside its numbers.

A ratio is other / reference, the reference being the FP32 lane on the CPU. Device effect and precision effect are kept
apart where the bridge lane was measured; without it no figure is credited to the quantization alone.
"""

from __future__ import annotations

from typing import Any

from inference.record.lanes import at_rest, ended_runs, held, lane_title
from inference.units import rate, seconds, size, times

Lines = list[tuple[str, str]]


def summary_lines(record: dict[str, Any]) -> Lines:
    """(what, words with numbers) pairs; one pair that says why, where nothing may be compared."""
    verdict, lanes = record["verdict"], record["lanes"]
    lines: Lines = []
    if not verdict["pairs"]:
        lines.append(("Summary", "no ratios: it takes two answers that ended by themselves, one of them of the lane cpu:fp32"))
    for pair in verdict["pairs"]:
        other, reference = lanes[pair["other"]], lanes[pair["reference"]]
        lines.append(("Compared", f"{lane_title(other)} with {lane_title(reference)}"))
        lines += [(title, words) for title, words in _pair(other, reference) if words]
    return lines + _effects(record) + _lengths(record)


def _pair(other: dict[str, Any], reference: dict[str, Any]) -> Lines:
    load, base_load = ((lane["load"] or {}).get("total_s") for lane in (other, reference))
    (kind, mine), (base_kind, base) = held(other), held(reference)
    kinds = f", {kind} against {base_kind}" if kind != base_kind else f", {kind}"
    return [
        ("Load", _words(load, base_load, seconds, "longer", "shorter", _cold(other, reference))),
        ("First token", _words(other["median"]["ttft_s"], reference["median"]["ttft_s"], seconds, "later", "sooner")),
        ("Speed", _words(other["median"]["decode_tps"], reference["median"]["decode_tps"], rate, "faster", "slower")),
        ("Total", _words(other["median"]["total_s"], reference["median"]["total_s"], seconds, "longer", "shorter")),
        ("Memory", _words(mine, base, size, "higher", "lower", kinds)),
        ("RAM at rest", _words(at_rest(other), at_rest(reference), size, "higher", "lower", ", USS of the lane's process")),
        ("Size", _words(other["weights_bytes"], reference["weights_bytes"], size, "larger", "smaller", ", weights")),
    ]


def _words(mine: float | None, base: float | None, words: Any, more: str, less: str, condition: str = "") -> str:
    """ "2.0 times slower (5.00 tok/s against 10.0 tok/s)"; empty where one is unknown."""
    if mine is None or not base or not mine:
        return ""
    return f"{times(mine / base, more, less)} ({words(mine)} against {words(base)}){condition}"


def _cold(other: dict[str, Any], reference: dict[str, Any]) -> str:
    cold = [(lane["load"] or {}).get("cold") for lane in (other, reference)]
    return ", both cold" if all(cold) else ", both warm" if not any(cold) else ", one cold and one warm"


def _effects(record: dict[str, Any]) -> Lines:
    verdict, lanes = record["verdict"], record["lanes"]
    lines: Lines = []
    for title, top, bottom in (("device", "cuda:bf16", "cpu:fp32"), ("precision", "cuda:nf4", "cuda:bf16")):
        if verdict[f"{title}_effect"] is not None:
            mine, base = (lanes[name]["median"]["decode_tps"] for name in (top, bottom))
            lines.append((f"{title.capitalize()} effect", _words(mine, base, rate, "faster", "slower", f", decode of {top} against {bottom}")))
    if not lines and len({lane["device"] for lane in lanes.values() if lane["n"]}) > 1:
        lines.append(("Effects", "device and precision differ at once; name the lane cuda:bf16 as well (--lanes) to get them apart"))
    return lines


def _lengths(record: dict[str, Any]) -> Lines:
    counts = {name: ended_runs(lane)[-1]["new_tokens"] for name, lane in record["lanes"].items() if lane["n"]}
    if len(set(counts.values())) < 2:
        return []
    return [("Lengths differ", "the totals are of " + ", ".join(f"{n} tokens ({name})" for name, n in counts.items()))]
