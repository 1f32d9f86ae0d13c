"""Records made of scripted runs, for tests of what is read off them."""

import re
from dataclasses import replace
from typing import Any

from inference.events import Done, Hello, LoadFigures, Request
from inference.progress import Progress
from inference.record.build import build_record
from inference.status import LaneStatus
from inference.timing import Timings
from tests.support.fake_lane import facts

OF_ITS_RUN = re.compile(r".*_(s|tps)|created|load|median|min|max|ram|vram|energy|warm|alone|total|decode|ttft|memory|(device|precision)_effect")


def same_of(value: Any) -> Any:
    """A record as JSON less what no two runs share: times, speeds, memory and whether anything ran beside it."""
    if isinstance(value, dict):
        return {key: same_of(each) for key, each in value.items() if not OF_ITS_RUN.fullmatch(key)}
    return [same_of(each) for each in value] if isinstance(value, list) else value


def status(name, available=True):
    hello = Hello(name, name.split(":")[0], {"torch": "2.13.0"}, {"cpu": "c", "ram_limit_bytes": 8})
    return LaneStatus(name, name, "ready", None, available, hello, facts(name), LoadFigures(2.0 if "fp32" in name else 1.0), None, 0)


def ended(tps, ids=(1, 2, 3), reason="stop", total=None):
    timings = Timings(0.1, 40.0, 1 / tps, tps, total or 0.1 + 2 / tps, (0.1, 0.2, 0.3))
    return Progress(0.0, "done", "abc", len(ids), done=Done("r", reason, "abc", tuple(ids), 4, timings, t_start=1.0, path="eager", warm=True, alone=True))


def saying(text, **more):
    """A run that wrote `text`."""
    run = ended(5, **more)
    return replace(run, text=text, done=replace(run.done, text=text))


def record_of(**runs):
    outcomes = {name.replace("_", ":"): value if isinstance(value, list) else [value] for name, value in runs.items()}
    return build_record([status(name) for name in outcomes], Request("hi"), "in-turn", outcomes)
