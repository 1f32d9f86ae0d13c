"""A limit on any group from a process's own up to the root counts, each held against what that group itself uses (trees made here)."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from inference.host import cgroups, machine

GIB = 2**30
V2, V1 = ("memory.max", "memory.current", "inactive_file"), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Sets what /proc/self/cgroup says."""

    def say(*lines: str) -> None:
        (tmp_path / "own").write_text("".join(f"{line}\n" for line in lines))

    monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
    return say


def limit(folder: Path, most: object, used: int = 0, droppable: int = 0, files=V2) -> Path:
    """Write a group's memory files; GiB, or a word."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / files[0]).write_text(f"{most * GIB if isinstance(most, int) else most}\n")
    (folder / files[1]).write_text(f"{used * GIB}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{files[2]} {droppable * GIB}\n")
    return folder


@pytest.fixture(autouse=True)
def large_host(monkeypatch):
    class Host:
        total, available = 64 * GIB, 60 * GIB

    monkeypatch.setattr(psutil, "virtual_memory", lambda: Host)


def test_a_limit_on_the_job_s_own_group_counts_where_the_root_has_none(tmp_path, own):
    own("0::/app.slice/job.scope")
    root = tmp_path / "cgroup"
    limit(root / "app.slice/job.scope", 8, used=3, droppable=1)
    limit(root / "app.slice", "max", used=20)
    (root / "app.slice/job.scope/cpu.max").write_text("200000 100000\n")
    (root / "app.slice/cpu.max").write_text("max 100000\n")
    assert machine.ram_limit_bytes(root) == 8 * GIB and machine.ram_available_bytes(root) == 6 * GIB
    assert cgroups.cpu_quota(root) == 2 and machine.cpu_threads(root=root) <= 2


def test_the_group_with_the_least_left_says_what_is_free_though_another_has_the_smaller_limit(tmp_path, own):
    own("0::/app.slice/job.scope")
    root = tmp_path / "cgroup"
    limit(root / "app.slice/job.scope", 8, used=1)
    limit(root / "app.slice", 16, used=14, droppable=1)
    for folder, quota in ((root / "app.slice/job.scope", 400000), (root / "app.slice", 150000)):
        (folder / "cpu.max").write_text(f"{quota} 100000\n")
    assert machine.ram_limit_bytes(root) == 8 * GIB and machine.ram_available_bytes(root) == 3 * GIB
    assert cgroups.cpu_quota(root) == 1.5


def test_groups_beside_the_way_up_do_not_count(tmp_path, own):
    own("0::/app.slice/job.scope")
    root = tmp_path / "cgroup"
    limit(root / "app.slice/job.scope", "max")
    limit(root / "app.slice/other.scope", 1)
    limit(root / "app.slice/job.scope/below", 1)
    assert machine.ram_limit_bytes(root) == 64 * GIB and machine.ram_available_bytes(root) == 60 * GIB


def test_the_older_trees_are_walked_each_by_its_own_path(tmp_path, own):
    own("4:memory:/jobs/a", "3:cpu,cpuacct:/batch/b", "1:name=systemd:/", "0::/")
    root = tmp_path / "cgroup"
    limit(root / "memory/jobs/a", str(2**63 - 4096), used=2, files=V1)
    limit(root / "memory/jobs", 8, used=5, droppable=2, files=V1)
    limit(root / "memory", str(2**63 - 4096), used=30, files=V1)
    for folder, quota in ((root / "cpu/batch/b", -1), (root / "cpu/batch", 300000), (root / "cpu", -1)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.ram_limit_bytes(root) == 8 * GIB and machine.ram_available_bytes(root) == 5 * GIB
    assert cgroups.cpu_quota(root) == 3


@pytest.mark.parametrize("lines", [("0::/system.slice/docker-1a2b.scope",), ("0::/../other",), ("5:memory:/docker/1a2b", "2:cpu:/docker/1a2b"), (), ("junk",)])
def test_where_one_s_own_path_is_not_to_be_seen_the_root_s_files_count(tmp_path, own, lines):
    own(*lines)
    root = tmp_path / "cgroup"
    old = any("memory" in line for line in lines)
    limit(root / ("memory" if old else ""), 4, used=1, files=V1 if old else V2)
    limit(root.parent / "other", 1)
    assert machine.ram_limit_bytes(root) == 4 * GIB and machine.ram_available_bytes(root) == 3 * GIB


def test_where_there_is_no_such_file_the_host_is_the_limit(tmp_path, own):
    assert machine.ram_limit_bytes(tmp_path / "none") == 64 * GIB and cgroups.cpu_quota(tmp_path / "none") is None
