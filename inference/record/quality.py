"""The record's `quality` -> its table for people, or Markdown: the figures of each lane, what they rest on, and what is usual.

In: the record's `quality`. Out: text. What is usual (`USUAL`) was measured by this project's own command. Measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inference.lanes import short_word
from inference.record import grid
from inference.record.scores import ENOUGH_POSITIONS, Figures, Flips, NoQuality, NoSurvival, Quality, Resolution, Survival
from inference.units import count, percent, share, size

TOO_FEW = f"Fewer than {ENOUGH_POSITIONS} positions: too few for a verdict."


@dataclass(frozen=True)
class Usual:
    """One measured model: divergence in nats, agreement as a share, and the command."""

    model: str
    lanes: str
    positions: int
    kld_mean: float
    top1_agreement: float
    ppl_ratio: float
    command: str

    def words(self) -> str:
        """The row as a sentence."""
        return (
            f"{self.model}, {self.lanes}: {self.kld_mean:.2f} nat, {100 * self.top1_agreement:.0f} % the same first choice, "
            f"perplexity ratio {self.ppl_ratio:.2f}, over {self.positions:,} positions ({self.command})"
        )


USUAL = (
    Usual(
        "SmolLM2-135M-Instruct (Q4_1 before)", "cpu:nf4 against cpu:fp32", 2224, 0.5535, 0.6565, 1.5155,
        "python -m inference quality --text LICENSE --model HuggingFaceTB/SmolLM2-135M-Instruct --lanes cpu:nf4,cpu:fp32",
    ),
    Usual(
        "SmolLM2-135M-Instruct (Q4_1 before)", "cuda:nf4 (H100) against cpu:fp32", 2224, 0.5560, 0.6511, 1.5182,
        "python -m inference quality --text LICENSE --model HuggingFaceTB/SmolLM2-135M-Instruct --lanes cuda:nf4,cpu:fp32",
    ),
    Usual(
        "menu (a fine-tune of that one), its own answers", "cpu:nf4 against cpu:fp32", 1497, 0.0283, 0.9820, 1.0279,
        "python -m inference quality --prompts examples/menu/held_out.jsonl --lanes cpu:nf4,cpu:fp32",
    ),
)  # fmt: skip


def quality_table(found: Quality | NoQuality, ram_above_model: Mapping[str, int] | None = None) -> str:
    """The figures for people, and what they rest on; the sentence where there are none. `ram_above_model` is in bytes, by lane."""
    if isinstance(found, NoQuality):
        return f"no quality figures: {found.error}"
    positions = found.figures.positions
    lines = [
        in_short(found),
        "",
        f"{found.other} against {found.reference}, on {found.source}: {count(positions, 'position')}, up to {count(found.rows, 'row')} at once",
    ]
    if not found.figures.enough:
        lines.append(TOO_FEW)
    for name, figures in found.lanes.items():
        lines += ["", name, grid.text([(f"  {title}", words) for title, words in figure_rows(figures)])]
    for words in remarks(found):
        lines += ["", words]
    lines += ["", "for scale:", *(f"  {usual.words()}" for usual in USUAL)]
    if ram_above_model:
        lines += ["", "memory above the loaded model: " + ", ".join(f"{name} {size(value)}" for name, value in ram_above_model.items())]
    return "\n".join(lines)


def in_short(found: Quality) -> str:
    """What was found, in one sentence."""
    figures, (other, reference) = found.figures, (short_word(name.partition(":")[2]) for name in (found.other, found.reference))
    return (
        f"{other} makes the same first choice as {reference} at {share(figures.top1_agreement)} of {count(figures.positions, 'position')} "
        f"(mean divergence {_number(figures.kld_mean)} nat)."
    )


def quality_markdown(found: Quality, model: str) -> str:
    """The same as a section for a model card."""
    rows = [[grid.bold(cells[0][0]), *(words for _, words in cells)] for cells in zip(*map(figure_rows, found.lanes.values()), strict=True)]
    basis = f"Model {model}, against {found.reference}, on {found.source}: {count(found.figures.positions, 'position')}."
    few = [] if found.figures.enough else [TOO_FEW]
    told = [grid.escape(words) for words in (basis, *few, *remarks(found))]
    return "\n\n".join(["## What quantization changed, measured", told[0], grid.markdown([["", *found.lanes], *rows]), *told[1:]]) + "\n"


def remarks(found: Quality) -> list[str]:
    """What is to be said beside the figures, a paragraph each: flips, survival, equal answers, prompts left out."""
    lines = [_flips_words(found, way, flips) for way, flips in (found.expected or {}).items()]
    if found.survival:
        lines.append(survival_words(found, found.survival))
    if answers := found.answers:
        lines.append(f"answers: {answers.identical} of {answers.n} identical; of the others {answers.near_ties} part at a near tie")
    return [*lines, *(row.words() for row in found.unanswered)]


def figure_rows(found: Figures) -> list[tuple[str, str]]:
    """(title, value with its unit and error) of one lane's figures."""
    return [
        ("divergence, mean", f"{_number(found.kld_mean)}{_error(found.kld_se)} nat"),
        ("median, p99, max", f"{_number(found.kld_median)}, {_number(found.kld_p99)}, {_number(found.kld_max)} nat"),
        ("same first choice", f"{percent(found.top1_agreement).removesuffix(' %')}{_error(100 * found.top1_se)} %"),
        ("perplexity ratio", f"{found.ppl_ratio:.4f}{_error(found.ppl_ratio_se)} ({found.ppl_other:.2f} against {found.ppl_reference:.2f})"),
    ]


def survival_words(found: Quality, kept: Survival | NoSurvival) -> str:
    """The ratio with what it is of, or why there is none."""
    if isinstance(kept, NoSurvival):
        return f"no survival: {kept.base}: {kept.error}"
    return (
        f"survival: {_number(kept.ratio)}{_error(kept.ratio_se)}: {found.other} is {_number(found.figures.kld_mean)} nat from the fine-tune, and the fine-tune "
        f"{_number(kept.base_kld_mean)}{_error(kept.base_kld_se)} nat from its base, {kept.base}\n"
        "  (near 1, 4 bits moved the model as far as fine-tuning did; errors by the delta method over the same positions)"
    )


def _flips_words(found: Quality, way: str, flips: Flips) -> str:
    return (
        f"expected answers ({way}): {flips.right_reference} right in {found.reference}, {flips.right_other} in {found.other}, of {flips.answers}; "
        f"right to wrong {_numbers(flips.right_to_wrong)}, wrong to right {_numbers(flips.wrong_to_right)}; McNemar's exact p {flips.mcnemar_p:.3g}"
        f"{_recovery_words(flips)}{_resolution_words(flips)}"
    )


def _recovery_words(flips: Flips) -> str:
    if flips.recovery is None:
        return "\n  recovery: n/a (the reference has none right)"
    low, high = (f"{100 * share:.1f}" for share in (flips.recovery.low, flips.recovery.high))
    return f"\n  recovery: {100 * flips.recovery.ratio:.1f} % of the reference's right answers (95 % interval {low} to {high} %)"


def _resolution_words(flips: Flips) -> str:
    found = flips.resolution
    if found is None:
        return ""
    needed = f"{found.needed_1_point:,} prompts for 1 point, {found.needed_2_points:,} for 2, {found.needed_5_points:,} for 5"
    return f"\n  {could_show(flips.answers, found)}; it takes {needed} (estimated: 5 % two-sided, power 80 %)"


def could_show(prompts: int, found: Resolution) -> str:
    """How large a change of right answers so many prompts show, in words."""
    of = count(prompts, "prompt")
    if found.detectable is None:
        return f"estimated, {of} with an expected answer can show no change of right answers"
    return f"estimated, {of} with an expected answer show a change of right answers from {100 * found.detectable:.1f} points on"


def _number(value: float) -> str:
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.2g}"


def _error(value: float | None) -> str:
    return "" if value is None else f" ± {_number(value)}"


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(str(value + 1) for value in values) or "none"
