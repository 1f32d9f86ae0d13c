"""A lane, and the model of all of them, as seen from outside the engine: what the page, the record and the tables know. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from inference.events import Hello, LaneFacts, LoadFigures, Loading

LOADING_STATES = ("starting", "loading")
CHANGING = ("ending", "loading")


@dataclass(frozen=True)
class ModelStatus:
    """Which model the lanes are for; `number` is another after each change, and after a cancel that of the model before.

    `phase` is kept; in a change ending (the processes before) or loading; after one failed (no lane could load it) or cancelled.
    `other` is the model before, and once cancelled the one that was not loaded.
    """

    name: str
    number: int
    phase: str = "kept"
    other: str = ""

    @property
    def changing(self) -> bool:
        """Whether a change is being made."""
        return self.phase in CHANGING


@dataclass(frozen=True)
class Quiet:
    """A lane has given no sign of life (`frozen`), or has not got on, for so long; after `ended_after_s` of that its process is ended."""

    for_s: float
    ended_after_s: float
    frozen: bool


@dataclass(frozen=True)
class LaneStatus:
    """A lane as seen from outside; `state` is off, starting, loading, ready, busy, failed or refused; `title` is that of a server elsewhere."""

    key: str
    name: str
    state: str
    reason: str | None
    available: bool
    hello: Hello | None
    facts: LaneFacts | None
    load: LoadFigures | None
    progress: Loading | None
    waiting: int
    title: str = ""
    quiet: Quiet | None = None

    @property
    def settled(self) -> bool:
        """Whether the lane is not on its way up."""
        return self.state not in LOADING_STATES
