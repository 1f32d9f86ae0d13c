"""`python -m inference.doctor`: what this machine can run, as text: versions, devices, limits, each lane's state, and which models fit where.

A process of its own, since it imports torch. `report()` gives the lines and whether every lane can run; the exit code says the same.
"""

from __future__ import annotations

import logging
import shlex
import sys
import time
from collections.abc import Mapping, Sequence

import torch

from inference import log, terminal
from inference.cache import cache, disk
from inference.cache.cache import Cache
from inference.doctor import here
from inference.doctor import look as seen
from inference.doctor.judge import judge
from inference.endpoint.look import look
from inference.fast import WAYS, FastWays
from inference.host import cgroups, machine
from inference.lane.probe import Found, cuda_reason, environment, probe, versions
from inference.models import fits, loading
from inference.settings import DEFAULT_MODEL, Settings, from_env, shape_names
from inference.units import size

HANG = 4
BAD = ("can't", "does not fit", "lacks")  # words of a line that says why a model can't be loaded


def report(settings: Settings) -> tuple[list[str], bool]:
    """Lines to print, and True when each of the settings' lanes can run."""
    found, servers = _probed(settings), {lane: look(lane, settings) for lane in settings.servers}
    ram = machine.ram_available_bytes()
    free = _free(found, ram)
    lines = ["Versions", *(f"  {name} {version}" for name, version in versions().items()), "", "Hardware", *_hardware(settings, ram), "", "Lanes"]
    for lane in found:
        can = "can not run" if not lane.available else "can run on the CPU" if lane.reason else "can run"
        lines.append(f"  {lane.lane}: {can}{f'; {lane.reason}' if lane.reason else ''}")
        lines += _ways(lane.lane, settings) if lane.available else []
    lines += [f"  {lane}: {words}" for lane, (words, _) in servers.items()]
    default = "Model (the default; --model or MODEL_ID names another)" if settings.model_id == DEFAULT_MODEL else "Model (the one that is named)"
    models, trouble = _models(settings, free)
    lines += ["", default, *models, "", "Sizes that fit (shapes: random weights, for measuring speed)", *_fits(free, "compact" in settings.fast)]
    lines += ["", "Cache", *_cache(cache.of(settings))]
    trouble = _cannot_run(found) + [f"{lane}: {words}" for lane, (words, well) in servers.items() if not well] + trouble
    unused = found and cuda_reason() and machine.nvidia_gpus()
    return [*lines, "", _what_next(trouble, "make run", " but a card that can be used (GPU, above)" if unused else "")], not trouble


def report_model(settings: Settings) -> tuple[list[str], bool]:
    """Lines about the settings' model alone, and True when each of the settings' lanes can load it."""
    found = _probed(settings)
    lines, trouble = _models(settings, _free(found, machine.ram_available_bytes()))
    trouble = _cannot_run(found) + trouble
    command = shlex.join(["python", "-m", "inference", "compare", "hello", "--model", settings.model_id])
    lines += [f"  {lane.lane}: {lane.reason}" for lane in found if not lane.available]
    closing = ["", _what_next(trouble, command)] if len(lines) > 1 or not trouble else []  # one line that says why is enough
    return [*lines, *closing], not trouble


def _probed(settings: Settings) -> list[Found]:
    """The lanes that are no server, which has nothing to do with this machine."""
    return [probe(lane) for lane in settings.lanes if lane not in settings.servers]


def _free(found: Sequence[Found], ram: int) -> dict[str, int]:
    """What is free for each lane that can run, in bytes; the RAM is read once, by the caller, so that all lines tell the same."""
    return {lane.lane: loading.free_bytes(lane.lane) if lane.lane.startswith("cuda") else ram for lane in found if lane.available}


def _cannot_run(found: Sequence[Found]) -> list[str]:
    return [f"{lane.lane} can not run; {lane.reason}" for lane in found if not lane.available]


def _what_next(trouble: Sequence[str], command: str, less: str = "") -> str:
    """The closing line: the command that goes on from here, or the first thing to mend; `less` is what it does without."""
    return f"To mend first: {trouble[0]}" if trouble else f"Everything needed is here{less}: {command}"


def _ways(lane: str, settings: Settings) -> list[str]:
    """A lane's faster ways, each with why it can't be had here; a model may still not be made for one."""
    ways = FastWays(lane, settings.fast)
    if lane == "cuda:nf4" and loading.compute_dtype("cuda") != torch.float32:
        ways.leave_out("compact")  # its values are 16-bit ones as they are
    lines = []
    for name in ways.names:
        reason = here.why_not(name, ways)
        lines.append(f"    {name}: {WAYS[name].words}; " + (f"not here: {reason}" if reason else "can be had here"))
    return lines


def _hardware(settings: Settings, ram: int) -> list[str]:
    facts = environment()
    quota = cgroups.cpu_quota()
    lines = [
        f"  CPU: {facts['cpu']}, {machine.lane_threads(settings)} threads for a lane" + (f" (quota {quota:g} CPUs)" if quota else ""),
        f"  RAM: {size(facts['ram_limit_bytes'])} limit, {size(ram)} free",
    ]
    reason = cuda_reason()
    if reason:
        return [*lines, f"  GPU: {reason}"]
    free = loading.free_bytes("cuda")
    return [*lines, f"  GPU: {facts['gpu']}, {size(facts['gpu_memory_bytes'])}, {size(free)} free, driver {facts['driver'] or 'unknown'}"]


def _fits(free: Mapping[str, int], compact: bool) -> list[str]:
    lines = []
    for name in shape_names():
        config = seen.config_of_shape(name)
        tensors = seen.as_bf16(config)
        for lane, have in free.items():
            need = fits.need(config, tensors, lane, compact).peak_bytes + loading.margin_bytes(lane)
            lines.append(f"  {name} on {lane}: {'fits' if need <= have else 'does not fit'}, needs about {size(need)} of {size(have)} free")
    return lines


def _models(settings: Settings, free: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Each model of the settings, judged for the lanes that load it, and of those that can't be loaded the first line that says why."""
    lines, trouble = list[str](), list[str]()
    for name in dict.fromkeys(map(settings.model_for, free)):
        lanes = {lane: have for lane, have in free.items() if settings.model_for(lane) == name}
        said, good = judge(name, lanes, settings, lanes)
        lines += said
        if not good:
            trouble.append(next((line.strip() for line in said if any(word in line for word in BAD)), f"{name} can't be loaded"))
    return lines, trouble


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
    terminal.prepare()
    settings = from_env()
    logging.basicConfig(level=logging.ERROR if settings.quiet else logging.INFO, stream=log.of_stderr())  # what is amiss stands in the report
    return terminal.delivering(lambda: _print(settings), 1)


def _print(settings: Settings) -> int:
    if "--empty-cache" in sys.argv[1:]:
        print(terminal.printable("\n".join(emptied(cache.of(settings)))))
        return 0
    lines, well = report_model(settings) if "--model" in sys.argv[1:] else report(settings)
    print(terminal.fit(terminal.printable("\n".join(lines)), HANG))
    return 0 if well else 1
