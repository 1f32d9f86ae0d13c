"""What the hardware costs: as the Hub tells it today, else as `hardware.json` has it with its date. In: nothing. Out: a Catalog."""

from __future__ import annotations

import logging
import time

from huggingface_hub import HfApi

from inference.host.hardware import Catalog, from_file
from inference.sources import hub_faults
from inference.space.session import time_outs

log = logging.getLogger(__name__)
LONGEST_S = 4.0  # prices are worth no longer wait
MOST_DOLLARS = 1e6  # of any unit: what is no price at all is left out
HOURS = {"second": 3600.0, "minute": 60.0, "hour": 1.0}


def catalog() -> Catalog:
    """All hardware, with the Hub's own prices where they can be had."""
    held = from_file()
    try:
        with time_outs(LONGEST_S):
            told = HfApi().list_spaces_hardware(token=False)
        known = [one for one in told if one.unit_label in HOURS and 0 <= one.unit_cost_usd < MOST_DOLLARS]
        dollars = {one.name: round(one.unit_cost_usd * HOURS[one.unit_label], 4) for one in known}
    except hub_faults.FAULTS as error:  # AttributeError, of a library older than this call, too
        log.info("the Hub gives no prices: %s", hub_faults.why(error))
        return held
    return held.priced(dollars, time.strftime("%Y-%m-%d"), "of the Hub itself") if dollars else held
