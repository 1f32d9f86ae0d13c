"""What a model takes on each lane of any hardware, and the Spaces that it fits on: `python -m inference.doctor.spaces` prints the first as JSON.

In: a model's name, settings. Out: `LaneNeed`s by lane, or the sentence why there are none; lines for the report. Needs no GPU: the card that is
asked about is not here.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import asdict

from inference import terminal
from inference.doctor.look import NotSeen, Seen, see
from inference.fast import FastWays, first_line
from inference.host import temporary
from inference.host.hardware import BFLOAT16, CUDA_NF4_WIDE, Catalog, LaneNeed
from inference.lanes import CPU_FP32, CPU_NF4, CUDA_BF16, CUDA_NF4
from inference.models import loading
from inference.models.fits import Need
from inference.settings import Settings, from_env

LANES = {  # by the name in `LaneNeed`s: the lane, and the card that it is on
    str(CUDA_NF4): (str(CUDA_NF4), BFLOAT16),
    CUDA_NF4_WIDE: (str(CUDA_NF4), (7, 5)),
    str(CPU_NF4): (str(CPU_NF4), None),
    str(CPU_FP32): (str(CPU_FP32), None),
}
SHOWN = 4


def needs(seen: Seen, settings: Settings, known: Mapping[str, Need] | None = None) -> dict[str, LaneNeed]:
    """What the model takes on each of `LANES`, and on the bf16 one where the settings name it, CPU lanes as `known` has them.

    Raises InferenceError (Refused) in the words of a load.
    """
    found = {}
    half = {str(CUDA_BF16): (str(CUDA_BF16), BFLOAT16)} if str(CUDA_BF16) in settings.lanes else {}
    for key, (lane, capability) in {**LANES, **half}.items():
        taken = (known or {}).get(lane) if capability is None else None
        taken = taken or loading.plan(seen.name, seen.config, seen.tensors, lane, FastWays(lane, settings.fast), capability).need
        found[key] = LaneNeed(taken.weights_bytes, taken.peak_bytes, loading.margin_bytes(lane))
    return found


def lines(taken: Mapping[str, LaneNeed], catalog: Catalog) -> list[str]:
    """The cheapest Spaces that all lanes fit on, without a GPU and with one, else those for the 4-bit lane alone; with prices, and when and where these were read."""
    four_bit = {lane: need for lane, need in taken.items() if lane not in (str(CPU_FP32), str(CUDA_BF16))}
    all_of_them = _cheapest(taken, catalog)
    words = (
        f"Spaces that {'all' if str(CUDA_BF16) in taken else 'both'} lanes fit on: {', '.join(all_of_them)}"
        if all_of_them
        else f"Spaces that the 4-bit lane alone fits on: {', '.join(_cheapest(four_bit, catalog)) or 'none'}"
    )
    return [f"  {words}; {catalog.dated()}"]


def _cheapest(taken: Mapping[str, LaneNeed], catalog: Catalog) -> list[str]:
    fitting = catalog.fitting(taken)
    priced = [one for one in fitting if one.gpu and one.dollars_per_hour is not None][:SHOWN]
    by_quota = [f"{one.name} (by quota)" for one in catalog.hardware if one.zero and all(fit.fits is not False for fit in one.fit(taken))]
    found = [f"{one.name} {one.price()}" for one in [*(one for one in fitting if not one.gpu), *priced]]
    return [*found, *by_quota] if found else found


def main() -> int:
    """Print {"needs": {lane: ...}, "refused": ..., "unseen": ...} for the environment's model: why it can't be loaded, or judged before it is there."""
    terminal.prepare()
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    settings, said = from_env(), dict[str, object](needs={}, refused=None, unseen=None)
    with temporary.folder("gpu-vs-cpu-doctor-") as work:
        try:
            found = needs(see(settings.model_id, settings, work), settings)
            said["needs"] = {lane: asdict(need) for lane, need in found.items()}
        except NotSeen as error:
            said["unseen"] = str(error)
        except Exception as error:  # noqa: BLE001 - of files that hold what nobody foresaw; each is a model that can't be loaded
            said["refused"] = first_line(error)
    print(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
