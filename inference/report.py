"""A comparison -> the record (`gpu-vs-cpu/1`), its verdict, and the sentence that tells it. Stub."""

from __future__ import annotations

from typing import Any

from inference.engine import LaneStatus
from inference.events import Request
from inference.progress import Progress


def build_record(lanes: list[LaneStatus], request: Request, mode: str, outcomes: dict[str, list[Progress]]) -> dict[str, Any]:
    """The record of a comparison; `outcomes` holds each lane's finished runs by configured lane name."""
    return {"schema": "gpu-vs-cpu/1", "lanes": {}, "verdict": {}}


def verdict_text(record: dict[str, Any]) -> str:
    """One Markdown paragraph: who was faster at what, by how much, and whether the answers are the same."""
    return "Verdict."
