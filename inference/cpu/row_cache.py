"""Keys and values of one run in buffers of (positions, heads, width): any prefix of them is a contiguous view.

So the eager forward and the compiled step share one cache, the step takes just the rows in use, and nothing is copied as an
answer grows. All layers keep all positions; a sliding window is the attention mask's business.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache

from inference.models import private


class RowLayer(private.CacheLayer or object):  # type: ignore[misc]
    """One layer's keys and values, made at its first update with room for `positions`."""

    is_sliding = False
    is_compileable = False

    def __init__(self, positions: int) -> None:
        super().__init__()
        self.positions, self.seen = positions, 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Make the buffers; keys and values are (1, heads, rows, width)."""
        self.keys = key_states.new_zeros(self.positions, key_states.shape[1], key_states.shape[3])
        self.values = value_states.new_zeros(self.positions, value_states.shape[1], value_states.shape[3])
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object) -> tuple[torch.Tensor, torch.Tensor]:
        """Add rows; gives all keys and values so far, as (1, heads, positions, width)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.seen + key_states.shape[2]
        self.keys[self.seen : end] = key_states[0].transpose(0, 1)
        self.values[self.seen : end] = value_states[0].transpose(0, 1)
        self.seen = end
        return self.keys[:end].transpose(0, 1)[None], self.values[:end].transpose(0, 1)[None]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(positions that a mask covers, offset)."""
        return self.seen + query_length, 0

    def get_seq_length(self) -> int:
        """Positions so far."""
        return self.seen

    def get_max_length(self) -> int:
        """No limit that transformers must know of."""
        return -1


def row_cache(layers: int, positions: int) -> Cache:
    """An empty cache for a run of at most `positions` positions."""
    return Cache(layers=[RowLayer(positions) for _ in range(layers)])
