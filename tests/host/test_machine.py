"""Limits are the container's where it has one; threads follow quota, affinity and cores."""

import os

import psutil
import pytest

from inference.errors import Refused, WrongArguments
from inference.host import cgroups, machine
from inference.settings import Settings

GIB = 2**30


def v2(root, **files):
    for name, text in files.items():
        (root / name.replace("_", ".", 1)).write_text(text)
    return root


def test_the_smaller_of_host_and_container_counts_v2(tmp_path):
    v2(tmp_path, memory_max=str(GIB), memory_current=str(GIB // 2), memory_stat=f"inactive_file {GIB // 4}\n")
    assert machine.ram_limit_bytes(tmp_path) == GIB
    assert machine.ram_available_bytes(tmp_path) == GIB - GIB // 4


def test_the_older_cgroup_files_are_read_too(tmp_path):
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.limit_in_bytes").write_text(str(2 * GIB))
    (tmp_path / "memory/memory.usage_in_bytes").write_text(str(GIB))
    assert machine.ram_limit_bytes(tmp_path) == 2 * GIB and machine.ram_available_bytes(tmp_path) == GIB


@pytest.mark.parametrize("text", ["max", str(2**63 - 4096)])
def test_no_limit_means_the_host(tmp_path, text):
    v2(tmp_path, memory_max=text)
    assert machine.ram_limit_bytes(tmp_path) == psutil.virtual_memory().total


@pytest.mark.parametrize(("text", "expected"), [("200000 100000", 2.0), ("max 100000", None), ("50000 100000", 0.5)])
def test_the_quota_is_read(tmp_path, text, expected):
    v2(tmp_path, cpu_max=text)
    assert cgroups.cpu_quota(tmp_path) == expected


def test_threads_are_never_more_than_the_quota_and_never_none(tmp_path):
    v2(tmp_path, cpu_max="50000 100000")
    assert machine.cpu_threads(root=tmp_path) == 1
    v2(tmp_path, cpu_max="max 100000")
    assert 1 <= machine.cpu_threads(root=tmp_path) <= len(os.sched_getaffinity(0))
    assert machine.cpu_threads(asked=7, root=tmp_path) == 7


def test_a_core_is_left_to_the_gpu_lane_where_there_are_enough(tmp_path, monkeypatch):
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(machine.psutil, "cpu_count", lambda logical: 16)
    assert machine.cpu_threads(root=tmp_path) == 16 and machine.cpu_threads(beside_gpu=True, root=tmp_path) == 15
    v2(tmp_path, cpu_max="200000 100000")
    assert machine.cpu_threads(beside_gpu=True, root=tmp_path) == 2


def test_what_does_not_fit_is_refused_with_need_and_have():
    with pytest.raises(Refused, match="17.00 GiB.*15.00 GiB.*smaller"):
        machine.check_fits("This model", 17 * GIB, 15 * GIB, "Take a smaller one.")
    machine.check_fits("This model", 15 * GIB, 17 * GIB, "")


def forget_peak(monkeypatch):
    """Let what other tests held not hide what this one holds, where the system allows it."""
    monkeypatch.setattr(machine.RamWatch, "_before_kib", 0)
    with machine.RamWatch.left_out():
        pass
    monkeypatch.setattr(machine.RamWatch, "_before_kib", 0)


def test_what_is_left_out_and_given_back_is_in_no_peak_but_what_was_before_is(monkeypatch):
    if not os.access(machine.SET_BACK, os.W_OK):
        pytest.skip("the system's mark can't be set back here")
    forget_peak(monkeypatch)
    watch = machine.RamWatch()
    bytearray(200 * 2**20)
    before = watch.peak()
    with machine.RamWatch.left_out():
        bytearray(500 * 2**20)
    assert 190 * 2**20 <= before <= watch.peak() < before + 100 * 2**20


def test_where_the_mark_can_t_be_set_back_the_peak_stays(monkeypatch, tmp_path):
    forget_peak(monkeypatch)
    monkeypatch.setattr(machine, "SET_BACK", tmp_path / "none" / "clear_refs")
    watch = machine.RamWatch()
    with machine.RamWatch.left_out():
        bytearray(50 * 2**20)
    assert watch.peak() >= 40 * 2**20


def test_peak_memory_grows_with_what_is_held():
    watch = machine.RamWatch()
    block = bytearray(80 * 2**20)
    assert watch.peak() >= 70 * 2**20 and watch.uss() > len(block)


def test_more_threads_than_processors_are_refused():
    most = len(os.sched_getaffinity(0))
    machine.check_threads(Settings(threads=most))
    with pytest.raises(WrongArguments, match=f"CPU_THREADS is {most + 1}, and this machine has {most} processors"):
        machine.check_threads(Settings(threads=most + 1))


def test_a_sandbox_that_tells_nobody_its_processors_has_those_of_the_machine(monkeypatch, tmp_path):
    def refused(_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(machine.os, "sched_getaffinity", refused)
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 3)
    monkeypatch.setattr(machine.psutil, "cpu_count", lambda logical: 2)
    assert machine.cpu_threads(root=tmp_path) == 2
