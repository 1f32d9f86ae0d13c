"""A description made runnable: packed weights, compiled kernels, a cache, and the widths by which rows go through them.

In: `PackedModel`, a device's compilers, positions to hold. Out: hidden rows and logits. The check that lets this path in runs it as the
decoder does, but with nothing captured. Knows no graphs and no requests.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from inference.cuda.kernels import Launcher
from inference.cuda.memory import StepMemory
from inference.cuda.packed import PackedModel
from inference.cuda.prefill import Prefill
from inference.cuda.program import Kernel, Program
from inference.cuda.step import MOST_NARROW_ROWS, FusedStep
from inference.decode.sampling import inverse_cdf
from inference.parts.description import NotUnderstood

log = logging.getLogger(__name__)


class Runner:
    """What the check (`parts/check.py`) asks of a fast path."""

    def __init__(self, packed: PackedModel, launcher: Launcher, positions: int, kernel: Kernel | None = None) -> None:
        """`kernel`: where one row may go through one kernel."""
        # a narrow run of a few rows writes all that its bucket has
        self.memory = StepMemory(packed.parts, positions + MOST_NARROW_ROWS)
        self.step = FusedStep(packed, self.memory, launcher)
        self.wide = Prefill(self.step, launcher)
        self.program = _program(packed, self.memory, kernel)
        if self.program is not None:
            self.step.logits = self.program.logits  # one place, whoever computed them
        device = packed.parts.device
        self.uniform, self.temperature = (torch.ones(1, dtype=torch.float64, device=device) for _ in range(2))

    @torch.no_grad()
    def run(self, ids: list[int], start: int) -> Tensor:
        """Put the ids at `start` and after; logits [vocabulary], float32, after the last. One, up to 32 and more take different ways."""
        given = torch.tensor(ids, device=self.memory.token.device)
        self.memory.position.fill_(start)
        if len(ids) == 1:
            self.memory.token.copy_(given)
            self.next(commit=False)
            return self.step.logits.clone()
        self.step.head(self.wide.row(given, start) if len(ids) > MOST_NARROW_ROWS else self.step.hidden(given)[-1])
        return self.step.logits.clone()

    def next(self, commit: bool) -> None:
        """Run the token at the memory's position into the logits; with `commit` the best id becomes the next token. Can be captured."""
        if self.program is not None:
            self.program.step(commit)
            return
        self.step.head(self.step.hidden(self.memory.token)[0])
        if commit:
            self.step.take_best()

    @torch.no_grad()
    def sampled(self, temperature: float, uniform: float) -> tuple[int, Tensor]:
        """The id that the captured sampled step would choose after the last run, and the logits it chose from."""
        self.temperature.fill_(temperature)
        self.uniform.fill_(uniform)
        return int(self.choose()), self.step.logits.clone()

    def choose(self) -> Tensor:
        """The id [1] that `temperature` and `uniform` (both on the device) choose from the logits; can be captured."""
        return inverse_cdf(self.step.logits[None], self.temperature, self.uniform)[0]


def _program(packed: PackedModel, memory: StepMemory, kernel: Kernel | None) -> Program | None:
    if kernel is None or packed.wide:
        return None
    try:
        return Program(packed.parts, memory, kernel)
    except NotUnderstood as reason:
        log.info("a row goes through separate kernels: %s", reason)
        return None
