"""What is usual: figures of 4-bit lanes measured by this project's own command, to hold one's own against.

Plain data, each row with the command that gives it again; no adjectives.
"""

from __future__ import annotations

from dataclasses import dataclass


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
