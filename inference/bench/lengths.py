"""Our lanes by the prompt's length: one table and charts over lanes and lengths, and where a lane's first token passes one and ten seconds.

In: the bench's lanes, each with an entry a length. Out: plain data for the JSON (`by_length`), and the same for people. A place between two
measured lengths is interpolated and said to be; beyond the longest nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from inference import terminal
from inference.plot import plot
from inference.record import grid
from inference.record.figures import FIRST_TOKEN, MEMORY, SPEED
from inference.units import UNKNOWN, many, seconds

WAITS_S = (1.0, 10.0)
COLUMNS = ("prompt", "lane", "first token", "context", "speed", "memory")
HANG = 2
MEMORY_NOTE = "VRAM is what torch reserved at most in that run. RAM is the process's peak over its imports so far, its load included: it never falls."
Point = dict[str, Any]


def by_length(lanes: dict[str, Any]) -> dict[str, Any]:
    """Of each lane its `points`, the shortest prompt first, and where its first token `passes` each of WAITS_S."""
    found = {}
    for lane, entry in lanes.items():
        points = [_point(one) for one in entry.get("lengths", [entry])]
        found[lane] = {"points": points, "passes": [_passes(points, wait_s) for wait_s in WAITS_S]}
    return found


def all_measured(result: dict[str, Any]) -> bool:
    """Whether every length that was asked for was measured on every lane, and its log-probabilities where they were."""
    return not any("why_not" in one for entry in result["lanes"].values() for one in (*entry.get("lengths", ()), entry.get("logits", {})))


def _point(entry: dict[str, Any]) -> Point:
    """One length of our lane; `context_tokens`: the first and the last position that it wrote at; or why it was not measured."""
    if "why_not" in entry:
        return dict(entry)
    ours = entry["ours"]
    prompt, vram = ours["prompt_tokens"], ours["vram_reserved"]
    return {
        "prompt_tokens": prompt, "ttft_s": ours["ttft_s"], "decode_tps": ours["decode_tps"], "context_tokens": [prompt + 1, prompt + ours["new_tokens"]],
        "memory_bytes": ours["ram_rss_peak"] if vram is None else vram, "memory_kind": "RAM" if vram is None else "VRAM",
    }  # fmt: skip


def _passes(points: Sequence[Point], wait_s: float) -> dict[str, Any]:
    """The prompt's length at which the first token takes `wait_s`: `tokens`, on a straight line `between` two measured lengths, with `words`."""
    known = [(point["prompt_tokens"], point["ttft_s"]) for point in points if point.get("ttft_s") is not None]
    found: dict[str, Any] = {"seconds": wait_s, "tokens": None, "between": None}
    if not known:
        return found | {"words": "not measured"}
    if known[0][1] >= wait_s:
        return found | {"words": f"already at {many(known[0][0], 'token')}, the shortest that was measured"}
    for (low, before), (high, after) in pairwise(known):
        if after >= wait_s:
            tokens = low + (high - low) * (wait_s - before) / (after - before)
            return found | {"tokens": tokens, "between": [low, high], "words": f"at about {tokens:,.0f} tokens (interpolated between {low:,} and {high:,})"}
    return found | {"words": f"at no measured length (the longest: {many(known[-1][0], 'token')})"}


def lengths_words(found: dict[str, Any], width: int) -> str:
    """The table, the charts of first token and speed, and sentences, at most `width` columns wide."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    tokens = sorted({point["prompt_tokens"] for lane in found.values() for point in lane["points"]})
    for length in tokens:
        rows += [_row(lane, point) for lane, each in found.items() for point in each["points"] if point["prompt_tokens"] == length]
    first = {lane: [(point["prompt_tokens"], point["ttft_s"]) for point in each["points"] if point.get("ttft_s")] for lane, each in found.items()}
    speed = {lane: [(point["context_tokens"][-1], point["decode_tps"]) for point in each["points"] if point.get("decode_tps")] for lane, each in found.items()}
    drawn = (
        ("First token by the prompt's tokens (both axes logarithmic)", plot(first, seconds, width, WAITS_S, log_y=True)),
        ("Speed by the context's last position", plot(speed, SPEED.words, width)),
    )
    charts = [f"{title}\n{chart}" for title, chart in drawn if chart]  # answers of one token have no speed
    return "\n\n".join(["By length, our lanes", grid.fitted(rows, width), terminal.wrapped(MEMORY_NOTE, width), *charts, _sentences(found, width)])


def _row(lane: str, point: Point) -> tuple[str, ...]:
    length = f"{point['prompt_tokens']:,}"
    if "why_not" in point:
        return (length, lane, *[UNKNOWN] * 4)
    first, last = point["context_tokens"]
    memory = f"{MEMORY.words(point['memory_bytes'])} {point['memory_kind']}"
    return (length, lane, FIRST_TOKEN.words(point["ttft_s"]), f"{first:,} to {last:,}", SPEED.words(point["decode_tps"]), memory)


def _sentences(found: dict[str, Any], width: int) -> str:
    told = []
    for lane, each in found.items():
        passes = "; ".join(f"{seconds(one['seconds'])} {one['words']}" for one in each["passes"])
        told.append(f"{lane}: the first token passes {passes}.")
        told += [
            f"{many(point['prompt_tokens'], 'token')} {'was' if point['prompt_tokens'] == 1 else 'were'} not measured. {point['why_not']}"
            for point in each["points"]
            if "why_not" in point
        ]
    return terminal.wrapped("\n".join(told), width, HANG)
