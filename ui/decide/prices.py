"""What an hour of a lane's hardware costs: picked from the dated list of Spaces' hardware, or typed.

In: a lane, a hardware's name, dollars. Out: choices for a list, and a `Price` with where it is from, or a `Refused`. Asks nobody: the list is the one in the repository.
"""

from __future__ import annotations

from dataclasses import replace

from inference.decide.asked import MOST_DOLLARS, price_of
from inference.decide.model import Price
from inference.host.hardware import Hardware, from_file
from inference.lanes import LaneName
from ui.decide.fields import Refused, number

OWN = ""  # no hardware of the list
OWN_WORDS = "Type a price"


def choices(lane: str) -> list[tuple[str, str]]:
    """(words, name) of what a lane can be rented on, first none of it; of a lane elsewhere nothing else."""
    return [(OWN_WORDS, OWN), *((f"{one.title}: {one.price()}", one.name) for one in _rented(lane))]


def _rented(lane: str) -> list[Hardware]:
    """The hardware that has a price and what the lane needs; a lane uses one card, so machines of several are left out."""
    name = LaneName.parse(lane)
    if name.elsewhere:
        return []
    return [one for one in from_file().hardware if one.dollars_per_hour is not None and one.gpus < 2 and (name.automatic or bool(one.gpu) == name.on_gpu)]


def dollars() -> dict[str, str]:
    """Dollars an hour as they are typed, by the hardware's name, of all that have a price."""
    return {one.name: f"{one.dollars_per_hour:g}" for one in from_file().hardware if one.dollars_per_hour is not None}


def dated() -> str:
    """When and where the list's prices were read."""
    return from_file().dated()


def read(field: str, lane: str, title: str, hardware: str | None, typed: str) -> Price | None:
    """The price of a lane: that of the hardware, unless another was typed; None where there is neither. Raises Refused, for `field`, where it is none."""
    called = f"The price for {title}"
    dollars = number(field, called, typed)
    if dollars is not None and not 0 <= dollars <= MOST_DOLLARS:  # nor is nan
        raise Refused(field, f"{called} must be from 0 to {MOST_DOLLARS:,.0f} dollars an hour, not {dollars:,.10g}.")
    if not hardware or hardware not in {name for _, name in choices(lane)}:
        return None if dollars is None else Price(dollars, "typed")
    price = price_of(lane, from_file().named(hardware), from_file())
    if dollars is None or dollars == price.dollars_per_hour:
        return price
    return replace(price, dollars_per_hour=dollars, source=f"typed, for {price.hardware}")
