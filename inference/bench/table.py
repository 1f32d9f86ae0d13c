"""The bench's result for people: a sentence a lane, a table, and rows of figures that were measured elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from inference import terminal
from inference.bench.lengths import lengths_words
from inference.errors import WrongArguments
from inference.record import grid
from inference.record.figures import FIRST_TOKEN, LOAD, SPEED, TOTAL, WEIGHTS
from inference.units import UNKNOWN, count, same_size

FIGURES = (SPEED, FIRST_TOKEN, TOTAL, LOAD, WEIGHTS)
HANG = 2
COLUMNS = ("lane", "way", "path", *(figure.title.lower() for figure in FIGURES), "n")
Entry = tuple[str, dict[str, Any]]  # what it is of, and what was found


def bench_table(result: dict[str, Any], width: int = terminal.USUAL_WIDTH) -> str:
    """Of each lane and prompt length a sentence, a row for each way, the ratios and what was checked, then all lengths together; at most `width` columns wide."""
    entries = list(_entries(result))
    rows: list[tuple[str, ...]] = [COLUMNS]
    for name, found in entries:
        rows += [row(name, way, found[way]) for way in ("plain", "ours") if way in found]
        rows += [row(name, peer, figures) for peer, figures in found["peers"].items()]
    told, checked = ("\n".join(words(name, found) for name, found in entries) for words in (_in_short, _check))
    together = [lengths_words(result["by_length"], width)] if "by_length" in result else []
    return "\n\n".join([terminal.wrapped(told, width, HANG), grid.fitted(rows, width), terminal.wrapped(checked, width, HANG), *together])


def _entries(result: dict[str, Any]) -> Iterator[Entry]:
    for lane, found in result["lanes"].items():
        if "lengths" in found:
            measured = [one for one in found["lengths"] if "why_not" not in one]
            yield from ((f"{lane}, {count(one['ours']['prompt_tokens'])}", one if one is measured[0] else one | {"note": None}) for one in measured)
        else:
            yield lane, found


def _in_short(name: str, found: dict[str, Any]) -> str:
    if "plain" not in found:
        speed = found["ours"].get(SPEED.key)
        told = "has no speed, which takes two tokens" if speed is None else f"writes {SPEED.words(speed)}"
        return f"{name}: our lane {told}; plain generate was left out."
    ratio = found["ratio"].get(SPEED.short)
    if not ratio:
        return f"{name}: no speeds to hold together, which takes two tokens."
    both = " against ".join(SPEED.words(found[way].get(SPEED.key)) for way in ("ours", "plain"))
    words = "as fast as" if same_size(ratio) else f"{SPEED.ratio_words(ratio)} than"
    same = {True: ", with the same tokens", False: ", with other tokens"}.get(found["tokens_equal"], "")
    return f"{name}: our lane writes {words} plain generate{_computing(found)} ({both}){same}."


def _computing(found: dict[str, Any]) -> str:
    """What plain computes in, where that is not what ours does."""
    plain, ours = (found[way].get("compute_dtype") for way in ("plain", "ours"))
    return f" in {plain}" if plain != ours else ""


def row(name: str, way: str, figures: dict[str, Any]) -> tuple[str, ...]:
    """One way's figures in words, in the order of COLUMNS."""
    return (name, way, figures.get("path") or UNKNOWN, *(each.words(figures.get(each.key)) for each in FIGURES), str(figures.get("n", UNKNOWN)))


def _check(name: str, found: dict[str, Any]) -> str:
    ratios = ", ".join(f"{short} {value:.2f}" for short, value in found["ratio"].items() if value is not None)
    parts = [
        *([f"ours / plain: {ratios}"] if ratios else []),
        _tokens(found),
        count(found["distinct_tokens"], "distinct token"),
        *_shares(found),
        *_logits(found.get("logits")),
    ]
    return f"{name}: {'; '.join(parts)}{_note(found.get('note'))}"


def _tokens(found: dict[str, Any]) -> str:
    if found["tokens_equal"] is None:
        return f"the tokens were not looked at: {found['tokens_why_not'].rstrip('.')}"
    against = found["tokens_against"]
    if found["fork"] is None:
        return f"the tokens are those of {against}" if found["tokens_equal"] else "OUR TOKENS DIFFER BETWEEN ROUNDS"
    return f"the tokens part from {against} at {fork_words(found['fork'])}"


def fork_words(fork: dict[str, Any]) -> str:
    """Where an answer parts, by what, and whether rounding explains it."""
    kind = {True: "a rounding fork", False: "NOT a rounding fork", None: f"not judged: {fork['why_not']}"}[fork["rounding"]]
    numbers = [f"margin {fork['margin']:.2g}", f"the ways' logits there {fork['ways_difference']:.2g} apart"]
    if fork["plain_ways_part"] is not None:
        numbers.append(f"plain's own two ways {'part' if fork['plain_ways_part'] else 'agree'} there")
    if fork["distance_ours"] is not None:
        numbers.append(f"from the same weights in FP32 ours are {fork['distance_ours']:.2g} away, plain's {fork['distance_plain']:.2g}")
    return f"{fork['index'] + 1}, {kind} ({', '.join(numbers)})"


def _shares(found: dict[str, Any]) -> list[str]:
    parts = []
    if share := found.get("bandwidth_share"):
        parts.append(f"decode reads its weights at {share:.0%} of the {found['read_bandwidth'] / 1e9:.1f} GB/s that a loop of loads reads")
    if share := found.get("peak_share"):
        parts.append(f"the first token comes at {share:.0%} of the {found['fma_peak'] / 1e9:.0f} GFLOP/s that these threads multiply and add at")
    return parts


def _note(note: str | None) -> str:
    return f"\n{note[:1].upper()}{note[1:]}." if note else ""


def _logits(found: dict[str, Any] | None) -> list[str]:
    if not found:
        return []
    if "why_not" in found:
        return [f"the log-probabilities were not looked at: {found['why_not'].rstrip('.')}"]
    return [
        f"log-probabilities on {found['positions']} positions: ours at most {found['steps']:.2g} nat from plain's one at a time and "
        f"{found['rows']:.2g} all at once, plain's own two ways {found['plain_ways']:.2g} apart"
    ]


def quoted(words: str) -> tuple[str, dict[str, Any]]:
    """`NAME=DECODE_TPS,TTFT_S,TOTAL_S`, figures that somebody else measured -> a peer of the table; raises WrongArguments."""
    name, _, numbers = words.partition("=")
    try:
        decode_tps, ttft_s, total_s = found = [float(number) for number in numbers.split(",")]
        good = bool(name.strip()) and all(math.isfinite(number) and number >= 0 for number in found)
    except ValueError:
        good = False
    if not good:
        raise WrongArguments(f"--quote takes NAME=DECODE_TPS,TTFT_S,TOTAL_S, such as llama.cpp=239,0.0094,0.215, not {words!r}.")
    return name, {"decode_tps": decode_tps, "ttft_s": ttft_s, "total_s": total_s, "path": "quoted, not measured", "quoted": True}
