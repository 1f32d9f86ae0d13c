"""A link that opens the page filled in: its query -> values for the composer and what is said of them; and what makes one in the browser.

In: a query's parameters, which anybody may have written. Out: checked values, a sentence. Knows no component, starts nothing; what a
link sets is text or a number, never HTML.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from inference.events import FORMATS, MAX_NEW_TOKENS_LIMIT, MODES, Request

MOST_CHARACTERS = 7000  # of a link and of a text in one: what stands between cuts off or refuses addresses from some 8,000 bytes on
MOST_SEED = 2**53 - 1  # a browser rounds whole numbers beyond it, and the seed would be another than the one that was typed
DEFAULTS: dict[str, Any] = {**{field.name: field.default for field in fields(Request)}, "prompt": "", "mode": "auto"}
NAMES = ("prompt", "system", "format", "max_new_tokens", "temperature", "seed", "mode")  # in the order of the composer's components
WORDS = {"system": "system prompt", "format": "prompt format", "max_new_tokens": "token limit", "temperature": "temperature", "seed": "seed", "mode": "mode"}


@dataclass(frozen=True)
class Linked:
    """What a link fills in, by name, and a sentence or more about it: `fault` of what it can't, `note` of what stands out of sight."""

    values: Mapping[str, Any]
    fault: str = ""
    note: str = ""


def chosen(among: tuple[str, ...]) -> Callable[[str], str | None]:
    """A reader of one of these words."""
    return lambda text: text if text in among else None


def whole(low: int, high: int) -> Callable[[str], int | None]:
    """A reader of a whole number from `low` to `high`, in plain digits."""
    return lambda text: int(text) if re.fullmatch(r"[0-9]{1,19}", text) and low <= int(text) <= high else None


def decimal(low: float, high: float) -> Callable[[str], float | None]:
    """A reader of a number from `low` to `high`, in plain digits."""
    return lambda text: float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) and low <= float(text) <= high else None


READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "format": (chosen(FORMATS), " or ".join(FORMATS)),
    "max_new_tokens": (whole(1, MAX_NEW_TOKENS_LIMIT), f"a whole number from 1 to {MAX_NEW_TOKENS_LIMIT}"),
    "temperature": (decimal(0, 2), "a number from 0 to 2"),
    "seed": (whole(0, MOST_SEED), "a whole number from 0 to 2^53 - 1"),
    "mode": (chosen(MODES), "auto, together or in-turn"),
}


def read(query: Mapping[str, str]) -> Linked:
    """What a query fills in; other parameters than ours are nobody's business here."""
    values: dict[str, Any] = {}
    faults = []
    for name in NAMES:
        text = query.get(name, "")
        if not text:
            continue
        if name in READERS:
            reader, wanted = READERS[name]
            if (value := reader(text)) is None:
                faults.append(f"{name} in the link must be {wanted}; it was left as it is.")
                continue
            values[name] = value
        else:
            values[name] = text[:MOST_CHARACTERS]
            if len(text) > MOST_CHARACTERS:
                faults.append(f"{name} in the link was cut to its first {MOST_CHARACTERS:,} characters.")
    hidden = [WORDS[name] for name, value in values.items() if name != "prompt" and value != DEFAULTS[name]]
    note = f"The link sets the {listed(hidden)} too: look under Settings before you send." if hidden else ""
    return Linked(values, " ".join(faults), note)


def listed(words: list[str]) -> str:
    """Words as a sentence lists them: "a, b and c"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def to_script(environ: Mapping[str, str] = os.environ) -> str:
    """The listener in the browser that hands the composer's values to `looks/link.js`, with what that must know."""
    told = {"names": NAMES, "defaults": [DEFAULTS[name] for name in NAMES], "most": MOST_CHARACTERS, "space": environ.get("SPACE_ID", "")}
    return f"(...values) => {{ document.dispatchEvent(new CustomEvent('copy-link', {{detail: {{values, ...{json.dumps(told)}}}}})); }}"
