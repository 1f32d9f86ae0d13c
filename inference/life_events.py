"""What a lane's process says when it is asked whether it lives. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Alive:
    """The answer to `ping`, given beside the work: how many steps that has come since the process began; the same again where it stands."""

    steps: int
