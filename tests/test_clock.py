"""The clock is set back, or far ahead: nothing is measured or waited for by it, so every use of it stands here with its reason."""

from __future__ import annotations

import json
import re
import time

import pytest

from inference.engine.compare import compare
from inference.engine.engine import Engine
from inference.events import Request
from inference.host.child import ROOT
from inference.settings import Settings
from tests.support.page_fixtures import start_fake_lane

WALL = re.compile(r"\btime\.(?:time|time_ns|localtime|gmtime|strftime|ctime)\b|\b(?:datetime|date)\.(?:now|today|utcnow)\b|\bst_[mac]time\b")
USES = {
    "inference/cache/cache.py": "which entry was used last, and how old a folder of a version is that locked nothing",
    "inference/series/series.py": "when a file was asked, to be read",
    "inference/record/build.py": "when a comparison was made, to be read",
    "inference/doctor/report.py": "when an entry of the cache was used last, to be read",
    "inference/lane/measured.py": "the day on which a load was measured, to be read",
    "inference/space/prices.py": "the day of a list of prices",
    "inference/sources/hub_cache.py": "how old what a killed download left is; a clock that is wrong has it removed later, or fetched again",
    "ui/bodies.py": "which upload is the oldest",
    "ui/answers.py": "whether a comparison is of today",
}
DAY_S = 86_400.0


def test_every_use_of_the_clock_is_known():
    files = [ROOT / "app.py", *(ROOT / "inference").rglob("*.py"), *(ROOT / "ui").rglob("*.py")]
    found = {str(file.relative_to(ROOT)) for file in files if WALL.search(re.sub(r"\bst_mtime_ns\b", "", file.read_text("utf-8")))}
    assert found == set(USES)


@pytest.mark.parametrize("step_s", [-DAY_S, DAY_S])
def test_a_comparison_while_the_clock_jumps_has_its_figures(step_s, monkeypatch):
    now = [time.perf_counter()]  # what is measured by a clock that jumps from here can not pass for right

    def jumps() -> float:
        now[0] += step_s
        return now[0]

    monkeypatch.setattr(time, "time", jumps)
    script = json.dumps({"*": {"load_s": 0, "first_s": 0.01, "token_s": 0.001}})
    with Engine(Settings(lanes=("cpu:nf4", "cpu:fp32")), lambda lane, settings: start_fake_lane(lane, settings, FAKE_LANE=script)) as engine:
        record = compare(engine, Request("hi"), mode="together")
        assert all(status.quiet is None for status in engine.status())
    for lane in record.lanes.values():
        (run,) = lane.runs
        assert run.error is None and 0 <= run.queue_s + run.load_wait_s < 600 and 0 < run.ttft_s < run.total_s < 600
