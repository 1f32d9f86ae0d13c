"""`python -m inference.lane.doctor`: what this machine can run, as text: versions, devices, limits, each lane's state, and which models fit where.

A process of its own, since it imports torch. `report()` gives the lines and whether every lane can run; the exit code says the same.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch
from transformers import AutoConfig

from inference import cgroups, machine
from inference.cache import cache, disk
from inference.cache.cache import Cache
from inference.cpu import library
from inference.cpu.compiling import compiler
from inference.cuda.decoder import OLDEST_CAPABILITY
from inference.cuda.device_code import DeviceCode
from inference.errors import InferenceError
from inference.fast import WAYS, FastWays, first_line
from inference.lane.probe import cuda_reason, environment, probe, versions
from inference.models import fits, loading, was_four_bit
from inference.models.skeleton import skeleton
from inference.settings import Settings, from_env
from inference.sources import shapes
from inference.sources.at_hand import at_hand
from inference.sources.headers import Stored
from inference.units import size


def report(settings: Settings) -> tuple[list[str], bool]:
    """Lines to print, and True when each of the settings' lanes can run."""
    found = [probe(lane) for lane in settings.lanes]
    lines = ["Versions", *(f"  {name} {version}" for name, version in versions().items()), "", "Hardware", *_hardware(settings), "", "Lanes"]
    for lane in found:
        note = f" ({lane.reason})" if lane.reason else ""
        lines.append(f"  {lane.lane}: {'can run' if lane.available else 'can not run'}{note}")
        lines += _ways(lane.lane, settings) if lane.available else []
    compact = "compact" in settings.fast
    lines += ["", "Models that fit", *_fits([lane.lane for lane in found if lane.available], compact)]
    lines += _model(settings)
    lines += ["", "Cache", *_cache(cache.of(settings))]
    return lines, all(lane.available for lane in found)


def _ways(lane: str, settings: Settings) -> list[str]:
    """A lane's faster ways, each with why it can't be had here; a model may still not be made for one."""
    ways = FastWays(lane, settings.fast)
    lines = []
    for name in ways.names:
        reason = ways.why_not.get(name) or REASONS.get(name, lambda: None)()
        lines.append(f"    {name}: {WAYS[name].words}; " + (f"not here: {reason}" if reason else "can be had here"))
    return lines


def _hardware(settings: Settings) -> list[str]:
    facts = environment()
    quota = cgroups.cpu_quota()
    lines = [
        f"  CPU: {facts['cpu']}, {machine.lane_threads(settings)} threads for a lane" + (f" (quota {quota:g} CPUs)" if quota else ""),
        f"  RAM: {size(facts['ram_limit_bytes'])} limit, {size(machine.ram_available_bytes())} free",
    ]
    reason = cuda_reason()
    if reason:
        return [*lines, f"  GPU: {reason}"]
    free, _ = torch.cuda.mem_get_info()
    return [*lines, f"  GPU: {facts['gpu']}, {size(facts['gpu_memory_bytes'])}, {size(free)} free, driver {facts['driver'] or 'unknown'}"]


def _no_graph() -> str | None:
    """Why our CUDA kernels can't be compiled and loaded here; None where they can."""
    if torch.cuda.get_device_capability() < OLDEST_CAPABILITY:
        return "the GPU is older than compute capability 8.0"
    try:
        DeviceCode('extern "C" __global__ void nothing() {}', {}, torch.device("cuda"))
    except (InferenceError, OSError, RuntimeError) as error:
        return str(error).split("\n")[0]
    return None


def _no_step() -> str | None:
    return None if compiler() else "no C++ compiler is installed"


def _no_library() -> str | None:
    return None if library.compiler() else "no C compiler is installed"


def _no_nf4() -> str | None:
    dtype = str(loading.compute_dtype("cpu")).removeprefix("torch.")
    return _no_library() if dtype == "float32" else f"4-bit layers compute in {dtype} here, by bitsandbytes' own kernels"


REASONS: dict[str, Callable[[], str | None]] = {"cuda-graph": _no_graph, "compiled": _no_step, "layers": _no_library, "nf4": _no_nf4}


def _fits(lanes: list[str], compact: bool) -> list[str]:
    lines = []
    for name in shapes.names():
        config = AutoConfig.for_model(**json.loads((shapes.FOLDER / f"{name}.json").read_text())["config"])
        tensors = {key: Stored(tuple(part.shape), "BF16") for key, part in skeleton(config, (), torch.bfloat16).model.named_parameters()}
        for lane in lanes:
            need = fits.need(config, tensors, lane, compact).peak_bytes + loading.margin_bytes(lane)
            have = loading.free_bytes(lane)
            lines.append(f"  {name} on {lane}: {'fits' if need <= have else 'does not fit'}, needs about {size(need)} of {size(have)} free")
    return lines


def _model(settings: Settings) -> list[str]:
    """What the values of the settings' model tell, where it is at hand and they tell something."""
    try:
        here = at_hand(settings.model_id, settings)
        told = was_four_bit.found(here.folder) if here else None
    except (InferenceError, OSError, ValueError) as error:
        return ["", "Model", f"  {settings.model_id}: {first_line(error)}"]
    return ["", "Model", f"  {settings.model_id}: {told.words}"] if told else []


def _cache(place: Cache) -> list[str]:
    """What the cache holds, the most recently used first, and how to empty it."""
    entries = place.entries()[::-1]
    total = sum(entry.bytes() for entry in entries)
    lines = [f"  {place.root}: {size(total)} of at most {size(place.limit_bytes)} (CACHE_LIMIT), {size(disk.free_bytes(place.root))} free on its disk"]
    lines += [f"  {entry.words} {entry.path.name}: {size(entry.bytes())}, last used {_day(entry.used_at())}" for entry in entries]
    return [*lines, "  To empty it: python -m inference doctor --empty-cache"] if entries else lines


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))


def emptied(place: Cache) -> list[str]:
    """Empty the cache; lines that say what went and what is in use."""
    before = place.entries()
    sizes = {entry: entry.bytes() for entry in before}
    removed, kept = place.empty()
    freed = sum(sizes.get(entry, 0) for entry in removed)
    number = f"{len(removed)} {'entry' if len(removed) == 1 else 'entries'}"
    return [f"{place.root}: removed {number}, {size(freed)}", *(f"  kept, in use by a lane or not to be removed: {entry.path.name}" for entry in kept)]


def main() -> int:
    """Print the report for the environment's settings, or empty the cache (`--empty-cache`); returns the exit code."""
    if "--empty-cache" in sys.argv[1:]:
        print("\n".join(emptied(cache.of(from_env()))))
        return 0
    lines, well = report(from_env())
    print("\n".join(lines))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
