"""Logits -> the next token id: greedy, or one seeded uniform number a step through the inverse distribution.

The uniforms come from a CPU generator, so every lane uses the same draws for the same seed on any device.
"""

from __future__ import annotations

import numpy as np
import torch

from inference.errors import InferenceError
from inference.events import ForcedRequest, Request


def sampler_for(request: Request, done: int = 0) -> Sampler:
    """What chooses the ids of one request, `done` of which are chosen already."""
    if isinstance(request, ForcedRequest):
        if done:
            raise InferenceError("A forced answer can't go on by another path, since its logits would be of two. Ask again.")
        return Forced(request)
    sampler = Sampler(request.temperature, request.seed)
    for _ in range(done if request.temperature else 0):
        sampler.uniform()
    return sampler


class Sampler:
    """Chooses token ids for one run; `temperature` 0 is greedy and draws nothing."""

    wants_logits = False  # a decoder may choose on its own device, by `temperature` and `uniform`

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


class Forced(Sampler):
    """Gives the request's ids whatever the logits say, and writes those down: two ways compared on the same ids."""

    wants_logits = True

    def __init__(self, request: ForcedRequest) -> None:
        super().__init__(temperature=1.0)
        self._ids, self._file, self._logits = request.ids, request.logits_file, list[np.ndarray]()

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """The next of the given ids; saves the file after the last."""
        self._logits.append(logits[0].float().cpu().numpy())
        token = self._ids[len(self._logits) - 1]
        if len(self._logits) == len(self._ids) and self._file:
            np.save(self._file, np.stack(self._logits))
        return torch.tensor([[token]], device=logits.device)


def inverse_cdf(logits: torch.Tensor, temperature: float, uniform: float) -> torch.Tensor:
    """The id at which the cumulative distribution of softmax(logits / temperature) passes `uniform`; shape (1, 1)."""
    cumulative = torch.softmax(logits.double() / temperature, -1).cumsum(-1)
    target = uniform * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True).clamp(max=logits.shape[-1] - 1)
