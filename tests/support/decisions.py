"""Evidence and wishes for tests of the decision: lanes with times of one's choice."""

from __future__ import annotations

from dataclasses import replace

from inference.decide.decision import decide
from inference.decide.evidence import Gathered
from inference.decide.model import Asked, Decision, Evidence, Price

TITLES = {"cuda:nf4": "4-bit NF4 on the GPU", "cpu:fp32": "FP32 on the CPU", "cuda:bf16": "BF16 on the GPU", "cpu:nf4": "4-bit NF4 on the CPU"}


def lane(name: str, *totals: float, first: float = 0.2, **more: object) -> Evidence:
    """A lane whose answers took `totals` seconds, of 11 tokens each, and a load of 40 s."""
    runs = totals or (2.0, 2.0, 2.0)
    made = Evidence(
        name, TITLES.get(name, name), name.split(":")[0], "a machine", ttft_s=(first,) * len(runs), total_s=runs,
        tpot_s=tuple((total - first) / 10 for total in runs), new_tokens=(11,) * len(runs), load_s=40.0, is_reference=name == "cpu:fp32",
    )  # fmt: skip
    return replace(made, **more)


def asked(per_day: float = 1000, gpu: float | None = 0.8, cpu: float | None = 0.1, **more: object) -> Asked:
    """So many answers a day, dollars an hour of a card and of a CPU."""
    typed = {name: Price(dollars, "typed") for name, dollars in (("cuda:nf4", gpu), ("cpu:fp32", cpu)) if dollars is not None}
    return Asked(per_day, more.pop("prices", typed), **more)


def decided(wanted: Asked, *lanes: Evidence) -> Decision:
    """The decision on these lanes."""
    return decide(wanted, Gathered("fake/model", lanes))


def of(decision: Decision, name: str):
    """A candidate of it."""
    return next(each for each in decision.candidates if each.lane == name)
