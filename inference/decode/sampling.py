"""Logits -> the next token id: greedy, or one seeded uniform number a step through the inverse distribution.

The one place that says which id follows from logits, temperature and draw, for every path and device. The uniforms come from a CPU
generator, so every lane uses the same draws for the same seed. `inverse_cdf` and `greedy` read nothing on the host and have no shape
that depends on data, so a CUDA graph can hold them; what they can't choose from they mark with `NO_ID`.
"""

from __future__ import annotations

import numpy as np
import torch

from inference.errors import InferenceError
from inference.events import ForcedRequest, Request

NO_ID = -1  # in the place of an id: the logits hold a NaN or +inf, or nothing else than -inf
LEAST_TEMPERATURE = 1e-30  # below it no two logits that differ share a chance, and a division by it may overflow: greedy
ONE = 2.0**43  # the likeliest id's share, as a whole number: up to a million shares add up in an int64
NOT_FINITE = "The model gave logits that are no finite numbers, so no token follows from them. Check the checkpoint in this precision, or use another lane."


class NotFinite(InferenceError):
    """Logits from which no id follows: the model's own on this prompt, or those of a path that computed them wrongly."""


def sampler_for(request: Request, done: int = 0) -> Sampler:
    """What chooses the ids of one request, `done` of which are chosen already."""
    if isinstance(request, ForcedRequest):
        if done:
            raise InferenceError("A forced answer can't go on by another path, since its logits would be of two. Ask again.")
        return Forced(request)
    sampler = Sampler(request.temperature, request.seed)
    for _ in range(done if sampler.temperature else 0):
        sampler.uniform()
    return sampler


class Sampler:
    """Chooses token ids for one run; `temperature` 0 is greedy and draws nothing, as does one under LEAST_TEMPERATURE."""

    wants_logits = False  # a decoder may choose on its own device, by `temperature` and `uniform`

    def __init__(self, temperature: float = 0.0, seed: int = 0) -> None:
        self.temperature = temperature if temperature >= LEAST_TEMPERATURE else 0.0
        self._generator = torch.Generator("cpu").manual_seed(seed)

    def uniform(self) -> float:
        """The next draw from [0, 1)."""
        return torch.rand((), generator=self._generator, dtype=torch.float64).item()

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """The next id, shape (1, 1), from logits of shape (1, vocabulary); raises InferenceError where none follows from them."""
        chosen = inverse_cdf(logits, self.temperature, self.uniform()) if self.temperature else greedy(logits)
        checked(int(chosen))
        return chosen


class Forced(Sampler):
    """Gives the request's ids whatever the logits say, and writes those down: two ways compared on the same ids."""

    wants_logits = True

    def __init__(self, request: ForcedRequest) -> None:
        super().__init__(temperature=1.0)
        self._ids, self._file, self._logits = request.ids, request.logits_file, list[np.ndarray]()

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """The next of the given ids; saves the file after the last."""
        self._logits.append(logits[0].float().cpu().numpy().copy())  # the C step's are overwritten by the next
        token = self._ids[len(self._logits) - 1]
        if len(self._logits) == len(self._ids) and self._file:
            np.save(self._file, np.stack(self._logits))
        return torch.tensor([[token]], device=logits.device)


def checked(token: int) -> int:
    """The id as it is; raises NotFinite for NO_ID: for paths that choose on the device and read the id later."""
    if token == NO_ID:
        raise NotFinite(NOT_FINITE)
    return token


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """The first of the likeliest ids of each row, or NO_ID; logits (rows, vocabulary) -> int64 (rows, 1)."""
    best = logits.argmax(-1, keepdim=True)
    return _marked(best, logits.gather(-1, best))


def inverse_cdf(logits: torch.Tensor, temperature: float | torch.Tensor, uniform: float | torch.Tensor) -> torch.Tensor:
    """The first id of each row up to which the shares of softmax(logits / temperature) pass `uniform`, in [0, 1), of their sum, or NO_ID.

    logits (rows, vocabulary) of under a million ids -> int64 (rows, 1). A share is taken in FP64, relative to the likeliest id's, and
    rounded to a whole number: so sums are exact in any order (a GPU's sums of floats differ from run to run), an id without
    a share (-inf, or 2^44 times less likely than the likeliest) is never chosen, and ties have equal shares. Tensors of `temperature`
    and `uniform` are FP64, one number each.
    """
    values = logits.double()
    best = values.amax(-1, keepdim=True)  # NaN where one is
    # the likeliest has share one also where temperature is so small that 0 / temperature is none
    shares = (((values - best) / temperature).exp() * ONE).masked_fill(values == best, ONE).round().long()
    sums = shares.cumsum(-1)
    total = sums[..., -1:]
    target = torch.minimum((total.double() * uniform).long(), total - 1)
    return _marked(torch.searchsorted(sums, target, right=True), best)


def _marked(ids: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
    """NO_ID in the place of each id whose row's best logit is no finite number; by masked_fill, as `where` would copy the number from the host."""
    return ids.masked_fill(~best.isfinite(), NO_ID)
