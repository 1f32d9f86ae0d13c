"""What the control groups of this process allow it: memory and CPU time, from its own group up to the root (cgroup v2 and v1).

In: where the groups are mounted. Out: bytes and CPUs; nothing where nothing is limited. A group's limit holds for all below it, so
each on the way counts. Knows no host: that is `machine.py`.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

MOUNT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
UNLIMITED = 2**60
MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


class Memory(NamedTuple):
    """One group's limit and what all processes in it hold, in bytes; page cache that can be dropped is not held."""

    limit: int
    used: int

    @property
    def free(self) -> int:
        """What its processes can still take before one is killed."""
        return self.limit - self.used


def memory(root: Path = MOUNT) -> list[Memory]:
    """Each group on the way up that limits memory."""
    found = []
    for folder in _way_up("memory", root):
        for limit_file, usage_file, droppable in MEMORY_FILES:
            if (limit := _number(folder / limit_file)) is not None:
                found.append(Memory(limit, max(0, (_number(folder / usage_file) or 0) - _stat(folder / "memory.stat", droppable))))
    return found


def cpu_quota(root: Path = MOUNT) -> float | None:
    """CPUs' worth of time that the strictest group on the way up allows; None where none limits it."""
    return min((quota for folder in _way_up("cpu", root) if (quota := _quota(folder))), default=None)


def _way_up(controller: str, root: Path) -> list[Path]:
    """The folder of this process's group and of every group above it, in v2's tree and in the controller's own of v1."""
    own = {"": "/", controller: "/"} | _own_groups()
    return [*_up(root, own[""]), *_up(root / "unified", own[""]), *_up(root / controller, own[controller])]


def _own_groups() -> dict[str, str]:
    """This process's group by controller; v2's has no name."""
    try:
        lines = OWN.read_text().splitlines()
    except OSError:  # not a Linux
        return {}
    rows = (line.split(":", 2) for line in lines if line.count(":") >= 2)
    return {name: path for _, names, path in rows for name in names.split(",")}


def _up(mount: Path, group: str) -> list[Path]:
    """From `group` up to the mount, which in a container may be that group itself, under the name it has outside: then it alone is there."""
    parts = PurePosixPath(group).parts[1:]
    if ".." in parts:  # it is not below the mount
        parts = ()
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _quota(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    quota_us, period_us = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota_us / period_us if quota_us and period_us else None


def _number(path: Path) -> int | None:
    try:
        value = int(path.read_text().strip())
    except (OSError, ValueError):
        return None
    return value if 0 <= value < UNLIMITED else None


def _stat(path: Path, key: str) -> int:
    try:
        rows = dict(line.split() for line in path.read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(rows.get(key, 0))
