"""`python -m inference.doctor.report`: what this machine can run, as text: versions, devices, limits, each lane's state, and which models fit where.

A process of its own, since it imports torch. `report()` gives the lines and whether every lane can run; the exit code says the same.
"""

from __future__ import annotations

import logging
import sys
import time

import torch

from inference import cgroups, machine
from inference.cache import cache, disk
from inference.cache.cache import Cache
from inference.doctor import here, look
from inference.doctor.judge import judge
from inference.fast import WAYS, FastWays
from inference.lane.probe import cuda_reason, environment, probe, versions
from inference.models import fits, loading
from inference.settings import Settings, from_env
from inference.sources import shapes
from inference.units import size


def report(settings: Settings) -> tuple[list[str], bool]:
    """Lines to print, and True when each of the settings' lanes can run."""
    found = [probe(lane) for lane in settings.lanes]
    lines = ["Versions", *(f"  {name} {version}" for name, version in versions().items()), "", "Hardware", *_hardware(settings), "", "Lanes"]
    for lane in found:
        note = f" ({lane.reason})" if lane.reason else ""
        lines.append(f"  {lane.lane}: {'can run' if lane.available else 'can not run'}{note}")
        lines += _ways(lane.lane, settings) if lane.available else []
    lanes = [lane.lane for lane in found if lane.available]
    models, well = _models(settings, lanes)
    lines += ["", "Model", *models, "", "Shapes that fit", *_fits(lanes, "compact" in settings.fast)]
    lines += ["", "Cache", *_cache(cache.of(settings))]
    return lines, well and all(lane.available for lane in found)


def report_model(settings: Settings) -> tuple[list[str], bool]:
    """Lines about the settings' model alone, and True when each of the settings' lanes can load it."""
    found = [probe(lane) for lane in settings.lanes]
    lines, well = _models(settings, [lane.lane for lane in found if lane.available])
    return [*lines, *(f"  {lane.lane}: {lane.reason}" for lane in found if not lane.available)], well and all(lane.available for lane in found)


def _ways(lane: str, settings: Settings) -> list[str]:
    """A lane's faster ways, each with why it can't be had here; a model may still not be made for one."""
    ways = FastWays(lane, settings.fast)
    lines = []
    for name in ways.names:
        reason = here.why_not(name, ways)
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


def _fits(lanes: list[str], compact: bool) -> list[str]:
    lines = []
    for name in shapes.names():
        config = look.config_of_shape(name)
        tensors = look.as_bf16(config)
        for lane in lanes:
            need = fits.need(config, tensors, lane, compact).peak_bytes + loading.margin_bytes(lane)
            have = loading.free_bytes(lane)
            lines.append(f"  {name} on {lane}: {'fits' if need <= have else 'does not fit'}, needs about {size(need)} of {size(have)} free")
    return lines


def _models(settings: Settings, lanes: list[str]) -> tuple[list[str], bool]:
    """Each model of the settings, judged for the lanes that load it."""
    lines, well = list[str](), True
    for name in dict.fromkeys(map(settings.model_for, lanes)):
        said, good = judge(name, [lane for lane in lanes if settings.model_for(lane) == name], settings)
        lines, well = [*lines, *said], well and good
    return lines, well


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
    """Print the report for the environment's settings, of their model alone (`--model`), or empty the cache (`--empty-cache`); the exit code."""
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)  # what is amiss stands in the report
    if "--empty-cache" in sys.argv[1:]:
        print("\n".join(emptied(cache.of(from_env()))))
        return 0
    lines, well = report_model(from_env()) if "--model" in sys.argv[1:] else report(from_env())
    print("\n".join(lines))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
