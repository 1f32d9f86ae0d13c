"""What bounds a CPU lane is measured by loops in C, where they can be built."""

from __future__ import annotations

import pytest

from inference.bench import limits
from inference.host import machine


@pytest.mark.skipif(machine.c_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("threads", [1, 3])
def test_both_limits_are_of_a_machine_s_size(monkeypatch, threads):
    monkeypatch.setattr(limits, "BLOCK_BYTES", 2**24)
    monkeypatch.setattr(limits, "FMA_S", 0.005)
    found = limits.Meter(threads).measure()
    assert 1e7 < found.read_bandwidth < 1e14 and 1e7 < found.fma_peak < 1e15


def test_each_thread_reads_a_part_of_its_own_from_the_border_of_a_cache_line(monkeypatch):
    read = []

    class Loops:
        round_flops = staticmethod(lambda: 24)
        read_all = staticmethod(lambda pointer, n: read.append((pointer.value, n.value)))
        multiply_add = staticmethod(lambda rounds: None)

    monkeypatch.setattr(limits, "_built", Loops)
    monkeypatch.setattr(limits, "BLOCK_BYTES", 2**20)
    monkeypatch.setattr(limits, "PASSES", 1)
    limits.Meter(3).measure()
    assert len(read) == 3 and all(start % 64 == 0 and n % 256 == 0 for start, n in read)
    (first, n), *_ = read = sorted(read)
    assert [start for start, _ in read] == [first, first + 4 * n, first + 8 * n] and 3 * 4 * n > 0.9 * 2**20


def test_without_a_c_compiler_there_are_none(monkeypatch):
    monkeypatch.setattr(machine, "c_compiler", lambda: None)
    assert limits.meter(2) is None
    monkeypatch.setattr(machine, "c_compiler", lambda: "/bin/false")
    assert limits.meter(2) is None
