"""What a page and its lanes hold of the machine: memory, threads, handles, processes, and files on the disk.

In: the page's process and the folders that it writes to. Out: a `Reading`, taken once nothing changes any more; two of them as a table, and what of them
differs that should not. Knows nothing of what was asked in between.
"""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

MIB = 2**20
MOST_GROWTH = 30 * MIB  # bytes of RSS, of the page and its lanes together
LEAST_S, LONGEST_S = 14.0, 90.0  # a thread that waits for work is let go after ten seconds, at the next request
EQUAL = ("threads", "handles", "processes", "files", "disk")
MOST_DIGITS = 64  # bytes: a note of when something was used may be some digits longer
STEADY = 3  # as many readings, a second apart, must be the same


@dataclass(frozen=True)
class Reading:
    """Sums over the page and all processes below it; memory and disk in bytes."""

    page_rss: int
    lanes_rss: int
    threads: int
    handles: int
    processes: int
    files: int
    disk: int

    @property
    def counts(self) -> tuple[int, ...]:
        """What must be the same before and after."""
        return tuple(getattr(self, name) for name in EQUAL)


def read(pid: int, folders: Sequence[Path]) -> Reading:
    """What the page of process `pid` holds now; a child that ends meanwhile counts as gone."""
    page = psutil.Process(pid)
    found: list[tuple[int, int, int]] = []
    for each in (page, *page.children(recursive=True)):
        try:
            found.append((each.memory_info().rss, each.num_threads(), each.num_fds()))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    rss, threads, handles = zip(*found, strict=True)
    sizes = [size for folder in folders for size in _sizes(folder)]
    return Reading(rss[0], sum(rss[1:]), sum(threads), sum(handles), len(found), len(sizes), sum(sizes))


def _sizes(folder: Path) -> list[int]:
    """Bytes of every file below `folder`; one that goes meanwhile is left out."""
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                found.append(os.lstat(os.path.join(place, name)).st_size)
            except FileNotFoundError:
                continue
    return found


def settled(pid: int, url: str, folders: Sequence[Path]) -> Reading:
    """A reading once all counts have stood still; the last one where they never do.

    The page is asked for its layout meanwhile: its pool lets go of idle threads only when one is used.
    """
    began, same = time.monotonic(), [read(pid, folders)]
    while len(same) < STEADY or time.monotonic() - began < LEAST_S:
        time.sleep(1)
        with urllib.request.urlopen(f"{url.rstrip('/')}/config") as answer:
            answer.read()
        now = read(pid, folders)
        same = [*same, now] if now.counts == same[-1].counts else [now]
        if time.monotonic() - began > LONGEST_S:
            break
    return same[-1]


def table(before: Reading, after: Reading) -> str:
    """Both, a line a figure."""
    rows = [("", "before", "after", "more")]
    for name in ("page_rss", "lanes_rss", *EQUAL):
        old, new = getattr(before, name), getattr(after, name)
        unit = MIB if name.endswith("_rss") else 1
        rows.append((name.replace("_", " "), f"{old / unit:.1f}" if unit > 1 else str(old), f"{new / unit:.1f}" if unit > 1 else str(new),
                     f"{(new - old) / unit:+.1f}" if unit > 1 else f"{new - old:+d}"))  # fmt: skip
    return "\n".join(f"  {name:<10} {old:>12} {new:>12} {more:>8}" for name, old, new, more in rows)


def left_behind(before: Reading, after: Reading) -> list[str]:
    """What has not come back: counts that differ, and memory that grew by more than `MOST_GROWTH`."""
    more = {name: getattr(after, name) - getattr(before, name) for name in EQUAL}
    found = [f"{name}: {count} more" for name, count in more.items() if count > (MOST_DIGITS if name == "disk" else 0)]
    grown = after.page_rss + after.lanes_rss - before.page_rss - before.lanes_rss
    return [*found, f"{grown / MIB:.1f} MiB more memory"] if grown > MOST_GROWTH else found
