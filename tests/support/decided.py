"""A decision between two lanes as `inference/decide` would give it, and what they cost, for tests of what shows one."""

from __future__ import annotations

from inference.decide.model import Asked, Candidate, Decision, Price, Rule, Traced, Turn
from inference.report.decision import CostLine

PRICES = {"cuda:nf4": Price(0.8, "l4x1, prices read 2026-08"), "cpu:fp32": Price(0.03, "typed")}
GPU = Candidate(
    "cuda:nf4", "4-bit NF4 on the GPU", None, (Rule("First word", True, "60 ms", "16 times under"), Rule("Same first choice", None, "98 %", "")),
    figures=(Traced("Cost a month", "$584.00", "$0.80 an hour x 730 hours"), Traced("Answers a day", "41,000", "estimated from 20 totals")),
)  # fmt: skip
CPU = Candidate(
    "cpu:fp32", "FP32 on the CPU", "its first word comes <late>", (Rule("First word", False, "2.10 s", "2 times over"),),
    figures=(Traced("Cost a month", "$21.90", "$0.03 an hour x 730 hours"),),
)  # fmt: skip
DECISION = Decision(
    Asked(2000, PRICES, max_first_token_s=1.0, min_agreement=0.98, sleep_after_min=15), "you/tuned", (GPU, CPU), (Turn(3400, "cpu:fp32", "cuda:nf4"),), "cuda:nf4",
    "Serve 4-bit NF4 on the GPU.", ("The wait decided it.",), ("A longer wait.",), ("Measured on one machine.",),
)  # fmt: skip
COSTS = (CostLine("cuda:nf4", ((10, 584), (100_000, 584))), CostLine("cpu:fp32", ((10, 21.9), (100_000, 1168))))
