"""A lane's memory figures against an independent reading of its process in /proc, like with like, within 5 %."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from inference.engine.compare import compare
from inference.engine.engine import Engine
from inference.engine.process import LaneProcess, start_worker
from inference.events import Event, Hello, Request
from inference.settings import Settings
from tests.support.tiny import make_checkpoint
from tests.support.until import until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def kib(pid: int, file: str, *keys: str) -> int:
    """The sum of some lines of /proc/PID/FILE, in bytes."""
    text = Path(f"/proc/{pid}/{file}").read_text()
    return 1024 * sum(int(number) for key in keys for number in re.findall(rf"^{key}:\s+(\d+) kB", text, re.M))


def test_ram_figures_are_those_of_the_process(tmp_path):
    folder = make_checkpoint(tmp_path / "llama", "llama")
    after_imports: list[int] = []

    def start(lane: str, settings: Settings) -> LaneProcess:
        process = start_worker(lane, settings)
        watch = process.watch

        def on_event(event: Event, then) -> None:
            if isinstance(event, Hello):
                after_imports.append(kib(process.pid, "status", "VmRSS"))
            then(event)

        process.watch = lambda then, on_exit: watch(lambda event: on_event(event, then), on_exit)  # type: ignore[method-assign]
        return process

    settings = Settings(model_id=str(folder), lanes=("cpu:fp32",), cache_dir=str(tmp_path / "cache"))
    with Engine(settings, start) as engine:
        record = compare(engine, Request("hello", max_new_tokens=8))
        until(lambda: engine.pids(), what="a process")
        pid = engine.pids()["cpu:fp32"]
        ram = record.lanes["cpu:fp32"].runs[0].ram
        assert ram.uss == pytest.approx(kib(pid, "smaps_rollup", "Private_Clean", "Private_Dirty", "Private_Hugetlb"), rel=0.05)
        assert ram.rss_peak + after_imports[0] == pytest.approx(kib(pid, "status", "VmHWM"), rel=0.05)
