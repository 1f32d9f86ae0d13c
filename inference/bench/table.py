"""The bench's result for people: a sentence a lane, a table, and rows of figures that were measured elsewhere."""

from __future__ import annotations

from typing import Any

from inference import terminal
from inference.errors import WrongArguments
from inference.record import grid
from inference.record.figures import FIRST_TOKEN, LOAD, SPEED, TOTAL, WEIGHTS
from inference.units import UNKNOWN, same_size

FIGURES = (SPEED, FIRST_TOKEN, TOTAL, LOAD, WEIGHTS)
HANG = 2
COLUMNS = ("lane", "way", "path", *(figure.title.lower() for figure in FIGURES), "n")


def bench_table(result: dict[str, Any], width: int = terminal.USUAL_WIDTH) -> str:
    """What was found of each lane in a sentence, a row a lane and way, then the ratios and what was checked of the tokens, at most `width` columns wide."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    for lane, found in result["lanes"].items():
        rows += [row(lane, way, found[way]) for way in ("plain", "ours")]
        rows += [row(lane, name, figures) for name, figures in found["peers"].items()]
    told, checked = ("\n".join(words(lane, found) for lane, found in result["lanes"].items()) for words in (_in_short, _check))
    return "\n\n".join([terminal.wrapped(told, width, HANG), grid.fitted(rows, width), terminal.wrapped(checked, width, HANG)])


def _in_short(lane: str, found: dict[str, Any]) -> str:
    ratio = found["ratio"].get(SPEED.short)
    if not ratio:
        return f"{lane}: no speeds to hold together, which takes two tokens."
    both = " against ".join(SPEED.words(found[way].get(SPEED.key)) for way in ("ours", "plain"))
    words = "as fast as" if same_size(ratio) else f"{SPEED.ratio_words(ratio)} than"
    same = "with the same tokens" if found["tokens_equal"] else "with other tokens"
    return f"{lane}: our lane writes {words} plain generate ({both}), {same}."


def row(lane: str, way: str, figures: dict[str, Any]) -> tuple[str, ...]:
    """One way's figures in words, in the order of COLUMNS."""
    return (lane, way, figures.get("path") or UNKNOWN, *(each.words(figures.get(each.key)) for each in FIGURES), str(figures.get("n", UNKNOWN)))


def _check(lane: str, found: dict[str, Any]) -> str:
    ratios = ", ".join(f"{name} {value:.2f}" for name, value in found["ratio"].items() if value is not None)
    fork = found["fork"]
    if fork is None:
        tokens = "the tokens are equal" if found["tokens_equal"] else "the tokens differ between rounds"
    else:
        kind = "a near tie" if fork["near_tie"] else "NOT a near tie"
        tokens = f"the tokens part at {fork['index'] + 1}, {kind} (margin {fork['margin']:.3g}, largest logit difference {fork['max_logit_diff']:.3g})"
    share = found.get("bandwidth_share")
    memory = f"; decode reads its weights at {share:.0%} of the {found['read_bandwidth'] / 1e9:.1f} GB/s that this memory gives" if share else ""
    return (
        f"{lane}: ours / plain: {ratios}; {tokens}; {found['distinct_tokens']} distinct tokens{memory}{_logits(found.get('logits'))}{_note(found.get('note'))}"
    )


def _note(note: str | None) -> str:
    return f"\n{note[:1].upper()}{note[1:]}." if note else ""


def _logits(found: dict[str, Any] | None) -> str:
    if not found:
        return ""
    return (
        f"; log-probabilities on {found['positions']} positions: ours at most {found['steps']:.2g} nat from plain's one at a time and "
        f"{found['rows']:.2g} all at once, plain's own two ways {found['plain_ways']:.2g} apart"
    )


def quoted(words: str) -> tuple[str, dict[str, Any]]:
    """`NAME=DECODE_TPS,TTFT_S,TOTAL_S`, figures that somebody else measured -> a peer of the table; raises WrongArguments."""
    name, _, numbers = words.partition("=")
    try:
        decode_tps, ttft_s, total_s = (float(number) for number in numbers.split(","))
    except ValueError:
        raise WrongArguments(f"--quote takes NAME=DECODE_TPS,TTFT_S,TOTAL_S, such as llama.cpp=239,0.0094,0.215, not {words!r}.") from None
    return name, {"decode_tps": decode_tps, "ttft_s": ttft_s, "total_s": total_s, "path": "quoted, not measured", "quoted": True}
