"""The record's `quality` -> its table for people: the figures of each lane, what they rest on, and what is usual.

In: the record's `quality`. Out: text. Measures nothing.
"""

from __future__ import annotations

from typing import Any

from inference.record.scale import USUAL
from inference.units import size

ENOUGH_POSITIONS = 200


def quality_table(record: dict[str, Any]) -> str:
    """The figures for people, and what they rest on; the sentence where there are none."""
    if "error" in record:
        return f"no quality figures: {record['error']}"
    lines = [f"{record['other']} against {record['reference']}, on {record['source']}: {record['positions']} positions, up to {record['rows']} rows at once"]
    if record["positions"] < ENOUGH_POSITIONS:
        lines.append(f"Fewer than {ENOUGH_POSITIONS} positions: too few for a verdict.")
    for name, found in record["lanes"].items():
        lines += ["", name, *(f"  {title:<22}{words}" for title, words in figure_rows(found))]
    for way, held in (record.get("expected") or {}).items():
        lines += ["", f"expected answers ({way}): {held['right_reference']} right in {record['reference']}, {held['right_other']} in {record['other']}, "
                  f"of {held['answers']}; right to wrong {_numbers(held['right_to_wrong'])}, wrong to right {_numbers(held['wrong_to_right'])}; "
                  f"McNemar's exact p {held['mcnemar_p']:.3g}"]  # fmt: skip
    if answers := record.get("answers"):
        lines += ["", f"answers: {answers['identical']} of {answers['n']} identical; of the others {answers['near_ties']} part at a near tie"]
    lines += ["", "for scale:", *(f"  {usual.words()}" for usual in USUAL)]
    if memory := record.get("ram_above_model"):
        lines += ["", "memory above the loaded model: " + ", ".join(f"{name} {size(value)}" for name, value in memory.items())]
    return "\n".join(lines)


def figure_rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    """(title, value with its unit and error) of one lane's figures."""
    return [
        ("divergence, mean", f"{_number(found['kld_mean'])}{_error(found['kld_se'])} nat"),
        ("median, p99, max", f"{_number(found['kld_median'])}, {_number(found['kld_p99'])}, {_number(found['kld_max'])} nat"),
        ("same first choice", f"{100 * found['top1_agreement']:.2f}{_error(100 * found['top1_se'])} %"),
        ("perplexity ratio", f"{found['ppl_ratio']:.4f}{_error(found['ppl_ratio_se'])} ({found['ppl_other']:.2f} against {found['ppl_reference']:.2f})"),
    ]


def _number(value: float) -> str:
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.2g}"


def _error(value: float | None) -> str:
    return "" if value is None else f" ± {_number(value)}"


def _numbers(values: list[int]) -> str:
    return ", ".join(str(value + 1) for value in values) or "none"
