"""What the person asks, checked: each value that can't be meant gets its sentence, before anything is worked out.

In: an `Asked`, the lanes that were measured. Out: nothing, or a WrongArguments; and the price of a hardware.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from inference.decide.costs import DAY_H
from inference.decide.model import Asked, Evidence, Price
from inference.errors import WrongArguments
from inference.host.hardware import Catalog, Hardware
from inference.lanes import LaneName

MOST_PER_DAY = 1e9
MOST_TOKENS = 1_000_000
MOST_DOLLARS = 1e6  # an hour


def check(asked: Asked, lanes: Sequence[Evidence]) -> None:
    """Raise WrongArguments with one sentence for the first value that can't be meant."""
    _more_than_0("The answers a day", asked.answers_per_day, MOST_PER_DAY)
    _more_than_0("The open hours", asked.open_hours, DAY_H)
    if asked.tokens is not None:
        _more_than_0("The tokens of an answer", asked.tokens, MOST_TOKENS)
    for what, seconds in (("The longest acceptable first token", asked.max_first_token_s), ("The longest acceptable answer", asked.max_total_s)):
        if seconds is not None:
            _more_than_0(what, seconds, math.inf, "seconds")
    if asked.max_first_token_s and asked.max_total_s and asked.max_total_s < asked.max_first_token_s:
        raise WrongArguments("The longest acceptable answer is shorter than the longest acceptable first token. Raise the one or lower the other.")
    for what, part in (("The least share of equal first choices", asked.min_agreement), ("The largest share of answers lost", asked.max_lost)):
        if part is not None and not 0 <= part <= 1:
            hint = f" For {part:g} % give {part / 100:g}." if 1 < part <= 100 else ""
            raise WrongArguments(f"{what} must be a share from 0 to 1, not {part:g}.{hint}")
    if asked.sleep_after_min is not None and not (math.isfinite(asked.sleep_after_min) and asked.sleep_after_min >= 0):
        raise WrongArguments(f"The minutes without a visitor until it sleeps must be 0 or more, not {asked.sleep_after_min:g}.")
    _check_prices(asked, [lane.lane for lane in lanes])


def _more_than_0(what: str, value: float, most: float, unit: str = "") -> None:
    if not (math.isfinite(value) and 0 < value <= most):
        upto = f", {most:,.0f} at most" if math.isfinite(most) else ""
        raise WrongArguments(f"{what} must be more than 0{f' {unit}' if unit else ''}{upto}, not {value:g}.")


def _check_prices(asked: Asked, names: Sequence[str]) -> None:
    if not asked.prices:
        raise WrongArguments(f"There is no price, so no cost. Give dollars an hour of each lane's hardware, such as {names[0]}=0.8.")
    for lane, price in asked.prices.items():
        check_price(lane, price)
        if lane not in names:
            raise WrongArguments(f"There is a price for {lane}, but no record has that lane. They have: {', '.join(names)}.")


def check_price(lane: str, price: Price) -> None:
    """Raise WrongArguments for a price that is none; 0 is one."""
    if not 0 <= price.dollars_per_hour <= MOST_DOLLARS:  # nor is nan
        raise WrongArguments(f"The price of {lane} must be from 0 to {MOST_DOLLARS:,.0f} dollars an hour, not {price.dollars_per_hour:g}.")


def price_of(lane: str, hardware: Hardware, catalog: Catalog) -> Price:
    """What an hour of a hardware costs, with where that stands; `hardware` has a price, and a GPU where the lane needs one."""
    on_card = LaneName.parse(lane).on_gpu
    return Price(
        hardware.dollars_per_hour or 0.0, f"{hardware}; {catalog.dated()}", hardware.gpu if on_card else "", hardware.name,
        hardware.vram_bytes if on_card else hardware.ram_bytes,
    )  # fmt: skip
