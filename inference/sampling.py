"""Logits -> the next token id: greedy, or one seeded uniform number a step through the inverse distribution.

The uniforms come from a CPU generator, so every lane uses the same draws for the same seed on any device.
"""

from __future__ import annotations

import torch


class Sampler:
    """Chooses token ids for one run; `temperature` 0 is greedy and draws nothing."""

    def __init__(self, temperature: float = 0.0, seed: int = 0) -> None:
        self.temperature = temperature
        self._generator = torch.Generator("cpu").manual_seed(seed)

    def uniform(self) -> float:
        """The next draw from [0, 1)."""
        return torch.rand((), generator=self._generator, dtype=torch.float64).item()

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """The next id, shape (1, 1), from logits of shape (1, vocabulary)."""
        if self.temperature == 0:
            return logits.argmax(-1, keepdim=True)
        return inverse_cdf(logits, self.temperature, self.uniform())


def inverse_cdf(logits: torch.Tensor, temperature: float, uniform: float) -> torch.Tensor:
    """The id at which the cumulative distribution of softmax(logits / temperature) passes `uniform`; shape (1, 1)."""
    cumulative = torch.softmax(logits.double() / temperature, -1).cumsum(-1)
    target = uniform * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True).clamp(max=logits.shape[-1] - 1)
