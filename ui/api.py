"""The loosely typed values of forms, links and clients -> a checked `Request`, or the sentence that says which can't be used."""

from __future__ import annotations

from typing import Any

from inference.errors import InferenceError
from inference.events import Request

MODE_CHOICES = [("Automatic", "auto"), ("Together", "together"), ("In turn", "in-turn")]


def build_request(prompt: Any, system: Any, format: Any, max_new_tokens: Any, temperature: Any, seed: Any) -> Request:
    """A checked Request; raises InferenceError with one sentence for a value that can't be used."""
    request = Request(
        prompt=text(prompt, "prompt"),
        system=text(system, "system prompt"),
        format=text(format, "prompt format"),
        max_new_tokens=whole(max_new_tokens, "Max new tokens"),
        temperature=number(temperature, "Temperature"),
        seed=whole(seed, "The seed"),
    )
    request.check()
    return request


def text(value: Any, name: str) -> str:
    """`value` as text; nothing counts as empty."""
    if value is None or isinstance(value, str):
        return value or ""
    raise InferenceError(f"The {name} must be text, not {type(value).__name__}.")


def number(value: Any, name: str) -> float:
    """`value` as a number; raises InferenceError for an empty field or anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise InferenceError(f"{name} must be a number. Fill it in and send again.")


def whole(value: Any, name: str) -> int:
    """`value` as a whole number; raises InferenceError."""
    found = number(value, name)
    if found != found or found in (float("inf"), float("-inf")) or found != int(found):
        raise InferenceError(f"{name} must be a whole number, not {found}.")
    return int(found)


def yes_or_no(value: Any, name: str) -> bool:
    """`value` as true or false; raises InferenceError for anything else, words and numbers that might mean one of them too."""
    if isinstance(value, bool):
        return value
    raise InferenceError(f"{name} must be true or false, not {value!r:.40}.")
