"""What a decoder promises, and the algorithm over it: read the prompt, then one id after the other. Knows no model and no library.

The faster decoders (`cuda/decoder.py`, `cpu/decoder.py`) stand beside the plain one (`eager.py`); nothing above asks which it has.
The caller checks for end marks and Stop between two ids, and just stops iterating.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

from inference.decode.sampling import Sampler

ShouldStop = Callable[[], bool]


def never() -> bool:
    """A Stop that nobody presses."""
    return False


class Decoder(Protocol):
    """One way to answer, one run at a time; `path` is how it decodes: eager, c-step or cuda-graph."""

    path: str

    def why_not(self, prompt_tokens: int, new_tokens: int) -> str | None:
        """Why this way can't take so long a prompt and answer; None where it can."""
        ...

    def prefill(self, prompt_ids: list[int], new_tokens: int, should_stop: ShouldStop) -> Iterator[None]:
        """Read the prompt, with room for `new_tokens` more; yields where a Stop can be seen to, and ends early at one."""
        ...

    def decode(self, new_tokens: int, sampler: Sampler, should_stop: ShouldStop) -> Iterator[int | None]:
        """At most `new_tokens` ids after the prompt read last, each on the host when it is yielded; None, and no more, where it saw a Stop."""
        ...


@runtime_checkable
class Growing(Protocol):
    """A decoder with a cache of its own whose size changes between runs, never in one."""

    @property
    def positions(self) -> int:
        """How many positions it holds."""
        ...

    def must_grow(self, prompt_tokens: int, new_tokens: int) -> bool:
        """Whether `grow` has to come before so long a run; False where it can't have the room."""
        ...

    def grow(self, prompt_tokens: int, new_tokens: int) -> None:
        """Make that room; where there is none after all, `why_not` says so."""
        ...

    def shrink(self) -> bool:
        """Give back what it grew by; False where it had not."""
        ...


def answer(decoder: Decoder, prompt_ids: list[int], new_tokens: int, sampler: Sampler, should_stop: ShouldStop = never) -> Iterator[int | None]:
    """At most `new_tokens` ids; before the first, and where a Stop was seen inside a forward, None."""
    yield from decoder.prefill(prompt_ids, new_tokens, should_stop)
    yield from decoder.decode(new_tokens, sampler, should_stop)
